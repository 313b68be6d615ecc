//! Compiles the executables of a release: static, stripped, and without a trace of where they were built
//! (REL-01, REL-22). Two builds of one source by one compiler are the same bytes, whatever their folders.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
};

use crate::{
    digest::sha256_of_file,
    failure::Failure,
    program::{answer, cargo, perform},
    source::{Source, git},
    target::Target,
};

/// The packages whose executables are released.
pub const PACKAGES: [&str; 4] = ["coreflow-supervisor", "coreflow-relayd", "coreflow-pulld", "coreflow-vpnd"];

/// The executables, as cargo names them.
pub const EXECUTABLES: [&str; 5] =
    ["coreflow", "coreflowctl", "coreflow-relayd", "coreflow-pulld", "coreflow-vpnd"];

/// Rustc's flags of a static executable. The crate `getrandom` looks the system call's wrapper up at run time, which
/// finds nothing in a static executable and ends at `/dev/urandom`, a file that no confined worker opens; the second
/// flag has it call the wrapper.
const STATIC: &str = "-Ctarget-feature=+crt-static\u{1f}--cfg=getrandom_backend=\"linux_getrandom\"";
/// The profile they are built with.
const PROFILE: &str = "dist";

/// The folders that a build is made in; none of them leaves a trace in what it makes.
pub struct Folders {
    /// The workspace.
    pub source: PathBuf,
    /// Where cargo has the sources of the crates.
    pub cargo_home: PathBuf,
    /// Where cargo writes what it makes.
    pub target: PathBuf,
}

impl Folders {
    /// Those of a build of this tree in place: cargo's own, and `target` of the workspace.
    ///
    /// # Errors
    /// Neither `CARGO_HOME` nor `HOME` is set.
    pub fn in_place(source: &Source) -> Result<Self, Failure> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cargo_home = set("CARGO_HOME").or_else(|| Some(set("HOME")?.join(".cargo")));
        let cargo_home =
            cargo_home.ok_or(Failure::Answer("environment", "neither CARGO_HOME nor HOME".to_owned()))?;
        let target = set("CARGO_TARGET_DIR").unwrap_or_else(|| source.root.join("target"));
        Ok(Self { source: source.root.clone(), cargo_home, target })
    }

    /// What each folder is called in a panic's place; a later pair wins over one that holds its folder.
    fn called(&self) -> [(&Path, &str); 3] {
        [(&self.cargo_home, "/cargo"), (&self.source, "/coreflow"), (&self.target, "/target")]
    }

    fn flags_of_rustc(&self) -> OsString {
        let mut flags = OsString::from(STATIC);
        for (folder, called) in self.called() {
            flags.push("\u{1f}--remap-path-prefix=");
            flags.push(folder);
            flags.push("=");
            flags.push(called);
        }
        flags
    }

    fn flags_of_c(&self) -> OsString {
        let flags = self.called().map(|(folder, called)| {
            let mut flag = OsString::from("-ffile-prefix-map=");
            flag.push(folder);
            flag.push("=");
            flag.push(called);
            flag
        });
        flags.join(OsStr::new(" "))
    }
}

/// Compiles the executables for `target` and returns the folder they are in.
///
/// # Errors
/// The build failed; cargo's own words are on standard error.
pub fn compile(folders: &Folders, target: Target) -> Result<PathBuf, Failure> {
    let triple = target.triple();
    let mut build = cargo();
    build
        .current_dir(&folders.source)
        .args(["build", "--locked", "--bins", "--profile", PROFILE, "--target", triple])
        .args(PACKAGES.iter().flat_map(|package| ["--package", package]))
        .arg("--target-dir")
        .arg(&folders.target)
        .env("CARGO_HOME", &folders.cargo_home)
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_ENCODED_RUSTFLAGS", folders.flags_of_rustc())
        .env_remove("RUSTFLAGS")
        .env("CFLAGS", folders.flags_of_c());
    if Target::of_host() != Some(target) {
        let linker = format!("CARGO_TARGET_{}_LINKER", triple.replace('-', "_").to_uppercase());
        build.env(linker, target.c_compiler());
    }
    perform(&mut build)?;
    Ok(folders.target.join(triple).join(PROFILE))
}

/// Builds the same source a second time, from a copy in another folder, with cargo's sources under another name,
/// and compares with the executables in `first`.
///
/// # Errors
/// [`Failure::NotReproducible`] with the executables that differ.
pub fn verify_reproducible(source: &Source, target: Target, first: &Path) -> Result<(), Failure> {
    let elsewhere = tempfile::Builder::new().prefix("coreflow-second-build-").tempdir();
    let elsewhere = elsewhere.map_err(Failure::file(&std::env::temp_dir()))?;
    let place = Folders::in_place(source)?;
    let again = Folders {
        source: elsewhere.path().join("another/folder/of/the/source"),
        cargo_home: elsewhere.path().join("cargo-of-another-name"),
        target: elsewhere.path().join("made"),
    };
    copy_tree(source, &again.source)?;
    fs::create_dir_all(&again.cargo_home).map_err(Failure::file(&again.cargo_home))?;
    for shared in ["registry", "config.toml"] {
        let original = place.cargo_home.join(shared);
        if original.exists() {
            let link = again.cargo_home.join(shared);
            std::os::unix::fs::symlink(original, &link).map_err(Failure::file(&link))?;
        }
    }
    let second = compile(&again, target)?;
    let mut differing = Vec::new();
    for name in EXECUTABLES {
        let (one, other) = (sha256_of_file(&first.join(name))?, sha256_of_file(&second.join(name))?);
        println!("{name}: {one}, and {other} when built again elsewhere");
        if one != other {
            differing.push(name.to_owned());
        }
    }
    if differing.is_empty() { Ok(()) } else { Err(Failure::NotReproducible(differing)) }
}

/// Copies what git knows of the tree, changes included.
fn copy_tree(source: &Source, to: &Path) -> Result<(), Failure> {
    let listed =
        answer(git(&source.root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    for path in listed.split_terminator('\0') {
        let (from, to) = (source.root.join(path), to.join(path));
        if from.symlink_metadata().is_err() {
            continue; // Deleted, and not yet committed so.
        }
        let folder = to.parent().expect("the file is below the copy's folder");
        fs::create_dir_all(folder).map_err(Failure::file(folder))?;
        fs::copy(&from, &to).map_err(Failure::file(&from))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REL-01, REL-22: the flags are of a static executable, and no folder is left with its own name.
    #[test]
    fn every_folder_of_a_build_is_renamed() {
        let folders = Folders {
            source: "/home/someone/coreflow".into(),
            cargo_home: "/home/someone/.cargo".into(),
            target: "/home/someone/coreflow/target".into(),
        };
        let flags = folders.flags_of_rustc().into_string().unwrap();
        let flags: Vec<&str> = flags.split('\u{1f}').collect();
        assert_eq!(
            flags,
            [
                "-Ctarget-feature=+crt-static",
                "--cfg=getrandom_backend=\"linux_getrandom\"",
                "--remap-path-prefix=/home/someone/.cargo=/cargo",
                "--remap-path-prefix=/home/someone/coreflow=/coreflow",
                "--remap-path-prefix=/home/someone/coreflow/target=/target",
            ]
        );
        let flags = folders.flags_of_c().into_string().unwrap();
        assert_eq!(flags.matches("-ffile-prefix-map=/home/someone/").count(), 3, "{flags}");
    }
}
