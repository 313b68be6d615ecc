//! What is promised of each process, and what of it does not hold: pure, from what was seen (`docs/isolation.md`).
//!
//! A promise that cannot be checked is not held; the one exception is whether a process of root is dumpable, which
//! the kernel shows nobody.

use coreflow_ipc::{
    confine::{FILTERS, Profile},
    hello::Role,
};

use super::{
    Told,
    descriptors::Kind,
    process_status::{Credentials, Limits},
    seen::Seen,
};
use crate::spawn::WORKER_USERS;

/// The number of layers that a worker reports.
const LAYERS: usize = 8;
/// What a runtime makes for itself, by the kernel's names.
const RUNTIME: [&str; 2] = ["eventpoll", "eventfd"];
/// The seccomp mode of a process with filters.
const FILTERED: u32 = 2;

/// What a worker is judged by, of its supervisor.
pub(super) struct Supervisor {
    /// Its process id.
    pub(super) pid: u32,
    /// Its user.
    pub(super) user: Option<u32>,
    /// How many filters of system calls it has, which each worker begins with: a service manager's.
    pub(super) filters: Option<u32>,
}

/// What of the promises does not hold.
pub(super) fn judge(seen: &Seen, supervisor: &Supervisor) -> Vec<String> {
    let mut judged = Judged::default();
    judged.value("nobody traces it", &seen.tracer, |tracer| match tracer {
        0 => None,
        tracer => Some(format!("process {tracer} traces it")),
    });
    if seen.user() != Some(0) {
        judged
            .value("not dumpable", &seen.dumpable, |dumpable| dumpable.then(|| "it is dumpable".to_owned()));
    }
    judged.of(&seen.credentials, |judged, credentials| {
        judged.value("no new privileges", &credentials.no_new_privileges, |set| {
            (!set).then(|| "an exec may gain privileges".to_owned())
        });
    });
    let Some(role) = Role::WORKERS.into_iter().find(|role| role.name() == seen.role) else {
        return judged.0;
    };
    judged.of(&seen.credentials, |judged, credentials| {
        worker_credentials(judged, role, credentials, supervisor)
    });
    judged.value("child of the supervisor", &seen.parent, |parent| {
        (*parent != supervisor.pid).then(|| format!("its parent is {parent}, not the supervisor"))
    });
    judged.value("threads", &seen.threads, |_| None);
    if !seen.unlike_threads.is_empty() {
        judged.0.push(format!("threads {:?} have other credentials than the first", seen.unlike_threads));
    }
    judged.of(&seen.limits, |judged, limits| worker_limits(judged, role, limits));
    judged.value("descriptors", &seen.descriptors, |descriptors| {
        let foreign = descriptors.iter().filter(|(_, kind)| !may_hold(role, kind));
        let foreign: Vec<String> = foreign.map(|(number, kind)| format!("{number} is {kind}")).collect();
        (!foreign.is_empty()).then(|| format!("descriptors that it has no use for: {}", foreign.join(", ")))
    });
    let on = seen.own_word.iter().filter(|layer| layer.state == "on").count();
    if seen.own_word.is_empty() {
        judged.0.push("it has not stated its layers".to_owned());
    } else if on < LAYERS {
        let missing = seen.own_word.iter().filter(|layer| layer.state != "on");
        let missing = missing.map(|layer| {
            let why = layer.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            format!("{} is {}{why}", layer.layer, layer.state)
        });
        judged.0.push(format!("by its own word: {}", missing.collect::<Vec<_>>().join(", ")));
    }
    judged.0
}

/// What does not hold so far.
#[derive(Default)]
struct Judged(Vec<String>);

impl Judged {
    /// Judges a value, or states that it could not be read.
    fn value<T>(&mut self, promise: &str, told: &Told<T>, fault: impl FnOnce(&T) -> Option<String>) {
        match told {
            Told::Read(value) => self.0.extend(fault(value)),
            Told::Unread { unread } => self.0.push(format!("{promise}: not read: {unread}")),
        }
    }

    /// Judges the parts of something, or states once that it could not be read.
    fn of<T>(&mut self, told: &Told<T>, judge: impl FnOnce(&mut Self, &T)) {
        match told {
            Told::Read(value) => judge(self, value),
            Told::Unread { unread } => {
                let line = format!("not read: {unread}");
                if !self.0.contains(&line) {
                    self.0.push(line);
                }
            }
        }
    }
}

fn worker_credentials(judged: &mut Judged, role: Role, credentials: &Credentials, supervisor: &Supervisor) {
    let Supervisor { user: supervisor, filters, .. } = *supervisor;
    let own = WORKER_USERS.iter().find(|(worker, _)| *worker == role).map(|(_, user)| *user);
    // Started as root each worker has a user of its own, and else the supervisor's.
    let promised = if supervisor == Some(0) { own } else { supervisor };
    for (what, told) in [("user", &credentials.users), ("group", &credentials.groups)] {
        judged.value(what, told, |ids| {
            // A service's group need not have its user's number.
            let promised = promised.filter(|_| what == "user" || supervisor == Some(0));
            let first = promised.or(ids.first().copied());
            let alike = ids.len() == 4 && ids.iter().all(|id| Some(*id) == first && *id != 0);
            (!alike).then(|| format!("{what} is {ids:?}"))
        });
    }
    judged.value("supplementary groups", &credentials.supplementary, |groups| {
        // Without root they are the service's own, and cannot be dropped.
        (supervisor == Some(0) && !groups.is_empty()).then(|| format!("it has the groups {groups:?}"))
    });
    judged.value("capabilities", &credentials.capabilities, |capabilities| {
        (!capabilities.are_none()).then(|| format!("it has capabilities: {}", capabilities.held()))
    });
    judged.value("seccomp", &credentials.seccomp_mode, |mode| {
        (*mode != FILTERED).then(|| format!("its seccomp mode is {mode}, not {FILTERED}"))
    });
    // The mode alone is the service manager's work already, where that has a filter for the whole service.
    judged.value("seccomp filters", &credentials.seccomp_filters, |count| match filters {
        None => Some("seccomp filters: the supervisor's are not read, so its own cannot be told".to_owned()),
        Some(inherited) => (*count < inherited + FILTERS).then(|| {
            format!("it has {count} seccomp filters: its own {FILTERS} are not all there beside the supervisor's {inherited}")
        }),
    });
}

fn worker_limits(judged: &mut Judged, role: Role, limits: &Limits) {
    if (limits.core_file.soft, limits.core_file.hard) != (Some(0), Some(0)) {
        judged.0.push("it may leave a core file".to_owned());
    }
    let profile = match role {
        // Its port plays no part in its limits.
        Role::Relayd | Role::Supervisor => Profile::relayd(0),
        Role::Pulld => Profile::pulld(),
        Role::Vpnd => Profile::vpnd(),
    };
    if limits.open_files.hard.is_none_or(|hard| hard > profile.open_files) {
        judged.0.push(format!("it may open more than {} files", profile.open_files));
    }
}

/// Whether a worker has a use for such a descriptor.
fn may_hold(role: Role, kind: &Kind) -> bool {
    match kind {
        // Its links and pairs, and its last words.
        Kind::UnixStream | Kind::Pipe => true,
        // Its runtime's. Others of the kind reach processes and memory.
        Kind::Anonymous(name) => RUNTIME.contains(&name.as_str()),
        Kind::TcpListener(_) => role == Role::Relayd,
        // A connection that was just closed, or not yet made, is in no table.
        Kind::Tcp(..) | Kind::TcpIdle => role != Role::Vpnd,
        Kind::Udp(_) => role == Role::Vpnd,
        Kind::OtherSocket(_) | Kind::UnixOther(_) | Kind::Memory(_) | Kind::File(_) => false,
    }
}

#[cfg(test)]
mod tests;
