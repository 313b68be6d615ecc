//! The calls a worker needs: a multi-threaded tokio runtime, TLS, the allocator and the end of a process,
//! and what its profile adds.

use seccompiler::{BackendError, SeccompRule};

use super::Rules;
use super::rule::{all, bits, is, is_not, null};
use crate::confine::Profile;
use crate::sys::SO_PASSRIGHTS;

/// Allowed whatever the arguments: they reach nothing but this process and the descriptors it holds.
const ALWAYS: &[i64] = &[
    // Memory, together with `mmap` and `mprotect` below.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Threads and their waiting.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_membarrier,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals to itself, and calls they interrupted.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Clocks, random numbers, the kernel's version.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_uname,
    // Readiness.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    // Bytes and descriptors on what is open.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_shutdown,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
];

/// The same, in the older forms that only x86_64 has.
#[cfg(target_arch = "x86_64")]
const ALWAYS_HERE: &[i64] = &[libc::SYS_epoll_wait, libc::SYS_poll];
#[cfg(target_arch = "aarch64")]
const ALWAYS_HERE: &[i64] = &[];

/// What may be asked of or changed about a descriptor. `F_SETOWN` is not among it: it directs signals at
/// others.
const FCNTL: &[i32] = &[libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL];

/// The options of a stream socket that are set: never a filter, an own device or another protocol on top.
const STREAM_OPTIONS: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, SO_PASSRIGHTS),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_QUICKACK),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
];

/// The options of a datagram socket that QUIC sets: segmentation, path MTU, ECN and the local address of a
/// packet.
const DATAGRAM_OPTIONS: &[(i32, i32)] = &[
    (libc::IPPROTO_IP, libc::IP_RECVTOS),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG),
    (libc::SOL_UDP, libc::UDP_SEGMENT),
    (libc::SOL_UDP, libc::UDP_GRO),
];

/// The bits of a socket's type that are not flags such as `SOCK_CLOEXEC` (`SOCK_TYPE_MASK` of the kernel).
const SOCKET_TYPE: i32 = 0xf;

/// Everything a thread must not be born with: namespaces of its own.
const NAMESPACES: i32 = libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS;

/// All that `profile` may call.
pub(super) fn rules(profile: &Profile) -> Result<Rules, BackendError> {
    let mut rules: Rules = ALWAYS.iter().chain(ALWAYS_HERE).map(|call| (*call, Vec::new())).collect();
    // Answered with ENOSYS by a program of its own; a second verdict here would hide that one.
    rules.insert(libc::SYS_clone3, Vec::new());
    rules.insert(libc::SYS_clone, vec![all([bits(0, libc::CLONE_THREAD | NAMESPACES, libc::CLONE_THREAD)])?]);
    rules.insert(libc::SYS_mmap, vec![all([bits(2, libc::PROT_EXEC, 0)])?]);
    rules.insert(libc::SYS_mprotect, vec![all([bits(2, libc::PROT_EXEC, 0)])?]);
    rules.insert(libc::SYS_tgkill, vec![all([is(0, own_pid())])?]);
    rules.insert(libc::SYS_prlimit64, vec![all([is(0, 0), null(2)])?]);
    rules.insert(
        libc::SYS_fcntl,
        FCNTL.iter().map(|command| all([is(1, *command)])).collect::<Result<_, _>>()?,
    );
    rules.insert(libc::SYS_ioctl, vec![all([is(1, FIONBIO)])?]);
    rules.insert(
        libc::SYS_prctl,
        vec![all([is(0, libc::PR_SET_NAME)])?, all([is(0, libc::PR_GET_DUMPABLE)])?],
    );
    rules.insert(libc::SYS_sendto, vec![all([bits(3, libc::MSG_FASTOPEN, 0)])?]);
    rules.insert(libc::SYS_sendmsg, vec![all([bits(2, libc::MSG_FASTOPEN, 0)])?]);
    rules.insert(libc::SYS_setsockopt, options(profile)?);
    // Any option but the one that makes a descriptor of the process at the other end, which made the link.
    rules.insert(
        libc::SYS_getsockopt,
        vec![all([is_not(1, libc::SOL_SOCKET)])?, all([is_not(2, libc::SO_PEERPIDFD)])?],
    );
    add_profile(&mut rules, profile)?;
    Ok(rules)
}

fn add_profile(rules: &mut Rules, profile: &Profile) -> Result<(), BackendError> {
    if !profile.connect_ports.is_empty() {
        rules.insert(libc::SYS_socket, tcp_sockets()?);
        // To which port is Landlock's; a filter cannot read an address.
        rules.insert(libc::SYS_connect, Vec::new());
    }
    if profile.accepts {
        rules.insert(libc::SYS_accept4, Vec::new());
    }
    if profile.socket_pairs {
        let stream = bits(1, SOCKET_TYPE, libc::SOCK_STREAM);
        rules.insert(libc::SYS_socketpair, vec![all([is(0, libc::AF_UNIX), stream])?]);
    }
    if profile.datagrams {
        rules.insert(libc::SYS_recvmmsg, Vec::new());
        rules.insert(libc::SYS_sendmmsg, vec![all([bits(3, libc::MSG_FASTOPEN, 0)])?]);
    }
    Ok(())
}

/// TCP over either internet protocol, and not MPTCP, whose connections Landlock does not see.
fn tcp_sockets() -> Result<Vec<SeccompRule>, BackendError> {
    let mut sockets = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        for protocol in [libc::IPPROTO_IP, libc::IPPROTO_TCP] {
            let stream = bits(1, SOCKET_TYPE, libc::SOCK_STREAM);
            sockets.push(all([is(0, family), stream, is(2, protocol)])?);
        }
    }
    Ok(sockets)
}

fn options(profile: &Profile) -> Result<Vec<SeccompRule>, BackendError> {
    let datagram = if profile.datagrams { DATAGRAM_OPTIONS } else { &[] };
    STREAM_OPTIONS
        .iter()
        .chain(datagram)
        .map(|(level, option)| all([is(1, *level), is(2, *option)]))
        .collect()
}

/// The number of `FIONBIO`, by which the standard library makes a socket non-blocking.
const FIONBIO: i32 = 0x5421;

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ARC-11, ARC-12: no profile holds a call that opens a file, executes, binds or listens.
    #[test]
    fn no_profile_opens_executes_binds_or_listens() {
        let refused = [
            libc::SYS_openat,
            libc::SYS_openat2,
            libc::SYS_execve,
            libc::SYS_bind,
            libc::SYS_listen,
            libc::SYS_kill,
            libc::SYS_seccomp,
            libc::SYS_memfd_create,
        ];
        for profile in [Profile::relayd(443), Profile::pulld(), Profile::vpnd()] {
            let rules = rules(&profile).unwrap();
            assert!(refused.iter().all(|call| !rules.contains_key(call)), "{}", profile.worker);
        }
    }

    #[test]
    fn a_profile_adds_what_it_names_and_no_more() {
        let added = |profile: &Profile| {
            let rules = rules(profile).unwrap();
            [
                libc::SYS_socket,
                libc::SYS_connect,
                libc::SYS_accept4,
                libc::SYS_socketpair,
                libc::SYS_recvmmsg,
                libc::SYS_sendmmsg,
            ]
            .map(|call| rules.contains_key(&call))
        };
        assert_eq!(added(&Profile::relayd(443)), [true, true, true, true, false, false]);
        assert_eq!(added(&Profile::pulld()), [false, false, false, true, false, false]);
        assert_eq!(added(&Profile::vpnd()), [false, false, false, true, true, true]);
    }
}
