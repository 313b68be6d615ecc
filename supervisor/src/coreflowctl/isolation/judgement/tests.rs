//! Each promise, held and broken.

use std::collections::BTreeMap;

use super::*;
use crate::{
    coreflowctl::isolation::process_status::{Capabilities, Limit, ProcessStatus},
    status::{LayerState, Memory},
};

const SUPERVISOR: u32 = 4711;
/// Those that a service manager gives the whole service.
const INHERITED: u32 = 33;

/// The supervisor as `user`.
fn supervisor_of(user: u32) -> Supervisor {
    Supervisor { pid: SUPERVISOR, user: Some(user), filters: Some(INHERITED) }
}

fn credentials(user: u32) -> Credentials {
    let none = || "0000000000000000".to_owned();
    Credentials {
        users: Told::Read(vec![user; 4]),
        groups: Told::Read(vec![user; 4]),
        supplementary: Told::Read(vec![]),
        capabilities: Told::Read(Capabilities {
            inheritable: none(),
            permitted: none(),
            effective: none(),
            bounding: "000001ffffffffff".to_owned(),
            ambient: none(),
        }),
        no_new_privileges: Told::Read(true),
        seccomp_mode: Told::Read(2),
        seccomp_filters: Told::Read(INHERITED + 3),
    }
}

fn limit(most: u64) -> Limit {
    Limit { soft: Some(most), hard: Some(most) }
}

/// A worker that keeps all that is promised, under a supervisor of root.
fn kept(role: Role) -> Seen {
    let user = WORKER_USERS.iter().find(|(worker, _)| *worker == role).unwrap().1;
    let layer = |layer: &str| LayerState { layer: layer.to_owned(), state: "on".to_owned(), why: None };
    let layers = ["parent-death", "no-new-privileges", "descriptors", "limits"];
    let more = ["not-dumpable", "write-execute", "landlock", "seccomp"];
    Seen {
        role: role.name().to_owned(),
        pid: 4712,
        credentials: Told::Read(credentials(user)),
        threads: Told::Read(2),
        unlike_threads: vec![],
        dumpable: Told::Read(false),
        parent: Told::Read(SUPERVISOR),
        session: Told::Read(1),
        tracer: Told::Read(0),
        limits: Told::Read(Limits { core_file: limit(0), open_files: limit(64), processes: limit(9) }),
        memory: Told::Read(Memory { resident_bytes: 1, proportional_bytes: None }),
        descriptors: Told::Read(BTreeMap::from([(0, Kind::UnixStream), (1, Kind::Pipe)])),
        foreign_namespaces: Told::Read(vec![]),
        own_word: layers.into_iter().chain(more).map(layer).collect(),
    }
}

/// What is found of a worker that was changed.
fn found(role: Role, change: impl FnOnce(&mut Seen)) -> Vec<String> {
    let mut seen = kept(role);
    change(&mut seen);
    judge(&seen, &supervisor_of(0))
}

fn change_credentials(seen: &mut Seen, change: impl FnOnce(&mut Credentials)) {
    let Told::Read(credentials) = &mut seen.credentials else { panic!("they were read") };
    change(credentials);
}

/// ARC-21: what keeps all promises is found to.
#[test]
fn a_worker_that_keeps_its_promises_has_no_finding() {
    for role in Role::WORKERS {
        assert_eq!(found(role, |_| {}), [] as [String; 0], "{role}");
    }
    // Without root the workers have the supervisor's user.
    let mut seen = kept(Role::Pulld);
    seen.credentials = Told::Read(credentials(1000));
    assert_eq!(judge(&seen, &supervisor_of(1000)), [] as [String; 0]);
    assert_eq!(judge(&seen, &supervisor_of(0)).len(), 2, "a user and a group that are not its own");
}

/// Each promise that is broken is found by what is wrong.
#[test]
fn each_broken_promise_is_found() {
    let relayd = Role::Relayd;
    let one = |found: Vec<String>, part: &str| {
        assert_eq!(found.len(), 1, "{part}: {found:?}");
        assert!(found[0].contains(part), "{part}: {found:?}");
    };
    one(found(relayd, |seen| seen.tracer = Told::Read(99)), "process 99 traces it");
    one(found(relayd, |seen| seen.dumpable = Told::Read(true)), "it is dumpable");
    one(found(relayd, |seen| seen.parent = Told::Read(1)), "its parent is 1");
    one(found(relayd, |seen| seen.unlike_threads = vec![7]), "threads [7]");
    one(
        found(relayd, |seen| change_credentials(seen, |it| it.no_new_privileges = Told::Read(false))),
        "may gain privileges",
    );
    one(
        found(relayd, |seen| {
            change_credentials(seen, |it| it.users = Told::Read(vec![60_801, 60_801, 0, 60_801]))
        }),
        "user is [60801, 60801, 0, 60801]",
    );
    one(
        found(relayd, |seen| change_credentials(seen, |it| it.supplementary = Told::Read(vec![4]))),
        "the groups [4]",
    );
    one(
        found(relayd, |seen| {
            let text = "CapInh: 0\nCapPrm: 400\nCapEff: 0\nCapBnd: 0\nCapAmb: 0\n".to_owned();
            let capabilities = ProcessStatus(text).credentials().capabilities;
            change_credentials(seen, |it| it.capabilities = capabilities);
        }),
        "it has capabilities: effective 0, permitted 400, inheritable 0, ambient 0",
    );
    one(
        found(relayd, |seen| change_credentials(seen, |it| it.seccomp_mode = Told::Read(0))),
        "its seccomp mode is 0",
    );
    one(
        found(relayd, |seen| change_credentials(seen, |it| it.seccomp_filters = Told::Read(INHERITED + 2))),
        "it has 35 seccomp filters: its own 3 are not all there beside the supervisor's 33",
    );
    let limits =
        |core, files| Limits { core_file: limit(core), open_files: limit(files), processes: limit(9) };
    one(found(relayd, |seen| seen.limits = Told::Read(limits(1, 64))), "a core file");
    one(found(Role::Vpnd, |seen| seen.limits = Told::Read(limits(0, 65))), "more than 64 files");
    one(
        found(relayd, |seen| {
            seen.own_word[6].state = "absent".to_owned();
            seen.own_word[6].why = Some("the kernel has none".to_owned());
        }),
        "by its own word: landlock is absent (the kernel has none)",
    );
    one(found(relayd, |seen| seen.own_word.clear()), "not stated its layers");
}

/// ARC-05, ARC-11: a descriptor that a worker has no use for is found, each by what it is.
#[test]
fn a_descriptor_that_a_worker_has_no_use_for_is_found() {
    let address = || "127.0.0.1:8443".parse().unwrap();
    for (kind, holders) in [
        (Kind::TcpListener(address()), &[Role::Relayd][..]),
        (Kind::Tcp(address(), address()), &[Role::Relayd, Role::Pulld]),
        (Kind::Udp(address()), &[Role::Vpnd]),
        (Kind::TcpIdle, &[Role::Relayd, Role::Pulld]),
        (Kind::OtherSocket("NETLINK".to_owned()), &[]),
        (Kind::OtherSocket("MPTCP".to_owned()), &[]),
        (Kind::Anonymous("eventpoll".to_owned()), &Role::WORKERS),
        (Kind::Anonymous("eventfd".to_owned()), &Role::WORKERS),
        (Kind::Anonymous("pidfd".to_owned()), &[]),
        (Kind::Anonymous("userfaultfd".to_owned()), &[]),
        (Kind::Anonymous("io_uring".to_owned()), &[]),
        (Kind::UnixOther("(stream, listening) /run/coreflow/control.sock".to_owned()), &[]),
        (Kind::File("/etc/shadow".to_owned()), &[]),
        (Kind::Memory("/memfd:x".to_owned()), &[]),
    ] {
        for role in Role::WORKERS {
            let found = found(role, |seen| {
                let Told::Read(descriptors) = &mut seen.descriptors else { panic!("they were read") };
                descriptors.insert(9, kind.clone());
            });
            assert_eq!(found.is_empty(), holders.contains(&role), "{role} with {kind}: {found:?}");
            assert!(found.is_empty() || found[0].contains(&format!("9 is {kind}")), "{found:?}");
        }
    }
}

/// ARC-21: what a service manager filters is not taken for the worker's own filter; nor what nobody can tell from it.
#[test]
fn inherited_filters_are_not_a_workers_own() {
    let mut seen = kept(Role::Relayd);
    change_credentials(&mut seen, |it| it.seccomp_filters = Told::Read(INHERITED));
    assert_eq!(judge(&seen, &supervisor_of(0)).len(), 1);
    let unread = judge(&kept(Role::Relayd), &Supervisor { filters: None, ..supervisor_of(0) });
    assert_eq!(unread, ["seccomp filters: the supervisor's are not read, so its own cannot be told"]);
    let mut supervisor = kept(Role::Relayd);
    supervisor.role = "supervisor".to_owned();
    change_credentials(&mut supervisor, |it| it.seccomp_filters = Told::Read(0));
    assert_eq!(judge(&supervisor, &supervisor_of(0)), [] as [String; 0], "it promises no filter of its own");
}

/// What cannot be read is not taken for kept; that of a process of root, which the kernel shows nobody, is left out.
#[test]
fn what_cannot_be_read_is_not_held() {
    let unread = found(Role::Pulld, |seen| seen.descriptors = Told::unread("permission denied"));
    assert_eq!(unread, ["descriptors: not read: permission denied"]);
    let unread = found(Role::Pulld, |seen| seen.credentials = Told::unread("not found"));
    assert_eq!(unread, ["not read: not found"]);
    let unread = found(Role::Pulld, |seen| seen.threads = Told::unread("permission denied"));
    assert_eq!(unread, ["threads: not read: permission denied"]);
    let mut supervisor = kept(Role::Relayd);
    supervisor.role = "supervisor".to_owned();
    supervisor.credentials = Told::Read(credentials(0));
    supervisor.dumpable = Told::unread("the kernel shows it of no process of root");
    assert_eq!(judge(&supervisor, &supervisor_of(0)), [] as [String; 0]);
    supervisor.credentials = Told::Read(credentials(1000));
    assert_eq!(judge(&supervisor, &supervisor_of(1000)).len(), 1);
}
