//! The Debian package `coreflow`: the staged directory as `/opt/coreflow`, where the unit looks for it, the unit in
//! systemd's folder, its drop-ins as examples, license and notices as the package's copyright, the manual pages, and
//! `coreflowctl` in root's path.
//!
//! It depends on nothing: the executables are static. Its scripts do what debhelper's would for a unit that is
//! neither enabled nor started by an installation, but for one thing: an upgrade waits for no start, since that of the
//! relay lasts as long as Cloudly cannot be reached.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use flate2::{Compression, GzBuilder};

use crate::{
    declared::{NOTICES_TEXT, declared, demand_declared},
    failure::Failure,
    program::{command, perform},
    seal::demand_of,
    source::Source,
    stage::set_mode,
    target::Target,
};

/// The maintainer's scripts, by the name that dpkg gives them.
const SCRIPTS: [(&str, &str); 3] = [
    ("postinst", include_str!("../debian/postinst")),
    ("prerm", include_str!("../debian/prerm")),
    ("postrm", include_str!("../debian/postrm")),
];

const RELEASE: &str = "opt/coreflow";
const UNITS: &str = "usr/lib/systemd/system";
const DOCUMENTS: &str = "usr/share/doc/coreflow";
const MANUAL: &str = "usr/share/man";
/// A name in root's path, and what it leads to.
const COMMAND: (&str, &str) = ("usr/sbin/coreflowctl", "/opt/coreflow/coreflowctl");

/// Makes the package out of the staged `directory`, in the folder `into`, and returns its path.
///
/// # Errors
/// The directory is not the declared set of this commit and target, or dpkg-deb failed.
pub fn debian_package(
    source: &Source,
    target: Target,
    directory: &Path,
    into: &Path,
) -> Result<PathBuf, Failure> {
    let declared = declared(&source.root)?;
    demand_declared(directory, &declared)?;
    demand_of(source, target, directory)?;
    let scratch = tempfile::tempdir().map_err(Failure::file(&std::env::temp_dir()))?;
    let root = scratch.path().join("coreflow");
    let mut size = 0;
    for file in &declared {
        let from = directory.join(&file.path);
        let bytes = fs::read(&from).map_err(Failure::file(&from))?;
        size += bytes.len();
        for place in places(&file.path) {
            let bytes = if place.starts_with(MANUAL) { zipped(&bytes) } else { bytes.clone() };
            lay(&root, &place, &bytes, file.mode)?;
        }
    }
    let read = |name: &str| {
        let path = directory.join(name);
        fs::read_to_string(&path).map_err(Failure::file(&path))
    };
    let copyright = format!("{}\n{}\n\n{}", read("license")?, "=".repeat(72), read(NOTICES_TEXT)?);
    lay(&root, &format!("{DOCUMENTS}/copyright"), copyright.as_bytes(), 0o644)?;
    let (name, leads_to) = COMMAND;
    let link = make_folders(&root, name)?;
    symlink(leads_to, &link).map_err(Failure::file(&link))?;
    let control = control(source, target, size.div_ceil(1024));
    lay(&root, "DEBIAN/control", control.as_bytes(), 0o644)?;
    for (name, script) in SCRIPTS {
        lay(&root, &format!("DEBIAN/{name}"), script.as_bytes(), 0o755)?;
    }
    set_mode(&root, 0o755)?;
    let package = into.join(format!("coreflow_{}_{}.deb", source.version, target.debian_architecture()));
    let mut build = command("dpkg-deb");
    build.args(["--root-owner-group", "--build"]).arg(&root).arg(&package);
    perform(build.env("SOURCE_DATE_EPOCH", source.committed_at.to_string()))?;
    Ok(package)
}

/// Where a file of the release directory is installed; the manual pages in their own place alone.
fn places(path: &str) -> Vec<String> {
    if let Some(page) = path.strip_prefix("man/") {
        let section = page.rsplit('.').next().unwrap_or_default();
        return vec![format!("{MANUAL}/man{section}/{page}.gz")];
    }
    let mut places = vec![format!("{RELEASE}/{path}")];
    if path == "systemd/coreflow.service" {
        places.push(format!("{UNITS}/coreflow.service"));
    }
    if let Some(drop_in) = path.strip_prefix("systemd/").filter(|name| name.ends_with(".conf")) {
        places.push(format!("{DOCUMENTS}/examples/{drop_in}"));
    }
    places
}

fn control(source: &Source, target: Target, kibibytes: usize) -> String {
    format!(
        "Package: coreflow\n\
         Version: {}\n\
         Architecture: {}\n\
         Maintainer: Task Venture Capital GmbH\n\
         Installed-Size: {kibibytes}\n\
         Section: net\n\
         Priority: optional\n\
         Recommends: ca-certificates\n\
         Homepage: {}\n\
         Description: relay of a serve.zone cluster\n \
         Nodes of the cluster hold one TLS WebSocket to the relay, which carries their\n \
         sessions to Cloudly, passes their image pulls on, and is the hub of their VPN.\n \
         The unit is neither enabled nor started by an installation: its variables and\n \
         its credential have to be placed first.\n",
        source.version,
        target.debian_architecture(),
        env!("CARGO_PKG_REPOSITORY"),
    )
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    gzip.write_all(bytes).expect("a vector takes what is written");
    gzip.finish().expect("a vector takes what is written")
}

fn lay(root: &Path, place: &str, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let path = make_folders(root, place)?;
    fs::write(&path, bytes).map_err(Failure::file(&path))?;
    set_mode(&path, mode)
}

/// Makes the folders that a file at `place` lies in, and returns its path.
fn make_folders(root: &Path, place: &str) -> Result<PathBuf, Failure> {
    let path = root.join(place);
    let folder = path.parent().expect("a file lies in a folder");
    fs::create_dir_all(folder).map_err(Failure::file(folder))?;
    for folder in folder.ancestors().take_while(|folder| *folder != root) {
        set_mode(folder, 0o755)?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_installed_where_it_is_looked_for() {
        for (path, expected) in [
            ("coreflow", &["opt/coreflow/coreflow"][..]),
            (
                "systemd/coreflow.service",
                &["opt/coreflow/systemd/coreflow.service", "usr/lib/systemd/system/coreflow.service"],
            ),
            (
                "systemd/debug.conf",
                &["opt/coreflow/systemd/debug.conf", "usr/share/doc/coreflow/examples/debug.conf"],
            ),
            ("man/coreflowctl.8", &["usr/share/man/man8/coreflowctl.8.gz"]),
            ("license", &["opt/coreflow/license"]),
        ] {
            assert_eq!(places(path), expected, "{path}");
        }
    }

    /// The unit starts what the package installs (REL-27).
    #[test]
    fn the_unit_and_the_package_name_one_executable() {
        let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../systemd/coreflow.service");
        let unit = fs::read_to_string(unit).unwrap();
        assert!(unit.lines().any(|line| line == format!("ExecStart=/{}", places("coreflow")[0])));
        assert_eq!(COMMAND.1, format!("/{}", places("coreflowctl")[0]));
    }
}
