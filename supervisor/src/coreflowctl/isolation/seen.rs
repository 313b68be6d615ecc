//! One process as `/proc` shows it to whoever looks.

use std::{collections::BTreeMap, fs, io, os::unix::fs::MetadataExt};

use serde::Serialize;

use super::{
    Namespaces, Told,
    descriptors::{self, Kind},
    process_status::{Credentials, Limits, ProcessStatus},
};
use crate::{
    memory,
    status::{Confined, LayerState, Memory},
};

/// What is seen of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Seen {
    pub(super) role: String,
    pub(super) pid: u32,
    /// Of its first thread.
    pub(super) credentials: Told<Credentials>,
    /// How many threads it has.
    pub(super) threads: Told<usize>,
    /// Those whose credentials are not the first one's.
    pub(super) unlike_threads: Vec<u32>,
    /// Whether others of its user may read its memory, and it may leave a core file.
    pub(super) dumpable: Told<bool>,
    pub(super) parent: Told<u32>,
    /// The leader of its session.
    pub(super) session: Told<u32>,
    /// The process that traces it, 0 for none.
    pub(super) tracer: Told<u32>,
    pub(super) limits: Told<Limits>,
    pub(super) memory: Told<Memory>,
    pub(super) descriptors: Told<BTreeMap<u32, Kind>>,
    /// The namespaces that are not the supervisor's.
    pub(super) foreign_namespaces: Told<Vec<String>>,
    /// What the process itself said of its confinement.
    pub(super) own_word: Vec<LayerState>,
}

impl Seen {
    /// Looks at a process; `own` is the supervisor's namespaces.
    pub(super) fn read(process: &Confined, own: &Told<Namespaces>) -> Self {
        let Confined { role, pid, layers } = process;
        let status: Told<ProcessStatus> = text(*pid, "status").map(ProcessStatus).into();
        let credentials = of(&status, |status| Told::Read(status.credentials()));
        let threads: Told<Vec<(u32, Credentials)>> = threads(*pid).into();
        let unlike = threads.read().into_iter().flatten();
        let unlike = unlike.filter(|(_, of_thread)| credentials.read() != Some(of_thread));
        Self {
            unlike_threads: unlike.map(|(thread, _)| *thread).collect(),
            threads: of(&threads, |threads| Told::Read(threads.len())),
            dumpable: dumpable(*pid, &credentials),
            parent: of(&status, |status| status.number("PPid")),
            tracer: of(&status, |status| status.number("TracerPid")),
            session: of(&text(*pid, "stat").into(), |stat: &String| session(stat)),
            limits: of(&text(*pid, "limits").into(), |limits: &String| Limits::of_text(limits)),
            memory: memory::of_process(*pid, true)
                .map_or_else(|| Told::unread("it cannot be read"), Told::Read),
            descriptors: descriptors::of_process(*pid).into(),
            foreign_namespaces: foreign(&namespaces(*pid), own),
            role: role.clone(),
            pid: *pid,
            credentials,
            own_word: layers.clone(),
        }
    }

    /// Its effective user.
    pub(super) fn user(&self) -> Option<u32> {
        self.credentials.read()?.users.read()?.get(1).copied()
    }

    /// How many filters of system calls its first thread has.
    pub(super) fn filters(&self) -> Option<u32> {
        self.credentials.read()?.seccomp_filters.read().copied()
    }
}

fn text(pid: u32, file: &str) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}"))
}

/// What follows from something that was read.
fn of<T, U>(told: &Told<T>, follows: impl FnOnce(&T) -> Told<U>) -> Told<U> {
    match told {
        Told::Read(value) => follows(value),
        Told::Unread { unread } => Told::Unread { unread: unread.clone() },
    }
}

/// The credentials of each thread; one that ended meanwhile is none.
fn threads(pid: u32) -> io::Result<Vec<(u32, Credentials)>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let entry = entry?;
        let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match fs::read_to_string(entry.path().join("status")) {
            Ok(status) => threads.push((thread, ProcessStatus(status).credentials())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(threads)
}

/// The children of a process that `/proc` shows; one that has ended and waits to be reaped is none.
pub(super) fn children(parent: u32) -> Told<Vec<u32>> {
    let read = || -> io::Result<Vec<u32>> {
        let mut children = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // One that may not be seen is of another user and hidden; one that ended is gone.
            let Ok(status) = text(pid, "status").map(ProcessStatus) else { continue };
            if status.number("PPid").read() == Some(&parent) && !status.has_ended() {
                children.push(pid);
            }
        }
        Ok(children)
    };
    read().into()
}

/// The files below `/proc/PID` are root's as long as the process is not dumpable, and else its user's.
fn dumpable(pid: u32, credentials: &Told<Credentials>) -> Told<bool> {
    let owner: Told<u32> = fs::metadata(format!("/proc/{pid}/status")).map(|metadata| metadata.uid()).into();
    let user = of(credentials, |credentials| {
        of(&credentials.users, |users| {
            users.get(1).map_or_else(|| Told::unread("Uid has another form"), |user| Told::Read(*user))
        })
    });
    match (owner, user) {
        (Told::Read(_), Told::Read(0)) => Told::unread("the kernel shows it of no process of root"),
        (Told::Read(0), Told::Read(_)) => Told::Read(false),
        (Told::Read(owner), Told::Read(user)) if owner == user => Told::Read(true),
        (Told::Read(owner), Told::Read(_)) => Told::unread(format!("its files are those of user {owner}")),
        (Told::Unread { unread }, _) | (_, Told::Unread { unread }) => Told::Unread { unread },
    }
}

/// The sixth member of `stat`; the second one, the name, may have spaces and brackets in it.
fn session(stat: &str) -> Told<u32> {
    let behind = stat.rsplit_once(')').map(|(_, behind)| behind);
    let session = behind.and_then(|behind| behind.split_whitespace().nth(3)?.parse().ok());
    session.map_or_else(|| Told::unread("stat has another form"), Told::Read)
}

/// The namespaces of a process; the kernel tells them to whoever may trace it.
pub(super) fn namespaces(pid: u32) -> Told<Namespaces> {
    let read = || -> io::Result<Namespaces> {
        let mut namespaces = Namespaces::new();
        for entry in fs::read_dir(format!("/proc/{pid}/ns"))? {
            let entry = entry?;
            let target = fs::read_link(entry.path())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            namespaces.insert(name, target.to_string_lossy().into_owned());
        }
        Ok(namespaces)
    };
    read().into()
}

fn foreign(its: &Told<Namespaces>, own: &Told<Namespaces>) -> Told<Vec<String>> {
    of(own, |own| {
        of(its, |its| {
            let foreign = its.iter().filter(|(name, namespace)| own.get(*name) != Some(namespace));
            Told::Read(foreign.map(|(name, _)| name.clone()).collect())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This very process is seen as it is, and a process that is none is unread throughout.
    #[test]
    fn a_process_is_seen_as_it_is() {
        let pid = std::process::id();
        let process = |pid| Confined { role: "relayd".to_owned(), pid, layers: Vec::new() };
        let own = namespaces(pid);
        let seen = Seen::read(&process(pid), &own);
        assert_eq!(seen.parent, Told::Read(std::os::unix::process::parent_id()));
        assert_eq!(seen.user(), Some(nix::unistd::geteuid().as_raw()));
        assert_eq!(
            seen.session,
            Told::Read(u32::try_from(nix::unistd::getsid(None).unwrap().as_raw()).unwrap())
        );
        assert_eq!(
            (seen.foreign_namespaces.read(), seen.unlike_threads.as_slice()),
            (Some(&vec![]), &[][..])
        );
        assert!(seen.threads.read().is_some_and(|threads| *threads >= 1));
        assert!(seen.descriptors.read().is_some_and(|descriptors| descriptors.contains_key(&1)));

        let none = Seen::read(&process(u32::MAX), &own);
        assert_eq!(none.credentials, Told::unread(io::ErrorKind::NotFound));
        assert!(
            none.limits.read().is_none()
                && none.descriptors.read().is_none()
                && none.dumpable.read().is_none()
        );
    }

    /// A child is found while it runs, and is none once it has ended.
    #[test]
    fn a_child_is_found_until_it_ends() {
        let own = std::process::id();
        let mut child =
            std::process::Command::new("/bin/cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(children(own).read().is_some_and(|children| children.contains(&child.id())));
        let pid = child.id();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(children(own).read().is_some_and(|children| !children.contains(&pid)));
    }

    /// A name of a process is no member of its statistics.
    #[test]
    fn a_name_with_brackets_hides_no_session() {
        assert_eq!(session("7 (a) b (c) S 1 7 5 0 -1"), Told::Read(5));
        assert_eq!(session("7 (a"), Told::unread("stat has another form"));
    }
}
