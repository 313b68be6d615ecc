//! ARC-21, ARC-23 and the kernel's side of ARC-02, ARC-05, ARC-11, ARC-12, ARC-15: the table of attacks.

use std::process::Command;

/// ARC-02, ARC-05, ARC-11, ARC-12, ARC-15, ARC-21, ARC-23: every attack succeeds bare, fails in each worker's profile,
/// by each layer that is named for it alone, and by no other.
#[test]
fn every_attack_fails_by_what_it_is_said_to_fail_by() {
    let made = Command::new(env!("CARGO_BIN_EXE_coreflow-attacks")).output().expect("it can be executed");
    let (table, faults) = (String::from_utf8_lossy(&made.stdout), String::from_utf8_lossy(&made.stderr));
    assert!(made.status.success(), "{table}\n{faults}");
    let rows = table.lines().filter(|line| line.contains("  succeeds  ")).count();
    assert!(rows > 90, "only {rows} controls have succeeded:\n{table}");
}
