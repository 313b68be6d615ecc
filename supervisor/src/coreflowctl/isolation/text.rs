//! The text of `coreflowctl isolation`: a block for each process, and what does not hold at the end.

use std::{collections::BTreeMap, fmt::Display};

use super::{
    Isolation, Told,
    descriptors::Kind,
    process_status::{Credentials, Limit, Limits},
    seen::Seen,
};
use crate::coreflowctl::looking::escaped;

/// Sockets of a process that are listed; the others are counted.
const LISTED: usize = 24;

pub(super) fn told(isolation: &Isolation) -> String {
    let mut lines: Vec<String> = isolation.processes.iter().flat_map(of_process).collect();
    if isolation.not_held.is_empty() {
        lines.push("all that is promised holds".to_owned());
    }
    lines.extend(isolation.not_held.iter().map(|what| format!("does not hold: {what}")));
    lines.iter().map(|line| escaped(line) + "\n").collect()
}

fn of_process(seen: &Seen) -> Vec<String> {
    let mut lines = vec![format!("{}, pid {}", seen.role, seen.pid)];
    let mut line = |name: &str, told: String| lines.push(format!("  {name:<14}{told}"));
    match &seen.credentials {
        Told::Read(credentials) => of_credentials(credentials, &mut line),
        Told::Unread { unread } => line("credentials", not_read(unread)),
    }
    line("dumpable", tell(&seen.dumpable, |dumpable| yes(*dumpable)));
    let (parent, session) = (tell(&seen.parent, plain), tell(&seen.session, plain));
    let tracer =
        tell(&seen.tracer, |tracer| if *tracer == 0 { "nobody".to_owned() } else { tracer.to_string() });
    let threads = tell(&seen.threads, plain);
    line("process", format!("parent {parent}, session {session}, traced by {tracer}, {threads} threads"));
    line("limits", tell(&seen.limits, of_limits));
    line(
        "memory",
        tell(&seen.memory, |memory| {
            let proportional =
                memory.proportional_bytes.map(|bytes| format!(", {} KiB proportional", bytes / 1024));
            format!("{} KiB resident{}", memory.resident_bytes / 1024, proportional.unwrap_or_default())
        }),
    );
    line(
        "namespaces",
        tell(&seen.foreign_namespaces, |foreign| match foreign.is_empty() {
            true => "the supervisor's".to_owned(),
            false => format!("the supervisor's but for {}", foreign.join(", ")),
        }),
    );
    match &seen.descriptors {
        Told::Read(descriptors) => of_descriptors(descriptors, &mut line),
        Told::Unread { unread } => line("descriptors", not_read(unread)),
    }
    if !seen.own_word.is_empty() {
        let layers = seen.own_word.iter().map(|layer| {
            let why = layer.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            format!("{} {}{why}", layer.layer, layer.state)
        });
        line("its own word", layers.collect::<Vec<_>>().join(", "));
    }
    lines.push(String::new());
    lines
}

fn of_credentials(credentials: &Credentials, line: &mut impl FnMut(&str, String)) {
    let four = |told: &Told<Vec<u32>>| {
        tell(told, |ids| match ids.first() {
            Some(first) if ids.iter().all(|id| id == first) => first.to_string(),
            _ => format!("{ids:?}"),
        })
    };
    let groups = tell(&credentials.supplementary, |groups| match groups.is_empty() {
        true => "none".to_owned(),
        false => format!("{groups:?}"),
    });
    let (user, group) = (four(&credentials.users), four(&credentials.groups));
    line("user", format!("{user}, group {group}, supplementary groups {groups}"));
    line(
        "capabilities",
        tell(&credentials.capabilities, |sets| {
            let held =
                if sets.are_none() { "none".to_owned() } else { format!("effective {}", sets.effective) };
            format!("{held}, bounding set {}", sets.bounding)
        }),
    );
    line("no new privs", tell(&credentials.no_new_privileges, |set| yes(*set)));
    let filters = tell(&credentials.seccomp_filters, plain);
    line(
        "seccomp",
        tell(&credentials.seccomp_mode, |mode| match mode {
            0 => "off".to_owned(),
            1 => "strict".to_owned(),
            2 => format!("filters: {filters}"),
            other => format!("mode {other}"),
        }),
    );
}

fn of_limits(limits: &Limits) -> String {
    let hard = |limit: Limit| limit.hard.map_or_else(|| "unlimited".to_owned(), |hard| hard.to_string());
    let Limits { core_file, open_files, processes } = *limits;
    format!("core file {}, open files {}, processes {}", hard(core_file), hard(open_files), hard(processes))
}

/// How many there are of each kind, and the sockets that have an address one by one.
fn of_descriptors(descriptors: &BTreeMap<u32, Kind>, line: &mut impl FnMut(&str, String)) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut listed = Vec::new();
    for (number, kind) in descriptors {
        match kind {
            Kind::UnixStream | Kind::TcpIdle | Kind::OtherSocket(_) | Kind::Pipe | Kind::Anonymous(_) => {
                *counts.entry(kind.to_string()).or_default() += 1;
            }
            Kind::TcpListener(_)
            | Kind::Tcp(..)
            | Kind::Udp(_)
            | Kind::UnixOther(_)
            | Kind::Memory(_)
            | Kind::File(_) => listed.push(format!("{number} {kind}")),
        }
    }
    let counts: Vec<String> = counts.into_iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    line("descriptors", format!("{}: {}", descriptors.len(), counts.join(", ")));
    let more = listed.len().saturating_sub(LISTED);
    for told in listed.into_iter().take(LISTED) {
        line("", told);
    }
    if more > 0 {
        line("", format!("and {more} more"));
    }
}

fn tell<T>(told: &Told<T>, tell: impl FnOnce(&T) -> String) -> String {
    match told {
        Told::Read(value) => tell(value),
        Told::Unread { unread } => not_read(unread),
    }
}

fn not_read(why: &str) -> String {
    format!("not read: {why}")
}

fn plain(value: &impl Display) -> String {
    value.to_string()
}

fn yes(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}
