//! Landlock: every right on files handled with no path allowed, TCP to the profile's ports only, no abstract
//! socket and no signal out of the sandbox (ARC-11, ARC-12, ARC-21).
//!
//! It is the second wall for files and signals and the only one for the port of a `connect`; the families
//! and calls that pass it by (UDP, MPTCP, fast open, sockets with a path) are refused by the system call
//! filter.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, LandlockStatus, NetPort, RestrictionStatus, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};

use super::{Profile, State};

/// The newest rights asked for; a kernel that lacks some enforces the rest.
const NEWEST: ABI = ABI::V10;

/// Restricts the calling thread and all it will start.
pub(super) fn restrict(profile: &Profile) -> State {
    match enforce(profile) {
        Ok(status) => judge(&status.ruleset, status.landlock),
        Err(error) => State::Absent(format!("refused: {error}")),
    }
}

fn enforce(profile: &Profile) -> Result<RestrictionStatus, RulesetError> {
    let mut network = AccessNet::from_all(NEWEST);
    if profile.datagrams {
        // This right counts for sockets that were handed over too, and a datagram's port is its receiver's
        // choice.
        network.remove(AccessNet::ConnectSendUdp);
    }
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(network)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for port in &profile.connect_ports {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    rules.restrict_self()
}

/// What was enforced, by the kernel's own word; best effort alone would be silent about a refusal.
fn judge(ruleset: &RulesetStatus, landlock: LandlockStatus) -> State {
    let abi = match landlock {
        LandlockStatus::NotImplemented => {
            return State::Absent("the kernel has no Landlock, or its calls are filtered".to_owned());
        }
        LandlockStatus::NotEnabled => {
            return State::Absent("Landlock is switched off at boot (lsm=)".to_owned());
        }
        LandlockStatus::Available { effective_abi, .. } => effective_abi,
    };
    if *ruleset == RulesetStatus::NotEnforced {
        return State::Absent("refused although the kernel has Landlock".to_owned());
    }
    match abi {
        ABI::Unsupported => State::Absent("refused although the kernel has Landlock".to_owned()),
        ABI::V1 | ABI::V2 => State::Partly(
            "files only, and not the cutting of one (Linux 6.2): no port of a connect is checked (6.7), no scope (6.12)"
                .to_owned(),
        ),
        ABI::V3 => State::Partly(
            "files only: no port of a connect is checked (Linux 6.7), no scope (6.12)".to_owned(),
        ),
        ABI::V4 | ABI::V5 => {
            State::Partly("no scope of signals and abstract sockets (Linux 6.12)".to_owned())
        }
        // ABI 6 holds all that this layer promises; what newer ones add is refused by the system call filter.
        _ => State::On,
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::confine::refuse_on_this_thread;

    fn available(effective_abi: ABI) -> LandlockStatus {
        LandlockStatus::Available { effective_abi, kernel_abi: None }
    }

    #[test]
    fn a_kernel_with_scopes_and_ports_is_on() {
        for abi in [ABI::V6, ABI::V7, ABI::V10] {
            assert_eq!(judge(&RulesetStatus::PartiallyEnforced, available(abi)), State::On);
        }
        assert_eq!(judge(&RulesetStatus::FullyEnforced, available(ABI::V10)), State::On);
    }

    #[test]
    fn an_older_kernel_is_partly_on_and_says_what_is_missing() {
        for (abi, missing) in
            [(ABI::V2, "files only, and not the cutting"), (ABI::V3, "files only: "), (ABI::V5, "no scope")]
        {
            let State::Partly(text) = judge(&RulesetStatus::PartiallyEnforced, available(abi)) else {
                panic!("{abi:?} is partly on");
            };
            assert!(text.starts_with(missing), "{text}");
        }
    }

    #[test]
    fn a_refusal_behind_best_effort_is_not_taken_for_a_sandbox() {
        for (ruleset, status) in [
            (RulesetStatus::NotEnforced, available(ABI::V7)),
            (RulesetStatus::NotEnforced, LandlockStatus::NotImplemented),
            (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled),
        ] {
            assert!(matches!(judge(&ruleset, status), State::Absent(_)));
        }
    }

    /// What Landlock alone answers to a file, a foreign abstract socket, a signal to another process and a
    /// foreign port.
    fn attempts(abstract_name: &str, process: u32, port: u16) -> [Result<(), i32>; 4] {
        let address = SocketAddr::from_abstract_name(abstract_name).unwrap();
        let process = nix::unistd::Pid::from_raw(process.cast_signed());
        let raw = |error: std::io::Error| error.raw_os_error().unwrap();
        [
            std::fs::File::open("/proc/self/status").map(drop).map_err(raw),
            UnixStream::connect_addr(&address).map(drop).map_err(raw),
            nix::sys::signal::kill(process, None).map_err(|errno| errno as i32),
            std::net::TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(raw),
        ]
    }

    /// ARC-11, ARC-12, ARC-21: each right that a state of `On` claims is refused by this layer by itself,
    /// without the system call filter. Landlock binds a thread, so the test's own thread is the control.
    #[test]
    fn what_is_claimed_is_refused_by_this_layer_alone() {
        let name = format!("coreflow-landlock-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _abstract = UnixListener::bind_addr(&address).unwrap();
        let mut other = Command::new("/bin/cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = other.id();
        let tcp = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = tcp.local_addr().unwrap().port();
        let under = |profile: Profile| {
            let name = name.clone();
            std::thread::spawn(move || (restrict(&profile), attempts(&name, process, port))).join().unwrap()
        };
        assert_eq!(attempts(&name, process, port), [Ok(()); 4]);
        let (state, foreign) = under(Profile::relayd(port.wrapping_add(1)));
        let (_, own) = under(Profile::relayd(port));
        drop(other.stdin.take());
        assert!(other.wait().unwrap().success());

        let denied = Err(libc::EACCES);
        let (files, scopes, ports) = match &state {
            State::On => (denied, Err(libc::EPERM), denied),
            State::Partly(text) if text.starts_with("no scope") => (denied, Ok(()), denied),
            State::Partly(_) => (denied, Ok(()), Ok(())),
            State::Absent(_) => (Ok(()), Ok(()), Ok(())),
        };
        assert_eq!(foreign, [files, scopes, scopes, ports], "as {state:?} claims");
        assert_eq!(own, [files, scopes, scopes, Ok(())]);
    }

    /// ARC-21: a service manager's filter that lacks Landlock's calls is seen and said, whatever it answers.
    #[test]
    fn filtered_calls_are_reported_as_an_absent_layer() {
        for (call, errno) in [
            (libc::SYS_landlock_create_ruleset, libc::EPERM),
            (libc::SYS_landlock_create_ruleset, libc::ENOSYS),
            (libc::SYS_landlock_restrict_self, libc::EPERM),
        ] {
            let state = std::thread::spawn(move || {
                refuse_on_this_thread(call, errno);
                restrict(&Profile::vpnd())
            });
            let state = state.join().unwrap();
            assert!(matches!(state, State::Absent(_)), "{call} answered with {errno}: {state:?}");
        }
    }
}
