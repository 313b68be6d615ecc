//! Every system call, asked of each worker's loaded filter: which are allowed, which end the process, and with which
//! arguments. The lists here are written from the model of isolation and not taken from the filter's own, so that a
//! call more, a call less or a condition loosened is a difference between two places.
//!
//! Holds the kernel's side of ARC-11, ARC-12 and ARC-21.

use std::collections::BTreeSet;

use coreflow_ipc::sys::Signal;
use coreflow_tests::attacks::child::{Answer, BARE, PULLD, RELAYD, Role, VPND};
use coreflow_tests::attacks::filter::{ONES, allowed};

const WORKERS: [Role; 3] = [RELAYD, PULLD, VPND];

/// The numbers that there are, with room for those of kernels to come.
const NUMBERS: u64 = 1023;

/// `uretprobe` and `uprobe`, by which the kernel returns from a probe that it has set itself. It asks no filter about
/// them, and whoever calls them from elsewhere gets `SIGILL`.
#[cfg(target_arch = "x86_64")]
const KERNELS_OWN: &[u64] = &[335, 336];
#[cfg(not(target_arch = "x86_64"))]
const KERNELS_OWN: &[u64] = &[];

/// Allowed to every worker, whatever the arguments.
const ANY_ARGUMENT: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    // Answered `ENOSYS` by the worker's first filter, which a question cannot tell from its own answer.
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpeername,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_uname,
    libc::SYS_write,
    libc::SYS_writev,
];

/// What ends the process that calls it.
const LETHAL: &[i64] = &[
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_delete_module,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_finit_module,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

fn set(numbers: impl IntoIterator<Item = i64>) -> BTreeSet<u64> {
    numbers.into_iter().map(|number| number.cast_unsigned()).collect()
}

/// Asks about `call` with `arguments`, of which the rest are all ones.
fn with(role: Role, call: i64, arguments: &[&str]) -> BTreeSet<Vec<u64>> {
    let ones = ONES.to_string();
    let rest = std::iter::repeat_n(ones.as_str(), 5 - arguments.len());
    let places: Vec<&str> = arguments.iter().copied().chain(rest).collect();
    let allowed = allowed(role, &format!("{call} {}", places.join(" ")));
    allowed.unwrap_or_else(|ended| panic!("call {call} in {role:?}: {ended:?}")).into_iter().collect()
}

/// The same where one argument varies.
fn with_one(role: Role, call: i64, arguments: &[&str]) -> BTreeSet<u64> {
    with(role, call, arguments).into_iter().flatten().collect()
}

/// Every number but the lethal ones, with five arguments of `argument`.
fn of_all_numbers(role: Role, argument: u64) -> BTreeSet<u64> {
    let lethal = set(LETHAL.iter().copied());
    let numbers = (0..=NUMBERS).filter(|number| !lethal.contains(number) && !KERNELS_OWN.contains(number));
    let numbers = numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let question = format!("{numbers}{}", format!(" {argument}").repeat(5));
    let allowed = allowed(role, &question);
    let allowed =
        allowed.unwrap_or_else(|ended| panic!("a call beside the lethal ones ends {role:?}: {ended:?}"));
    allowed.into_iter().flatten().collect()
}

/// ARC-11, ARC-12, ARC-21: the calls of each worker are these and no other. Without a filter every one is allowed.
#[test]
fn each_worker_has_its_calls_and_no_other() {
    assert_eq!(of_all_numbers(BARE, ONES).len(), 1024 - LETHAL.len() - KERNELS_OWN.len());
    for (role, with_any, with_zeros) in [
        (RELAYD, &[libc::SYS_connect, libc::SYS_accept4][..], &[][..]),
        (PULLD, &[], &[]),
        (VPND, &[libc::SYS_recvmmsg], &[libc::SYS_sendmmsg]),
    ] {
        // The last one refuses a single option, whose number is neither all ones nor zero.
        let any = ANY_ARGUMENT.iter().chain(with_any).copied().chain([libc::SYS_getsockopt]);
        assert_eq!(of_all_numbers(role, ONES), set(any.clone()), "{role:?}, arguments of ones");
        let zeros =
            [libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_prlimit64, libc::SYS_sendmsg, libc::SYS_sendto];
        let zeros = any.chain(zeros).chain(with_zeros.iter().copied());
        assert_eq!(of_all_numbers(role, 0), set(zeros), "{role:?}, arguments of zero");
    }
}

/// ARC-21: a number of x86_64's second ABI is no way round the lists.
#[cfg(target_arch = "x86_64")]
#[test]
fn no_call_has_a_second_number() {
    /// The bit that makes a number one of that ABI.
    const X32: u64 = 0x4000_0000;
    for role in WORKERS {
        for argument in [ONES, 0] {
            let question = format!("{X32}-{}{}", X32 + NUMBERS, format!(" {argument}").repeat(5));
            assert_eq!(allowed(role, &question), Ok(Vec::new()), "{role:?}");
        }
    }
}

/// ARC-21: each call that no honest worker makes ends it.
#[test]
fn each_lethal_call_ends_the_worker() {
    for call in LETHAL {
        let question = format!("{call} 0 0 0 0 0");
        assert_eq!(allowed(BARE, &question), Ok(vec![Vec::new()]), "call {call}");
        for role in WORKERS {
            assert_eq!(
                allowed(role, &question),
                Err(Answer::Killed(Signal::SIGSYS)),
                "call {call} in {role:?}"
            );
        }
    }
}

fn bits_but(refused: &[i32]) -> BTreeSet<u64> {
    let refused: BTreeSet<u64> = refused.iter().map(|bit| u64::from(bit.cast_unsigned())).collect();
    bits().into_iter().filter(|bit| !refused.contains(bit)).collect()
}

fn bits() -> Vec<u64> {
    (0..32).map(|bit| 1 << bit).collect()
}

fn listed(values: impl IntoIterator<Item = u64>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(",")
}

/// ARC-12, ARC-21: no executable memory, no process and no namespace by a thread's call, no limit and no signal of
/// others.
#[test]
fn memory_threads_limits_and_signals_are_a_workers_own() {
    let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
    let namespaces = [
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWUTS,
    ];
    for role in WORKERS {
        for call in [libc::SYS_mmap, libc::SYS_mprotect] {
            assert_eq!(with_one(role, call, &["0", "0", "0-15"]), (0..=15).filter(|p| p & 4 == 0).collect());
        }
        assert_eq!(with_one(role, libc::SYS_clone, &[&listed(bits())]), [thread].into());
        let threads = with_one(role, libc::SYS_clone, &[&listed(bits().into_iter().map(|bit| bit | thread))]);
        let expected = bits_but(&namespaces).into_iter().map(|bit| bit | thread).collect();
        assert_eq!(threads, expected, "{role:?}");
        let limits = with(role, libc::SYS_prlimit64, &["0,1,own", "0-15", "0,1,4294967296"]);
        assert_eq!(limits, (0..=15).map(|resource| vec![0, resource, 0]).collect(), "{role:?}");
        let strangers = with(role, libc::SYS_tgkill, &[&format!("0-9,{}", std::process::id())]);
        assert_eq!(strangers, BTreeSet::new(), "{role:?}");
        assert_eq!(with(role, libc::SYS_tgkill, &["own"]).len(), 1, "{role:?}");
    }
}

/// ARC-21: of the calls that do many things, those that a worker needs.
#[test]
fn calls_of_many_commands_have_few() {
    let prctl = format!("0-2047,{},{}", libc::PR_SET_PTRACER, libc::PR_SET_VMA);
    for role in WORKERS {
        let commands = [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL]
            .map(i64::from);
        assert_eq!(with_one(role, libc::SYS_fcntl, &["0", "0-2047"]), set(commands), "{role:?}");
        // Whether a descriptor blocks.
        assert_eq!(with_one(role, libc::SYS_ioctl, &["0", "0-65535"]), [0x5421].into(), "{role:?}");
        let options = [libc::PR_SET_NAME, libc::PR_GET_DUMPABLE].map(i64::from);
        assert_eq!(with_one(role, libc::SYS_prctl, &[&prctl]), set(options), "{role:?}");
    }
}

/// ARC-11, ARC-21: sockets of the families, kinds and protocols that a worker needs, options among them, and no
/// connection by a message.
#[test]
fn sockets_are_made_set_and_used_as_the_profile_says() {
    let (stream, inet, inet6, unix) = (1, 2, 10, 1);
    for role in WORKERS {
        let protocols = "0,1,6,17,58,132,136,255,262";
        let sockets = with(role, libc::SYS_socket, &["0-63", "0-15", protocols]);
        let tcp =
            [vec![inet, stream, 0], vec![inet, stream, 6], vec![inet6, stream, 0], vec![inet6, stream, 6]];
        assert_eq!(sockets, if role == RELAYD { tcp.into() } else { BTreeSet::new() }, "{role:?}");
        let pairs = with(role, libc::SYS_socketpair, &["0-63", "0-15"]);
        assert_eq!(pairs, [vec![unix, stream]].into(), "{role:?}");
        let plain = bits_but(&[libc::MSG_FASTOPEN]);
        let bits = listed(bits());
        assert_eq!(with_one(role, libc::SYS_sendto, &["0", "0", "0", &bits]), plain, "{role:?}");
        assert_eq!(with_one(role, libc::SYS_sendmsg, &["0", "0", &bits]), plain, "{role:?}");
        let many = with_one(role, libc::SYS_sendmmsg, &["0", "0", "0", &bits]);
        assert_eq!(many, if role == VPND { plain } else { BTreeSet::new() }, "{role:?}");

        let mut options = BTreeSet::from(STREAM_OPTIONS.map(|(level, option)| vec![level, option]));
        if role == VPND {
            options.extend(DATAGRAM_OPTIONS.map(|(level, option)| vec![level, option]));
        }
        assert_eq!(with(role, libc::SYS_setsockopt, &["0", "0-299", "0-127"]), options, "{role:?}");
        // The process at the other end (`SO_PEERPIDFD`).
        let asked = with_one(role, libc::SYS_getsockopt, &["0", "1", "0-127"]);
        assert_eq!(asked, (0..=127).filter(|option| *option != 77).collect(), "{role:?}");
    }
}

/// By level and option: `SO_KEEPALIVE`, `SO_LINGER`, `SO_RCVBUF`, `SO_SNDBUF` and `SO_PASSRIGHTS`; `TCP_NODELAY`,
/// `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`, `TCP_QUICKACK`, `TCP_USER_TIMEOUT` and `TCP_NOTSENT_LOWAT`.
const STREAM_OPTIONS: [(u64, u64); 12] =
    [(1, 9), (1, 13), (1, 8), (1, 7), (1, 83), (6, 1), (6, 4), (6, 5), (6, 6), (6, 12), (6, 18), (6, 25)];

/// `IP_TOS`, `IP_PKTINFO`, `IP_MTU_DISCOVER` and `IP_RECVTOS`; `IPV6_MTU_DISCOVER`, `IPV6_RECVPKTINFO`,
/// `IPV6_DONTFRAG`, `IPV6_RECVTCLASS` and `IPV6_TCLASS`; `UDP_SEGMENT` and `UDP_GRO`.
const DATAGRAM_OPTIONS: [(u64, u64); 11] = [
    (0, 1),
    (0, 8),
    (0, 10),
    (0, 13),
    (41, 23),
    (41, 49),
    (41, 62),
    (41, 66),
    (41, 67),
    (17, 103),
    (17, 104),
];
