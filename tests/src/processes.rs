//! The process table, as far as a test looks into it.

use std::collections::BTreeMap;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The living children of `parent` that are relay workers, by role (`relayd`, `pulld`, `vpnd`).
pub fn workers_of(parent: u32) -> BTreeMap<String, u32> {
    let mut workers = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if parent_of(pid) != Some(parent) {
            continue;
        }
        if let Some(role) = name_of(pid).and_then(|name| name.strip_prefix("coreflow-").map(str::to_owned)) {
            // In a host release the hub's executable has the contract's name.
            workers.insert(if role == "vpn" { "vpnd".to_owned() } else { role }, pid);
        }
    }
    workers
}

/// Whether `pid` is a process that still runs; one that only waits to be reaped does not.
pub fn is_alive(pid: u32) -> bool {
    parent_of(pid).is_some()
}

/// Sends a process a signal; one that is gone gets none.
///
/// # Panics
/// When `pid` is no process id.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process id fits"));
    // A process that is gone is what a killer wants.
    let _ = kill(pid, signal);
}

/// The parent of a running process; `None` for one that is gone or only waits to be reaped.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself hold spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.next()?.parse().ok()
}

/// The name of the executable; where the kernel hides that, the first argument's.
fn name_of(pid: u32) -> Option<String> {
    let base = |path: &str| {
        let path = path.trim_end_matches(" (deleted)");
        Path::new(path).file_name().and_then(|name| name.to_str()).map(str::to_owned)
    };
    if let Ok(path) = std::fs::read_link(format!("/proc/{pid}/exe")) {
        return base(path.to_str()?);
    }
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    base(std::str::from_utf8(arguments.split(|byte| *byte == 0).next()?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child is seen while it runs and not as a zombie; other children are no workers.
    #[test]
    fn a_child_is_seen_while_it_runs() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert_eq!(parent_of(child.id()), Some(std::process::id()));
        assert!(is_alive(child.id()));
        assert_eq!(workers_of(std::process::id()), BTreeMap::new());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_alive(child.id()));
    }
}
