//! What a relay's processes cost, as the kernel counts it: CPU time and resident memory, summed over all of
//! them.

use std::fs::read_to_string;
use std::time::Duration;

/// Ticks per second of the CPU times in `/proc`, fixed by the kernel's interface.
const USER_HZ: u32 = 100;

/// CPU time that the processes have used, user and system.
///
/// # Errors
/// The process that is gone.
pub fn cpu(processes: &[u32]) -> Result<Duration, String> {
    let ticks = |pid: &u32| {
        let stat = read_to_string(format!("/proc/{pid}/stat")).ok()?;
        ticks_of(&stat)
    };
    let sum = |total: u32, pid: &u32| Some(total + ticks(pid)?);
    let ticks = processes.iter().try_fold(0, sum).ok_or("a process of the relay is gone")?;
    Ok(Duration::from_secs(1) * ticks / USER_HZ)
}

/// `utime` and `stime` of `/proc/<pid>/stat`, the 14th and 15th field.
fn ticks_of(stat: &str) -> Option<u32> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u32>().ok();
    Some(next()? + next()?)
}

/// Resident memory of the processes in bytes. What several map is shared out among them; where the kernel does
/// not tell that (it takes the right to trace them), each counts it whole.
///
/// # Errors
/// The process that is gone.
pub fn memory(processes: &[u32]) -> Result<u64, String> {
    let of = |pid: &u32| {
        let shared_out = read_to_string(format!("/proc/{pid}/smaps_rollup")).ok();
        let shared_out = shared_out.and_then(|text| kibibytes(&text, "Pss:"));
        shared_out.or_else(|| kibibytes(&read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS:"))
    };
    let sum = |total: u64, pid: &u32| Some(total + of(pid)?);
    let kibibytes = processes.iter().try_fold(0, sum).ok_or("a process of the relay is gone")?;
    Ok(kibibytes << 10)
}

fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name with spaces and parentheses shifts no field.
    #[test]
    fn the_times_are_found_behind_any_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 100 0 0 0 31 11 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks_of(stat), Some(42));
    }

    /// This process has used some of both, and one that never was has none.
    #[test]
    fn this_process_costs_something() {
        let own = [std::process::id()];
        assert!(memory(&own).unwrap() > 1 << 20);
        assert!(cpu(&own).unwrap() < Duration::from_secs(3600));
        assert!(cpu(&[u32::MAX]).is_err() && memory(&[u32::MAX]).is_err());
    }
}
