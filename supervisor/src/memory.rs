//! The memory of a process as `/proc` tells it, as far as whoever asks may read that: of another user's process the
//! unit's `ProtectProc=` hides all, and the proportional size is for root alone.

use crate::status::Memory;

/// The memory of the process `pid`; none where it cannot be read at all.
pub fn of_process(pid: u32, proportional: bool) -> Option<Memory> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten()?;
    let resident_bytes = resident_pages(&statm)?.saturating_mul(u64::try_from(page).ok()?);
    let rollup = || std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok();
    let proportional_bytes = if proportional { rollup().as_deref().and_then(proportional_of) } else { None };
    Some(Memory { resident_bytes, proportional_bytes })
}

/// The second number of `statm`.
fn resident_pages(statm: &str) -> Option<u64> {
    statm.split_whitespace().nth(1)?.parse().ok()
}

/// The line `Pss:` of `smaps_rollup`, in bytes.
fn proportional_of(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's two forms are read; what has another form is unknown, and never zero.
    #[test]
    fn the_kernels_forms_are_read() {
        assert_eq!(resident_pages("1000 250 100 7 0 300 0\n"), Some(250));
        assert_eq!((resident_pages(""), resident_pages("7 x")), (None, None));
        let rollup =
            "55d0-7ffc ---p 00000000 00:00 0 [rollup]\nRss:  9216 kB\nPss:    3532 kB\nPss_Dirty: 1 kB\n";
        assert_eq!(proportional_of(rollup), Some(3532 * 1024));
        assert_eq!((proportional_of("Pss: many kB"), proportional_of("")), (None, None));
    }

    /// Of this very process both are there, and a process that is none has neither.
    #[test]
    fn a_process_has_its_memory_and_none_has_none() {
        let own = of_process(std::process::id(), true).unwrap();
        let proportional = own.proportional_bytes.unwrap();
        assert!(own.resident_bytes > 1 << 20 && proportional > 1 << 19, "{own:?}");
        assert_eq!(of_process(std::process::id(), false).unwrap().proportional_bytes, None);
        assert_eq!(of_process(0, true), None);
    }
}
