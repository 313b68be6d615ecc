//! The real binaries, the relay's four and `coreflowctl`, built once per test process with the profile of the test.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const PACKAGES: [&str; 4] = ["coreflow-supervisor", "coreflow-relayd", "coreflow-pulld", "coreflow-vpnd"];
/// What the relay is made of.
pub(crate) const NAMES: [&str; 5] =
    ["coreflow", "coreflowctl", "coreflow-relayd", "coreflow-pulld", "coreflow-vpnd"];

/// The directory that holds `coreflow` and its workers, built by the first caller. Other test
/// processes that build at the same time wait on cargo's own lock.
///
/// # Panics
/// When the build fails or leaves a binary out, naming the step.
pub fn binaries() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(build)
}

fn build() -> PathBuf {
    let own = std::env::current_exe().expect("finding the test's own executable");
    let directory = profile_directory(&own).expect("finding the build directory of the test's executable");
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let target = directory.parent().expect("finding the target directory of the test's executable");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join("Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    // What cargo tells this test of its own package would make build scripts run again that look at it.
    let told = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    };
    for name in std::env::vars_os().map(|(name, _)| name).filter(told) {
        build.env_remove(name);
    }
    build.args(["build", "--quiet", "--bins", "--profile", profile, "--manifest-path"]).arg(root);
    build.arg("--target-dir").arg(target);
    for package in PACKAGES {
        build.args(["--package", package]);
    }
    let done = build.output().expect("running cargo build for the relay's binaries");
    let words = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "building the relay's binaries failed: {}\n{words}", done.status);
    for name in NAMES {
        assert!(directory.join(name).is_file(), "the build left no executable {name}");
    }
    directory.to_path_buf()
}

/// `target/<profile>` of an executable in it, in its `deps` or in its `examples`.
pub(crate) fn profile_directory(executable: &Path) -> Option<&Path> {
    let directory = executable.parent()?;
    match directory.file_name()?.to_str()? {
        "deps" | "examples" => directory.parent(),
        _ => Some(directory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests run in `deps`, the demo beside the binaries.
    #[test]
    fn the_profile_directory_is_found() {
        for path in ["/t/debug/deps/area-1", "/t/debug/coreflow-demo"] {
            assert_eq!(profile_directory(Path::new(path)), Some(Path::new("/t/debug")));
        }
    }
}
