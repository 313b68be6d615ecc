//! The smoke check of a staged directory (REL-25): its executable is started once in an empty environment, logs its
//! start, refuses for the missing launch facts by name, and ends with 1.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::failure::Failure;

/// What is refused for its absence: the first launch fact of `qenv.yml`.
const MISSING: &str = "CLOUDLY_URL";

/// Starts the executable in `directory` and demands that start.
///
/// # Errors
/// [`Failure::Smoke`] with what came instead.
pub fn smoke(directory: &Path) -> Result<(), Failure> {
    let program = directory.join("coreflow");
    let output = Command::new(&program)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .map_err(Failure::file(&program))?;
    judge(&output).map_err(Failure::Smoke)
}

fn judge(Output { status, stdout, stderr }: &Output) -> Result<(), String> {
    let said = format!("{}{}", String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr));
    let start = format!("coreflow {} starts", env!("CARGO_PKG_VERSION"));
    let wanted = [
        (status.code() == Some(1), "an exit with 1"),
        (said.contains(&start), "the line of its start"),
        (
            said.contains("the start failed: ") && said.contains(MISSING),
            "the refusal for the missing launch facts",
        ),
    ];
    match wanted.iter().find(|(seen, _)| !seen) {
        None => Ok(()),
        Some((_, what)) => Err(format!("not {what}; it ended with {status} and said: {}", said.trim())),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn of(script: &str) -> Result<(), Failure> {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("coreflow");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        smoke(directory.path())
    }

    /// REL-25: each part of that start is demanded: its line, the refusal by name, the exit code.
    #[test]
    fn another_start_than_the_refused_one_fails() {
        let starts = concat!("echo 'INFO coreflow ", env!("CARGO_PKG_VERSION"), " starts'; ");
        let refuses = "echo 'the start failed: missing CLOUDLY_URL' >&2; ";
        of(&format!("{starts}{refuses}exit 1")).unwrap();
        for (script, missed) in [
            (format!("{refuses}exit 1"), "not the line of its start"),
            (format!("{starts}exit 1"), "not the refusal for the missing launch facts"),
            (format!("{starts}{refuses}exit 0"), "not an exit with 1"),
            (format!("{starts}{refuses}kill -9 $$"), "not an exit with 1"),
        ] {
            let failure = of(&script).unwrap_err().to_string();
            assert!(failure.contains(missed), "{failure}");
        }
    }
}
