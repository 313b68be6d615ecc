//! What the relay's processes hold, as the kernel counts it: descriptors, threads, private memory, and
//! children that ended and were not reaped.

use std::collections::BTreeMap;
use std::fs;

use crate::processes::workers_of;

/// One process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Its id.
    pub pid: u32,
    /// Its open descriptors; `None` where the kernel does not show them to this user.
    pub descriptors: Option<usize>,
    /// Its threads.
    pub threads: usize,
    /// Its private memory, in bytes: what it would free by ending.
    pub private: u64,
}

/// Every process of the relay at one moment, by name.
pub type Census = BTreeMap<String, Holding>;

/// Counts the supervisor and its workers. A process that ends meanwhile is left out.
pub fn take(supervisor: u32) -> Census {
    let mut processes = workers_of(supervisor);
    processes.insert("supervisor".to_owned(), supervisor);
    processes.into_iter().filter_map(|(name, pid)| Some((name, holding(pid)?))).collect()
}

fn holding(pid: u32) -> Option<Holding> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = |text: &str, key: &str| -> Option<u64> {
        let value = text.lines().find_map(|line| line.strip_prefix(key))?;
        value.split_whitespace().next()?.parse().ok()
    };
    let threads = usize::try_from(number(&status, "Threads:")?).ok()?;
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok().map(Iterator::count);
    // The exact count needs the right to look into the process; the kernel's running one is shown to all.
    // Pages of the executable are left out: they are dirty while it is newly written.
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let exact = number(&rollup, "Anonymous:").zip(number(&rollup, "Swap:"));
    let (anonymous, swapped) = exact
        .filter(|(anonymous, _)| *anonymous > 0)
        .or_else(|| number(&status, "RssAnon:").zip(number(&status, "VmSwap:")))?;
    let private = (anonymous + swapped) * 1024;
    Some(Holding { pid, descriptors, threads, private })
}

/// The children of `parent` that ended and were not reaped.
pub fn zombies_of(parent: u32) -> Vec<u32> {
    let stats = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let (state, of) = (fields.next()?, fields.next()?.parse::<u32>().ok()?);
        (state == "Z" && of == parent).then_some(pid)
    });
    stats.collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// The own process has what it just opened, and a child is a zombie until it is reaped. Half of it has to
    /// show: the tests beside this one close and free meanwhile.
    #[test]
    fn descriptors_memory_and_zombies_are_counted() {
        let before = holding(std::process::id()).unwrap();
        let opened: Vec<fs::File> = (0..400).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        let filled = vec![1_u8; 64 << 20];
        let after = holding(std::process::id()).unwrap();
        assert!(after.descriptors.unwrap() >= before.descriptors.unwrap() + opened.len() / 2);
        assert!(after.private >= before.private + (32 << 20), "{} bytes", filled.len());
        assert!(after.threads >= 1);

        let mut child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
        // Its pipe ends with it.
        child.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
        let is_zombie = || zombies_of(std::process::id()).contains(&child.id());
        assert!((0..1_000_000).any(|_| is_zombie()), "an ended child");
        child.wait().unwrap();
        assert!(!zombies_of(std::process::id()).contains(&child.id()));
    }
}
