//! The confinement of a worker on the running kernel: a process is confined as a worker is (or bare, as the control),
//! tries one thing, and the kernel's answer is judged. `cargo attacks` shows which layer each refusal comes from.
//!
//! Proves ARC-05, ARC-11, ARC-12, ARC-20, ARC-21 and the kernel's side of ARC-02, ARC-03, ARC-04 and ARC-23.
#![expect(clippy::unwrap_used, reason = "what surprises a test fails it")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;

use coreflow_ipc::confine::{Layer, State};
use coreflow_ipc::sys::{self, Errno, Signal};
use coreflow_tests::attacks::attempts::LEFT_OPEN;
use coreflow_tests::attacks::child::{Answer, BARE, PATIENCE, PULLD, RELAYD, Role, VPND, run, start};
use coreflow_tests::attacks::processes::let_anybody_trace_us;
use coreflow_tests::attacks::refuse_on_this_thread;

const WORKERS: [Role; 3] = [RELAYD, PULLD, VPND];

/// The attempt succeeds bare and gets `refusal` in every worker.
fn refused_in_every_worker(attempt: &str, argument: &str, refusal: Errno) {
    let control = run(BARE, attempt, argument);
    assert!(matches!(control.answer, Answer::Done(_)), "control of {attempt}: {control:?}");
    for role in WORKERS {
        let outcome = run(role, attempt, argument);
        assert_eq!(outcome.answer, Answer::Refused(refusal), "{attempt} in {role:?}: {outcome:?}");
    }
}

fn lethal_in_every_worker(attempt: &str, argument: &str) {
    for role in WORKERS {
        let outcome = run(role, attempt, argument);
        assert_eq!(outcome.answer, Answer::Killed(Signal::SIGSYS), "{attempt} in {role:?}: {outcome:?}");
    }
}

fn loopback_listener() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    (listener, port)
}

/// ARC-21: every layer is on where the kernel has it, and needs no privilege of ours. The limits are those
/// of the profile.
#[test]
fn every_worker_reports_each_layer_once() {
    for role in WORKERS {
        let outcome = run(role, "limits", "");
        let report = outcome.report.clone().expect("a confined child reports");
        let layers: Vec<Layer> = report.layers.iter().map(|layer| layer.layer).collect();
        assert_eq!(
            layers,
            [
                Layer::ParentDeath,
                Layer::NoNewPrivileges,
                Layer::Descriptors,
                Layer::Limits,
                Layer::NotDumpable,
                Layer::WriteExecute,
                Layer::Landlock,
                Layer::Seccomp,
            ]
        );
        for layer in layers {
            // What a kernel lacks has another reason.
            let refused = matches!(outcome.state(layer), State::Absent(why) if why.contains("refused"));
            assert!(!refused, "{layer} in {role:?}: {:?}", outcome.state(layer));
        }
        assert_eq!(outcome.state(Layer::Limits), State::On);
        assert_eq!(outcome.state(Layer::Seccomp), State::On);
        let Answer::Done(limits) = &outcome.answer else { panic!("{outcome:?}") };
        let (_, hard) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
        let files = role.open_files().min(hard);
        assert_eq!(*limits, format!("core 0 of 0, files {files} of {files}"));
    }
}

/// ARC-21: a worker has no capability, whatever its supervisor has. Only root has some to give up.
#[test]
fn a_worker_gives_up_what_its_supervisor_may() {
    assert!(nix::unistd::geteuid().is_root(), "a worker is to lose capabilities: run this test as root");
    let permitted = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let sets = ["CapInh", "CapPrm", "CapEff", "CapAmb"];
        sets.map(|set| {
            let line = status.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(':'));
            u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
        })
    };
    for (role, gives_up) in [(BARE, false), (RELAYD, true), (PULLD, true), (VPND, true)] {
        let mut child = start(role, "serve", "");
        // The length of its report, which it sends once it is confined.
        child.link().read_exact(&mut [0; 2]).unwrap();
        let given_up = permitted(child.pid()) == [0; 4];
        child.kill();
        assert_eq!(given_up, gives_up, "{role:?}");
    }
}

/// ARC-05, ARC-12: no file can be opened, made or even looked at, wherever it is: the credential's neither.
#[test]
fn no_file_can_be_opened_created_or_looked_at() {
    let credential = std::env::temp_dir().join(format!("confinement-credential-{}", std::process::id()));
    std::fs::write(&credential, "a bearer").unwrap();
    let path = credential.to_str().unwrap();
    refused_in_every_worker("open a file", path, Errno::EPERM);
    refused_in_every_worker("look at a file", path, Errno::EPERM);
    refused_in_every_worker("open a file", "/proc/self/environ", Errno::EPERM);
    std::fs::remove_file(&credential).unwrap();

    let made = std::env::temp_dir().join(format!("confinement-made-{}", std::process::id()));
    refused_in_every_worker("create a file", made.to_str().unwrap(), Errno::EPERM);
    std::fs::remove_file(&made).expect("the control made it");
    refused_in_every_worker("make a file in memory", "", Errno::EPERM);
}

/// ARC-03, ARC-21: no worker becomes or starts another program.
#[test]
fn no_program_can_be_executed_and_no_process_forked() {
    let control = run(BARE, "execute", "");
    assert_eq!((&control.answer, control.status.code()), (&Answer::Silent, Some(0)), "{control:?}");
    lethal_in_every_worker("execute", "");
    refused_in_every_worker("fork", "", Errno::EPERM);
    refused_in_every_worker("spawn", "", Errno::EPERM);
}

/// ARC-21: Landlock binds the port of relayd's connects.
#[test]
fn only_the_port_of_the_profile_can_be_dialled() {
    let (_foreign, port) = loopback_listener();
    let control = run(BARE, "connect", &port);
    assert!(matches!(control.answer, Answer::Done(_)), "{control:?}");
    let outcome = run(RELAYD, "connect", &port);
    // Where the kernel lacks the port rules the report says so, and nothing is claimed.
    if outcome.state(Layer::Landlock) == State::On {
        assert_eq!(outcome.answer, Answer::Refused(Errno::EACCES), "{outcome:?}");
    }
    let (_own, port) = loopback_listener();
    let role = RELAYD.dialling(port.parse().unwrap());
    let outcome = run(role, "connect", &port);
    assert!(matches!(outcome.answer, Answer::Done(_)), "{outcome:?}");
    if outcome.state(Layer::Landlock) == State::On {
        assert_eq!(run(role, "dial every port", "").answer, Answer::Done(port));
    }
}

/// ARC-15: pulld and vpnd dial nobody, whatever port they are told of.
#[test]
fn pulld_and_vpnd_dial_nobody() {
    let (_listener, port) = loopback_listener();
    for role in [PULLD, VPND] {
        let outcome = run(role.dialling(port.parse().unwrap()), "connect", &port);
        assert_eq!(outcome.answer, Answer::Refused(Errno::EPERM), "{role:?}: {outcome:?}");
    }
}

/// ARC-11: no worker opens a port or a socket that others could reach, by any family.
#[test]
fn nothing_can_be_bound_or_listened_on_and_no_other_family_opened() {
    for attempt in
        ["bind", "listen without bind", "udp socket", "unix socket", "netlink socket", "udp6 socket"]
    {
        refused_in_every_worker(attempt, "", Errno::EPERM);
    }
    // Packets take a capability, which the attackers have in a network of their own.
    for attempt in ["packet socket", "raw socket"] {
        refused_in_every_worker(attempt, "", Errno::EPERM);
    }
    for attempt in ["mptcp socket", "vsock socket"] {
        let control = run(BARE, attempt, "");
        let absent = [Errno::EAFNOSUPPORT, Errno::EPROTONOSUPPORT, Errno::ENOPROTOOPT];
        let usual = match control.answer {
            Answer::Refused(errno) => absent.contains(&errno),
            Answer::Done(_) => true,
            Answer::Killed(_) | Answer::Silent => false,
        };
        assert!(usual, "the kernel has it, or says that it has not: {control:?}");
        for role in WORKERS {
            let outcome = run(role, attempt, "");
            assert_eq!(outcome.answer, Answer::Refused(Errno::EPERM), "{attempt} in {role:?}: {outcome:?}");
        }
    }
}

/// ARC-21: the gate of 32-bit programs, whose calls have other numbers, leads round no list.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_gate_of_32_bit_programs_is_lethal() {
    let control = run(BARE, "call by the 32-bit gate", "");
    // A kernel without such programs answers with a fault.
    let usual = matches!(control.answer, Answer::Done(_) | Answer::Killed(Signal::SIGSEGV));
    assert!(usual, "{control:?}");
    lethal_in_every_worker("call by the 32-bit gate", "");
}

/// ARC-21: the ways round Landlock's port rule: fast open sends to an address without a connect.
#[test]
fn no_message_opens_a_connection() {
    let (_foreign, port) = loopback_listener();
    let control = run(BARE, "fast open by sendto", &port);
    let usual = matches!(control.answer, Answer::Done(_) | Answer::Refused(Errno::EOPNOTSUPP));
    assert!(usual, "the kernel's own answer, on or off: {control:?}");
    for attempt in ["fast open by sendto", "fast open by sendmsg", "fast open by sendmmsg"] {
        for role in WORKERS {
            let outcome = run(role, attempt, &port);
            assert_eq!(outcome.answer, Answer::Refused(Errno::EPERM), "{attempt} in {role:?}: {outcome:?}");
        }
    }
}

/// ARC-02, ARC-23: a worker has no way into the memory or the descriptors of the process that started it.
#[test]
fn the_supervisors_memory_is_out_of_reach() {
    let secret = *b"a bearer";
    let place = format!("{:x}", secret.as_ptr().addr());
    let_anybody_trace_us();
    let control = run(BARE, "read a process's memory", &place);
    assert_eq!(control.answer, Answer::Done("a bearer".to_owned()), "{control:?}");
    let control = run(BARE, "trace a process", "");
    assert!(matches!(control.answer, Answer::Done(_)), "{control:?}");
    for attempt in ["read a process's memory", "trace a process", "take a descriptor"] {
        lethal_in_every_worker(attempt, &place);
    }
    let memory = format!("/proc/{}/mem", std::process::id());
    refused_in_every_worker("open a file", &memory, Errno::EPERM);
    assert_eq!(&secret, b"a bearer");
}

/// ARC-21: other processes cannot be signalled, opened or limited; a worker's own limits cannot be raised.
#[test]
fn other_processes_cannot_be_touched() {
    for attempt in [
        "signal a process",
        "signal a thread of a process",
        "open a process as a pidfd",
        "read a process's limits",
        "set its own limits",
    ] {
        refused_in_every_worker(attempt, "", Errno::EPERM);
    }
}

/// ARC-21: what no honest worker calls ends it at once.
#[test]
fn namespaces_and_notorious_parts_of_the_kernel_are_lethal() {
    for attempt in ["unshare", "io_uring", "bpf", "keyctl", "userfaultfd", "mount"] {
        lethal_in_every_worker(attempt, "");
    }
}

/// ARC-21: no injected code can be made executable.
#[test]
fn no_memory_becomes_executable() {
    refused_in_every_worker("map executable memory", "", Errno::EPERM);
    refused_in_every_worker("make memory executable", "", Errno::EPERM);
}

/// ARC-21: the system call filter cannot be loosened, nor its sockets be given a filter or an owner.
#[test]
fn the_confinement_is_for_good() {
    for role in WORKERS {
        for attempt in
            ["become dumpable", "load a filter", "attach a socket filter", "own a descriptor's signals"]
        {
            let outcome = run(role, attempt, "");
            assert_eq!(outcome.answer, Answer::Refused(Errno::EPERM), "{attempt} in {role:?}: {outcome:?}");
        }
    }
}

/// ARC-23: not dumpable, and an abort leaves no core.
#[test]
fn a_worker_is_not_dumpable_and_leaves_no_core() {
    assert_eq!(run(BARE, "say whether dumpable", "").answer, Answer::Done("1".to_owned()));
    for role in WORKERS {
        assert_eq!(run(role, "say whether dumpable", "").answer, Answer::Done("0".to_owned()));
        let outcome = run(role, "abort", "");
        assert_eq!(outcome.answer, Answer::Killed(Signal::SIGABRT), "{outcome:?}");
        assert!(!outcome.status.core_dumped());
    }
}

/// ARC-05: a descriptor that was not handed over is closed, whatever it is and however it was left open.
#[test]
fn descriptors_that_were_not_handed_over_are_closed() {
    let (mut writer, reader) = std::os::unix::net::UnixStream::pair().unwrap();
    writer.write_all(b"bearer").unwrap();
    let number = reader.as_raw_fd();
    let inheritable = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty());
    nix::fcntl::fcntl(&reader, inheritable).unwrap();
    for role in WORKERS {
        let outcome = run(role, "read a descriptor", &number.to_string());
        assert_eq!(outcome.answer, Answer::Refused(Errno::EBADF), "{outcome:?}");
    }
    let control = run(BARE, "read a descriptor", &number.to_string());
    assert_eq!(control.answer, Answer::Done("bearer".to_owned()), "{control:?}");
}

/// ARC-05: of descriptors that were left open at every number, those of the link and of the last words stay.
#[test]
fn no_number_of_a_descriptor_is_left_out() {
    let numbers = |end: i32| (0..end).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
    let end = LEFT_OPEN.to_string();
    assert_eq!(run(BARE, "list its descriptors", &end).answer, Answer::Done(numbers(LEFT_OPEN)));
    for role in WORKERS {
        let outcome = run(role, "list its descriptors", &end);
        // The attacker duplicates its link when it is confined, which takes the first number that is free.
        assert_eq!(outcome.answer, Answer::Done(numbers(4)), "{role:?}");
    }
}

/// ARC-20: a worker dies with the process that started it, without a word from anybody.
#[test]
fn a_worker_dies_with_its_supervisor() {
    // The worker is a grandchild: the process between it and us plays the supervisor and is killed.
    let mut orphan = start(BARE, "start a worker and wait", "bare");
    orphan.await_mark();
    assert_eq!(orphan.echo(b'a'), Some(b'a'), "the worker answers");
    orphan.kill();
    assert_eq!(orphan.echo(b'b'), Some(b'b'), "the control outlives its parent");
    drop(orphan);

    let mut orphan = start(BARE, "start a worker and wait", "relayd");
    orphan.await_mark();
    assert_eq!(orphan.echo(b'a'), Some(b'a'), "the worker answers");
    orphan.kill();
    assert_eq!(orphan.echo(b'b'), None, "the link ends with the last process that held it");
}

/// ARC-21: where a service manager or a container refuses the system call filter, no worker goes on without it.
#[test]
fn a_worker_without_its_filter_is_refused() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        let refused = move |role: Role| {
            refuse_on_this_thread(libc::SYS_seccomp, errno);
            run(role, "limits", "")
        };
        for role in WORKERS {
            let outcome = std::thread::spawn(move || refused(role)).join().unwrap();
            assert_eq!(outcome.report, None);
            let Answer::Done(refusal) = &outcome.answer else { panic!("{outcome:?}") };
            assert!(refusal.starts_with("the system call filter was refused"), "{refusal}");
        }
    }
}

/// ARC-20: a worker whose supervisor ended before it could ask for the signal does not start.
#[test]
fn an_orphan_is_not_confined_but_refused() {
    let outcome = run(RELAYD.started_by(1), "limits", "");
    assert_eq!(outcome.report, None);
    let Answer::Done(refusal) = &outcome.answer else { panic!("{outcome:?}") };
    assert!(refusal.starts_with("the supervisor 1 has ended"), "{refusal}");
}

/// ARC-21: a process that has threads is not confined: they would stay free.
#[test]
fn a_process_with_threads_is_refused() {
    for role in WORKERS {
        let outcome = run(role, "work beside a thread", "");
        assert_eq!(outcome.report, None, "{role:?}");
        let Answer::Done(refusal) = &outcome.answer else { panic!("{outcome:?}") };
        assert!(refusal.starts_with("a worker is confined before it starts threads, and 2 run"), "{refusal}");
    }
}

/// ARC-21: what an honest worker does goes on: threads, panics, memory, random numbers, a runtime with
/// timers.
#[test]
fn a_confined_worker_can_work() {
    for role in WORKERS {
        for work in ["threads", "panic", "memory", "random", "runtime", "record"] {
            let outcome = run(role, work, "");
            assert_eq!(outcome.answer, Answer::Done("works".to_owned()), "{work} in {role:?}: {outcome:?}");
            assert!(outcome.status.success(), "{outcome:?}");
        }
    }
    let panicked = run(RELAYD, "panic", "");
    assert!(panicked.last_words.contains("an honest panic"), "{panicked:?}");
}

/// ARC-11, ARC-21: relayd serves on a listener it was handed and makes pairs for others.
#[test]
fn relayd_serves_on_a_listener_it_was_handed() {
    let (listener, port) = loopback_listener();
    let mut worker = start(RELAYD, "serve", "");
    let sent = sys::send_with_descriptors(worker.link().as_fd(), b"l", &[listener.as_fd()]);
    assert_eq!(sent, Ok(1));
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port.parse().unwrap())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"ping").unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"pong");
    let outcome = worker.finish();
    assert_eq!(outcome.answer, Answer::Done("works".to_owned()), "{outcome:?}");
}

/// ARC-10, ARC-12: a pair of stream sockets, which reaches nobody else, and no other Unix socket.
#[test]
fn a_worker_makes_stream_pairs_and_no_other_unix_socket() {
    for role in [RELAYD, PULLD, VPND] {
        assert!(matches!(run(role, "socket pair", "").answer, Answer::Done(_)));
        assert_eq!(run(role, "datagram socket pair", "").answer, Answer::Refused(Errno::EPERM));
    }
}

/// ARC-11, ARC-21: vpnd answers on the UDP socket it was handed, one datagram or many per call, and on no
/// other.
#[test]
fn vpnd_uses_the_socket_it_was_handed_and_no_other() {
    let hub = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let node = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    node.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut worker = start(VPND, "answer datagrams", "");
    sys::send_with_descriptors(worker.link().as_fd(), b"u", &[hub.as_fd()]).unwrap();
    let mut answer = [0; 16];
    for expected in [&b"one"[..], b"many"] {
        node.send_to(expected, hub.local_addr().unwrap()).unwrap();
        let (length, from) = node.recv_from(&mut answer).unwrap();
        assert_eq!((&answer[..length], from), (expected, hub.local_addr().unwrap()));
    }
    let outcome = worker.finish();
    // The worker says what its attempts to connect and to open another socket were answered.
    assert_eq!(outcome.answer, Answer::Done("connect EPERM, udp EPERM, tcp EPERM".to_owned()), "{outcome:?}");
}

/// ARC-05: a descriptor received under the filter works; one that is not wanted is closed there too.
#[test]
fn descriptors_are_received_under_the_filter() {
    for role in WORKERS {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut worker = start(role, "write to what it is handed", "");
        sys::send_with_descriptors(worker.link().as_fd(), b"d", &[theirs.as_fd()]).unwrap();
        drop(OwnedFd::from(theirs));
        let mut bytes = Vec::new();
        ours.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"over here");
        assert_eq!(worker.finish().answer, Answer::Done("works".to_owned()));
    }
}

/// ARC-05: a message with more descriptors than the receiver may have open costs it none of them.
#[test]
fn a_flood_of_descriptors_fills_no_table() {
    let mut worker = start(VPND, "receive more than its limit", "");
    let link = worker.link().as_fd().try_clone_to_owned().unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(VPND.open_files() < 200, "the flood is more than the worker may have open");
    for count in [200, 40, 253, 40] {
        assert_eq!(sys::send_with_descriptors(link.as_fd(), b"f", &vec![file.as_fd(); count]), Ok(1));
    }
    drop(link);
    let outcome = worker.finish();
    assert_eq!(outcome.answer, Answer::Done("works".to_owned()), "{outcome:?}");
}

/// ARC-04, ARC-23: a value taken from the environment is gone from the block the kernel shows.
#[test]
fn a_wiped_variable_is_gone_from_the_process() {
    let control = run(BARE, "look for the variable", "leave");
    assert_eq!(control.answer, Answer::Done("shown".to_owned()), "{control:?}");
    for way in ["take", "wipe"] {
        let outcome = run(BARE, "look for the variable", way);
        assert_eq!(outcome.answer, Answer::Done("gone".to_owned()), "{way}: {outcome:?}");
    }
}
