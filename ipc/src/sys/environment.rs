//! The environment block a process was started with: a value is taken from it and overwritten where it lies,
//! so that neither `/proc/self/environ` nor a later child shows it (ARC-04, ARC-23).
#![expect(unsafe_code, reason = "the environment block is reached through a raw pointer")]

use std::ffi::{CStr, c_char};
use std::fmt;

use zeroize::Zeroize as _;

/// Why a variable was left as it is. Never carries a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvironmentError {
    /// The process has more than one thread; another could be reading the block.
    Threads(usize),
    /// The number of threads cannot be read from `/proc/self/task`.
    ThreadsUnknown,
    /// The name is empty or holds `=` or a zero byte, which no variable's does.
    Name,
}

impl fmt::Display for EnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads(count) => {
                write!(f, "the environment can be wiped by a single thread only, and {count} run")
            }
            Self::ThreadsUnknown => f.write_str("the number of threads cannot be read from /proc/self/task"),
            Self::Name => {
                f.write_str("an environment variable's name is not empty and holds neither `=` nor NUL")
            }
        }
    }
}

impl std::error::Error for EnvironmentError {}

/// Hands the value of `name` to `take` without copying it, then overwrites it in place and removes the
/// variable.
///
/// `None` when there is no such variable. A name that occurs twice is wiped twice; `take` sees the first, as
/// `getenv` does. `take` must not start a thread. Refuses when the process has more than one thread.
pub fn take_environment_variable<T>(
    name: &str,
    take: impl FnOnce(&[u8]) -> T,
) -> Result<Option<T>, EnvironmentError> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(EnvironmentError::Name);
    }
    single_threaded()?;
    let entries = values_of(name.as_bytes());
    let Some(&(start, length)) = entries.first() else { return Ok(None) };
    // SAFETY: `values_of` found `length` initialized bytes there; this is the only thread, so nobody writes
    // them.
    let taken = take(unsafe { std::slice::from_raw_parts(start, length) });
    single_threaded()?;
    for (start, length) in entries {
        // SAFETY: the environment block is writable memory of this process; this is the only thread, and no
        // other reference into the block lives here.
        unsafe { std::slice::from_raw_parts_mut(start, length) }.zeroize();
    }
    // SAFETY: this is the only thread, so nobody reads the environment meanwhile.
    unsafe { std::env::remove_var(name) };
    Ok(Some(taken))
}

/// Only the calling thread can start another one, so what this answers stays true until it does.
fn single_threaded() -> Result<(), EnvironmentError> {
    match super::thread_count() {
        Ok(1) => Ok(()),
        Ok(count) => Err(EnvironmentError::Threads(count)),
        Err(_) => Err(EnvironmentError::ThreadsUnknown),
    }
}

/// Where the values of all entries called `name` lie, without their terminating zero. Single-threaded
/// callers only.
fn values_of(name: &[u8]) -> Vec<(*mut u8, usize)> {
    let mut found = Vec::new();
    // SAFETY: a read of the C library's pointer; the callers have checked that no other thread can change it.
    let mut entry: *mut *mut c_char = unsafe { libc::environ };
    if entry.is_null() {
        return found;
    }
    loop {
        // SAFETY: `entry` has not passed the null pointer that ends the array.
        let text = unsafe { *entry };
        if text.is_null() {
            return found;
        }
        // SAFETY: every entry before the final null is a zero-terminated string, which nothing changes
        // meanwhile.
        let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
        if let Some(value) = bytes.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"=")) {
            let start = text.wrapping_add(name.len() + 1).cast::<u8>();
            found.push((start, value.len()));
        }
        // SAFETY: `entry` was not the last, so the next is inside the array or its final null.
        entry = unsafe { entry.add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // What the wiping does to /proc/self/environ is tested in a process of its own, tests/tests/confinement.rs.

    #[test]
    fn a_name_no_variable_can_have_is_refused() {
        for name in ["", "A=B", "A\0B"] {
            assert_eq!(take_environment_variable(name, |_| ()), Err(EnvironmentError::Name));
        }
    }

    #[test]
    fn a_process_with_more_threads_is_refused() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let second = std::thread::spawn(move || ended.recv().is_err());
        let answer = take_environment_variable("PATH", |_| ());
        drop(end);
        assert!(second.join().unwrap());
        assert!(matches!(answer, Err(EnvironmentError::Threads(2..))), "{answer:?}");
        assert!(std::env::var_os("PATH").is_some(), "left as it was");
    }
}
