//! The attacks, as data: what is tried, on whom, how it ends in each worker, and what stops it there.

use coreflow_ipc::confine::Layer;
use coreflow_ipc::sys::Errno;

use super::verdict::Verdict;
use super::wall::Wall;

/// On whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    /// Nobody but the host.
    Host,
    /// The supervisor.
    Supervisor,
    /// Another worker.
    Sibling,
    /// The third one.
    OtherSibling,
}

/// What the attempt is told beside its victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing.
    Nothing,
    /// A path.
    Path(&'static str),
    /// A place in the victim's memory.
    Memory,
    /// The file that holds the bearer.
    Credential,
    /// A file of the attacker's own user, made for this attempt.
    File,
    /// An empty directory of the attacker's own user, made for this attempt.
    Directory,
    /// A name that no file has.
    NewFile,
    /// A TCP port that no profile may dial.
    TcpPort,
    /// The same of the other internet protocol.
    Tcp6Port,
    /// A UDP port.
    UdpPort,
    /// The relay's control socket.
    ControlSocket,
    /// The service manager's socket.
    NotifySocket,
    /// A socket as the journal has one.
    JournalSocket,
    /// An abstract Unix socket.
    AbstractSocket,
    /// A descriptor that was left open for it.
    LeftOpen,
}

/// What stops an attack: each by itself, and without all of them it succeeds.
pub(crate) type Walls = &'static [Wall];

/// One attack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attack {
    /// What a reader of the table reads.
    pub name: &'static str,
    /// The attempt's name.
    pub attempt: &'static str,
    /// What it is told.
    pub told: Told,
    /// On whom: one row each.
    pub on: &'static [Victim],
    /// How it ends in pulld and vpnd.
    pub ends: Verdict,
    /// What stops it there.
    pub walls: Walls,
    /// The same in relayd.
    pub relayd: (Verdict, Walls),
}

const SECCOMP: Wall = Wall::Own(Layer::Seccomp);
const LANDLOCK: Wall = Wall::Own(Layer::Landlock);

const REFUSED: Verdict = Verdict::Refused(Errno::EPERM);

const BY_SECCOMP: Walls = &[SECCOMP];
const BY_BOTH: Walls = &[SECCOMP, LANDLOCK];
const BY_NEWER: Walls = &[SECCOMP, Wall::LaterLandlock];
const BY_THREE: Walls = &[Wall::Victim, SECCOMP, LANDLOCK];
const BY_WRITE_EXECUTE: Walls = &[Wall::Own(Layer::WriteExecute), SECCOMP];
const BY_DESCRIPTORS: Walls = &[Wall::Own(Layer::Descriptors)];

const BY_CAPABILITY: Walls = &[Wall::Own(Layer::NoNewPrivileges), SECCOMP];
const BY_CAPABILITY_TOO: Walls = &[Wall::Own(Layer::NoNewPrivileges), SECCOMP, LANDLOCK];

const OTHERS: &[Victim] = &[Victim::Supervisor, Victim::Sibling, Victim::OtherSibling];

const fn refused(name: &'static str, attempt: &'static str, told: Told, walls: Walls) -> Attack {
    let on = &[Victim::Host];
    Attack { name, attempt, told, on, ends: REFUSED, walls, relayd: (REFUSED, walls) }
}

const fn lethal(name: &'static str, attempt: &'static str, told: Told, walls: Walls) -> Attack {
    let attack = refused(name, attempt, told, walls);
    Attack { ends: Verdict::Lethal, relayd: (Verdict::Lethal, walls), ..attack }
}

impl Attack {
    /// What stops it, for a reader.
    pub(crate) fn named_walls(&self) -> String {
        let list = |walls: Walls| walls.iter().map(Wall::to_string).collect::<Vec<_>>().join(" + ");
        let (_, relayd) = self.relayd;
        if relayd == self.walls {
            list(relayd)
        } else {
            format!("{}; relayd: {}", list(self.walls), list(relayd))
        }
    }

    const fn on_others(self) -> Self {
        Self { on: OTHERS, ..self }
    }

    const fn on_supervisor(self) -> Self {
        Self { on: &[Victim::Supervisor], ..self }
    }

    const fn in_relayd(self, ends: Verdict, walls: Walls) -> Self {
        Self { relayd: (ends, walls), ..self }
    }

    const fn ending(self, ends: Verdict) -> Self {
        Self { ends, relayd: (ends, self.relayd.1), ..self }
    }
}

/// All attacks but the one on core files.
pub(crate) const ATTACKS: &[Attack] = &[
    lethal("ptrace: stop it and peek", "stop a process and peek", Told::Memory, BY_THREE).on_others(),
    lethal("ptrace: seize it", "trace a process", Told::Nothing, BY_THREE).on_others(),
    lethal("process_vm_readv", "read a process's memory", Told::Memory, BY_THREE).on_others(),
    lethal("process_vm_writev", "write a process's memory", Told::Memory, BY_THREE).on_others(),
    lethal("pidfd_getfd", "take a descriptor", Told::Nothing, BY_THREE).on_others(),
    lethal("process_madvise", "advise on a process's memory", Told::Memory, BY_THREE).on_others(),
    lethal("kcmp", "compare descriptors", Told::Nothing, BY_THREE).on_others(),
    lethal("perf_event_open", "count a process's work", Told::Nothing, BY_THREE).on_others(),
    refused("/proc/PID/mem read", "read a process's memory file", Told::Memory, BY_THREE).on_others(),
    refused("/proc/PID/mem written", "write a process's memory file", Told::Memory, BY_THREE).on_others(),
    refused("/proc/PID/maps", "read a process's mappings", Told::Nothing, BY_THREE).on_others(),
    refused("/proc/PID/environ", "read a process's environment", Told::Nothing, BY_THREE).on_others(),
    // A link is followed without a right on files; Landlock asks as for a trace.
    refused("/proc/PID/fd", "look at a process's descriptor", Told::Nothing, BY_THREE).on_others(),
    refused("/proc/PID/root", "enter a process's root", Told::Nothing, BY_THREE).on_others(),
    refused("/proc/PID/oom_score_adj", "change a process's badness", Told::Nothing, BY_THREE).on_others(),
    refused("/proc/PID/cmdline", "read a process's command line", Told::Nothing, BY_BOTH).on_others(),
    refused("/proc/PID/status", "read a process's status", Told::Nothing, BY_BOTH).on_others(),
    refused("kill", "signal a process", Told::Nothing, BY_BOTH).on_others(),
    refused("tgkill", "signal a thread of a process", Told::Nothing, BY_BOTH).on_others(),
    refused("tkill", "signal a task", Told::Nothing, BY_BOTH).on_others(),
    refused("rt_sigqueueinfo", "queue a signal", Told::Nothing, BY_BOTH).on_others(),
    refused("pidfd_send_signal", "signal by a pidfd", Told::Nothing, BY_BOTH).on_others(),
    refused("pidfd_open", "open a process as a pidfd", Told::Nothing, BY_SECCOMP).on_others(),
    refused("prlimit: its limits read", "read a process's limits", Told::Nothing, BY_SECCOMP).on_others(),
    refused("prlimit: its limits set", "change a process's limits", Told::Nothing, BY_SECCOMP).on_others(),
    refused("setpriority", "change a process's priority", Told::Nothing, BY_SECCOMP).on_others(),
    refused("ioprio_set", "change a process's input priority", Told::Nothing, BY_SECCOMP).on_others(),
    refused("sched_setaffinity", "pin a process", Told::Nothing, BY_SECCOMP).on_others(),
    refused("sched_setscheduler", "change a process's scheduling", Told::Nothing, BY_SECCOMP).on_others(),
    refused("the credential's file", "open a file", Told::Credential, BY_BOTH),
    refused("the credential's file: stat", "look at a file", Told::Credential, BY_SECCOMP),
    refused("/etc/passwd", "open a file", Told::Path("/etc/passwd"), BY_BOTH),
    refused("a directory listed", "list a directory", Told::Path("/"), BY_BOTH),
    refused("a new file", "create a file", Told::NewFile, BY_BOTH),
    refused("a new empty file", "make an empty file", Told::NewFile, BY_BOTH),
    refused("a new directory", "make a directory", Told::NewFile, BY_BOTH),
    refused("a new link", "make a link", Told::NewFile, BY_BOTH),
    refused("a new named pipe", "make a named pipe", Told::NewFile, BY_BOTH),
    refused("a new device", "make a device", Told::NewFile, BY_BOTH),
    refused("a new socket", "make a socket", Told::NewFile, BY_BOTH),
    refused("a new file in memory", "make a file in memory", Told::Nothing, BY_SECCOMP),
    refused("a file removed", "remove a file", Told::File, BY_BOTH),
    refused("a directory removed", "remove a directory", Told::Directory, BY_BOTH),
    refused("a file cut", "cut a file", Told::File, BY_BOTH),
    refused("a file's mode changed", "change a file's mode", Told::File, BY_SECCOMP),
    refused("inotify", "watch files", Told::Nothing, BY_SECCOMP),
    refused("TCP to a foreign port", "connect", Told::TcpPort, BY_BOTH)
        .in_relayd(Verdict::Refused(Errno::EACCES), &[LANDLOCK]),
    refused("TCP over IPv6 to a foreign port", "connect by IPv6", Told::Tcp6Port, BY_BOTH)
        .in_relayd(Verdict::Refused(Errno::EACCES), &[LANDLOCK]),
    refused("TCP by fast open, sendto", "fast open by sendto", Told::TcpPort, BY_SECCOMP),
    refused("TCP by fast open, sendmsg", "fast open by sendmsg", Told::TcpPort, BY_SECCOMP),
    refused("TCP by fast open, sendmmsg", "fast open by sendmmsg", Told::TcpPort, BY_SECCOMP),
    refused("MPTCP to a foreign port", "mptcp connect", Told::TcpPort, BY_SECCOMP),
    refused("UDP to a foreign port", "udp send", Told::UdpPort, BY_NEWER),
    refused("UDP bind", "udp bind", Told::Nothing, BY_NEWER),
    refused("TCP bind", "bind", Told::Nothing, BY_BOTH),
    refused("TCP listen without bind", "listen without bind", Told::Nothing, BY_SECCOMP),
    refused("the control socket", "connect to a path socket", Told::ControlSocket, BY_NEWER).on_supervisor(),
    refused("the service manager's socket", "send to a path socket", Told::NotifySocket, BY_NEWER),
    refused("a socket like the journal's", "send to a path socket", Told::JournalSocket, BY_NEWER),
    refused("an abstract socket", "connect to an abstract socket", Told::AbstractSocket, BY_BOTH),
    refused("netlink socket", "netlink socket", Told::Nothing, BY_SECCOMP),
    refused("vsock socket", "vsock socket", Told::Nothing, BY_SECCOMP),
    refused("packet socket", "packet socket", Told::Nothing, BY_CAPABILITY),
    refused("raw socket", "raw socket", Told::Nothing, BY_CAPABILITY),
    refused(
        "the supervisor's process by the link",
        "open the process behind the link",
        Told::Nothing,
        BY_SECCOMP,
    ),
    lethal("execve", "execute", Told::Nothing, BY_BOTH),
    lethal("execveat", "execute from a descriptor", Told::Nothing, BY_BOTH),
    lethal("execveat of a file in memory", "execute a file in memory", Told::Nothing, BY_BOTH),
    refused("clone: a user namespace", "fork into a namespace", Told::Nothing, BY_SECCOMP),
    refused("fork", "fork", Told::Nothing, BY_SECCOMP),
    lethal("unshare: a user namespace", "unshare", Told::Nothing, BY_SECCOMP),
    refused("clone3: a user namespace", "fork into a namespace by clone3", Told::Nothing, BY_SECCOMP)
        .ending(Verdict::Refused(Errno::ENOSYS)),
    lethal("setns", "enter a namespace", Told::Nothing, BY_CAPABILITY),
    lethal("mount", "mount", Told::Nothing, BY_CAPABILITY_TOO),
    lethal("fsopen", "open a file system", Told::Nothing, BY_CAPABILITY),
    lethal("move_mount", "move a mount", Told::Nothing, BY_CAPABILITY_TOO),
    lethal("chroot", "change its root", Told::Nothing, BY_CAPABILITY),
    lethal("open_by_handle_at", "open a file by its handle", Told::Nothing, BY_SECCOMP),
    refused("fanotify", "watch the host's files", Told::Nothing, BY_SECCOMP),
    lethal("io_uring_setup", "io_uring", Told::Nothing, BY_SECCOMP),
    lethal("bpf", "bpf", Told::Nothing, BY_SECCOMP),
    lethal("userfaultfd", "userfaultfd", Told::Nothing, BY_SECCOMP),
    lethal("keyctl", "keyctl", Told::Nothing, BY_SECCOMP),
    lethal("add_key", "add a key", Told::Nothing, BY_SECCOMP),
    lethal("request_key", "look for a key", Told::Nothing, BY_SECCOMP),
    refused("shmget", "make shared memory", Told::Nothing, BY_SECCOMP),
    refused("msgget", "make a message queue", Told::Nothing, BY_SECCOMP),
    refused("semget", "make a semaphore", Told::Nothing, BY_SECCOMP),
    refused("a call of the other ABI's numbers", "call by an x32 number", Told::Nothing, BY_SECCOMP),
    refused("memory mapped executable", "map executable memory", Told::Nothing, BY_WRITE_EXECUTE),
    refused("memory made executable", "make memory executable", Told::Nothing, BY_WRITE_EXECUTE),
    refused("personality", "make memory executable by personality", Told::Nothing, BY_SECCOMP),
    refused("a descriptor not handed over", "read a descriptor", Told::LeftOpen, BY_DESCRIPTORS)
        .ending(Verdict::Refused(Errno::EBADF)),
    refused("becoming dumpable", "become dumpable", Told::Nothing, BY_SECCOMP),
    refused("another filter of calls", "load a filter", Told::Nothing, BY_SECCOMP),
    refused("the seccomp call", "ask seccomp", Told::Nothing, BY_SECCOMP),
    refused("no end with the supervisor", "outlive its supervisor", Told::Nothing, BY_SECCOMP),
    refused("own limits set", "set its own limits", Told::Nothing, BY_SECCOMP),
    refused("a filter on a socket", "attach a socket filter", Told::Nothing, BY_SECCOMP),
    refused("a descriptor's signals", "own a descriptor's signals", Told::Nothing, BY_SECCOMP),
];

/// The attack on core files. Where the host pipes them to a program, the kernel asks neither the limit nor Landlock.
pub(crate) fn core_file(piped: bool) -> Attack {
    const NOT_DUMPABLE: Wall = Wall::Own(Layer::NotDumpable);
    let walls: Walls =
        if piped { &[NOT_DUMPABLE] } else { &[NOT_DUMPABLE, Wall::Own(Layer::Limits), LANDLOCK] };
    refused("a core file", "abort", Told::Nothing, walls).ending(Verdict::NoCore)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attacks::attempts::named;

    /// A row of the document: attack, victims, how it ends, and the walls.
    fn row(attack: &Attack) -> String {
        let victims = attack.on.iter().filter_map(|victim| match victim {
            Victim::Host => Some("host"),
            Victim::Supervisor => Some("supervisor"),
            Victim::Sibling => Some("siblings"),
            // Both are always attacked, and are one word.
            Victim::OtherSibling => None,
        });
        let victims = victims.collect::<Vec<_>>().join(", ");
        let (ends, _) = attack.relayd;
        let ends =
            if ends == attack.ends { ends.to_string() } else { format!("{}; relayd: {ends}", attack.ends) };
        format!("| {} | {victims} | {ends} | {} |", attack.name, attack.named_walls())
    }

    /// ARC-21: the document holds the table of attacks as it is made, and no row more.
    #[test]
    fn the_document_has_every_attack_and_what_stops_it() {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/isolation.md");
        let document = std::fs::read_to_string(document).expect("the document on isolation");
        let (_, rows) = document.split_once("| attack | on | ends with | stopped by |").expect("its table");
        let rows: Vec<&str> = rows.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
        let expected: Vec<String> =
            ATTACKS.iter().copied().chain([core_file(false)]).map(|a| row(&a)).collect();
        assert_eq!(rows, expected, "{}", expected.join("\n"));
    }

    /// ARC-21: every attack names an attempt that there is, and a wall; a sibling and the supervisor are both attacked
    /// by whatever is made on a process.
    #[test]
    fn every_attack_has_an_attempt_and_a_wall() {
        for attack in ATTACKS {
            let _ = named(attack.attempt);
            assert!(!attack.walls.is_empty() && !attack.relayd.1.is_empty(), "{}", attack.name);
            if attack.walls.contains(&Wall::Victim) {
                assert_eq!(attack.on, OTHERS, "{}", attack.name);
            }
        }
    }
}
