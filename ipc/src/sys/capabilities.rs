//! The capabilities of the calling thread: seen, and given up for good (ARC-21).
#![expect(unsafe_code, reason = "capget and capset have no safe wrapper in nix")]

use nix::errno::Errno;

/// `_LINUX_CAPABILITY_VERSION_3`: each set in two words of 32 bits.
const VERSION: u32 = 0x2008_0522;

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    /// 0 is the calling thread.
    thread: i32,
}

/// `struct __user_cap_data_struct`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Word {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives up every capability that the calling thread has or could take up again. The ambient set goes with them; the
/// bounding set stays, and gives nothing to a process that may not gain by an exec. A thread that has none makes no
/// further call, so that a service manager's filter may refuse it.
pub fn drop_capabilities() -> Result<(), Errno> {
    if held()? == [Word::default(); 2] {
        return Ok(());
    }
    let (header, none) = (Header { version: VERSION, thread: 0 }, [Word::default(); 2]);
    // SAFETY: the call reads a header and, by its version, two words; both outlive it.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) }).map(drop)
}

fn held() -> Result<[Word; 2], Errno> {
    let (mut header, mut held) = (Header { version: VERSION, thread: 0 }, [Word::default(); 2]);
    // SAFETY: the call may write the header's version and, by its version, writes two words; both outlive it.
    Errno::result(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, held.as_mut_ptr()) })?;
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The five sets of the calling thread, as the kernel shows them.
    fn shown(set: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(':')).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    #[expect(unsafe_code, reason = "prctl and capset take the test's own numbers")]
    fn made_ambient(capability: u32) {
        let header = Header { version: VERSION, thread: 0 };
        let mut held = held().unwrap();
        held[0].inheritable |= 1 << capability;
        // SAFETY: the call reads a header and two words; both outlive it.
        let set = unsafe { libc::syscall(libc::SYS_capset, &raw const header, held.as_ptr()) };
        assert_eq!(set, 0);
        // SAFETY: the call takes numbers only.
        let raised =
            unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, capability, 0, 0) };
        assert_eq!(raised, 0);
    }

    /// ARC-21: what a service's drop-in gives is given up, the ambient set too, and giving up nothing is no fault.
    /// Capabilities are a thread's own, so that the test's other threads keep theirs.
    #[test]
    fn every_capability_is_given_up() {
        /// `CAP_NET_BIND_SERVICE`.
        const BIND: u32 = 10;
        let sets = ["CapInh", "CapPrm", "CapEff", "CapAmb"];
        let dropped = std::thread::spawn(move || {
            assert!(shown("CapEff") & 1 << BIND != 0, "this test gives up a capability: run it as root");
            made_ambient(BIND);
            assert!(sets.iter().all(|set| shown(set) & 1 << BIND != 0));
            assert_eq!((drop_capabilities(), drop_capabilities()), (Ok(()), Ok(())));
            sets.map(shown)
        });
        assert_eq!(dropped.join().unwrap(), [0; 4]);
    }
}
