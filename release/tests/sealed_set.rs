//! A set of both targets, sealed from placeholders in the place of executables, and what a consumer takes and
//! refuses of it. That the set of real executables runs is `tests/tests/host_release.rs`.
#![expect(clippy::unwrap_used, reason = "what cannot be laid out fails the test")]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use coreflow_release::{
    compile::EXECUTABLES,
    debian::debian_package,
    declared::{declared, demand_declared},
    digest::{sha256, sha256_of_file},
    extract::{Pin, extract},
    failure::Failure,
    manifest::Manifest,
    provenance::Provenance,
    runtime::Linkage,
    seal::{Purpose, Staged, seal},
    source::Source,
    stage::assemble,
    target::Target,
};
use tempfile::TempDir;

fn source() -> Source {
    Source::at(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()).unwrap()
}

/// As it is at a tag.
fn tagged() -> Source {
    Source { unpublishable: Vec::new(), ..source() }
}

/// A release directory for each of `targets`, staged with placeholders. What is linked is this host's for both.
fn staged(home: &Path, source: &Source, targets: &[Target]) -> Vec<Staged> {
    let binaries = home.join("built");
    fs::create_dir_all(&binaries).unwrap();
    for name in EXECUTABLES {
        fs::write(binaries.join(name), format!("in the place of {name}")).unwrap();
    }
    static LINKAGE: OnceLock<Linkage> = OnceLock::new();
    let linkage = LINKAGE.get_or_init(|| Linkage::of(source, Target::of_host().unwrap()).unwrap());
    let stage = |target: &Target| {
        let directory = home.join("staged").join(target.name());
        assemble(source, *target, linkage, &binaries, &directory).unwrap();
        Staged { target: *target, directory, linkage: linkage.clone() }
    };
    targets.iter().map(stage).collect()
}

/// Of an earlier version, in the folder that is sealed into.
const FORMER: [&str; 2] =
    ["coreflow-relay-32.9.0-linux-amd64.tar.gz", "coreflow-relay-32.9.0-linux-amd64.cdx.json"];
/// Not of a set.
const FOREIGN: [&str; 2] = ["coreflow-relayed.tar.gz", "notes.txt"];

/// A sealed set and what its consumer pins of it.
struct Sealed {
    home: TempDir,
    set: PathBuf,
    pin: Pin,
}

fn sealed(purpose: Purpose) -> Sealed {
    let (home, source) = (tempfile::tempdir().unwrap(), tagged());
    let set = home.path().join("set");
    fs::create_dir(&set).unwrap();
    for name in FORMER.iter().chain(&FOREIGN) {
        fs::write(set.join(name), "of before").unwrap();
    }
    let manifest = seal(&source, purpose, &staged(home.path(), &source, &Target::ALL), &set).unwrap();
    let pin = Pin { version: source.version, commit: source.commit, manifest, purpose: Purpose::Publication };
    Sealed { home, set, pin }
}

impl Sealed {
    fn extract(&self) -> Result<PathBuf, Failure> {
        extract(&self.set, Target::LinuxArm64, &self.pin, &self.home.path().join("installed"))
    }

    fn refusal(&self) -> String {
        let refused = self.extract().unwrap_err().to_string();
        assert!(!self.home.path().join("installed").exists(), "a refused set leaves nothing");
        refused
    }
}

/// REL-04, REL-06, REL-07, REL-08: the set of a tag is named `coreflow-relay`, its two archives have the contract's
/// names, the manifest states each file, and the checksums cover the manifest and both archives.
#[test]
fn a_sealed_set_has_its_two_archives_and_what_vouches_for_them() {
    let Sealed { set, pin, home: _home } = sealed(Purpose::Publication);
    let manifest = Manifest::read(&fs::read(set.join("tspack-manifest.json")).unwrap()).unwrap();
    assert_eq!((manifest.name.as_str(), manifest.publishable), ("coreflow-relay", true));
    assert_eq!((manifest.version.as_str(), manifest.commit), (env!("CARGO_PKG_VERSION"), pin.commit));
    let archives: Vec<_> = manifest.bundles.iter().map(|bundle| bundle.archive.as_str()).collect();
    let expected =
        ["amd64", "arm64"].map(|cpu| format!("coreflow-relay-{}-linux-{cpu}.tar.gz", manifest.version));
    assert_eq!(archives, expected);
    for bundle in &manifest.bundles {
        let stated: BTreeMap<_, _> =
            bundle.files.iter().map(|file| (file.path.as_str(), file.mode.as_str())).collect();
        assert_eq!(bundle.bill_sha256, sha256_of_file(&set.join(&bundle.bill)).unwrap());
        let declared = declared(&source().root).unwrap();
        assert_eq!(stated.len(), declared.len(), "every declared file is stated once");
        for file in declared {
            assert_eq!(stated[file.path.as_str()], format!("{:04o}", file.mode));
        }
    }
    // What the manifest does not vouch for is not beside it; what is no archive of a set is nobody's business.
    assert!(
        FORMER.iter().all(|name| !set.join(name).exists())
            && FOREIGN.iter().all(|name| set.join(name).exists())
    );
    let sums = fs::read_to_string(set.join("SHA256SUMS.txt")).unwrap();
    let listed: BTreeMap<&str, &str> =
        sums.lines().map(|line| line.split_once("  ").unwrap()).map(|(sum, name)| (name, sum)).collect();
    let mut names = vec!["tspack-manifest.json"];
    names.extend(archives);
    assert_eq!(listed.keys().collect::<Vec<_>>().len(), 3);
    for name in names {
        assert_eq!(listed[name], sha256_of_file(&set.join(name)).unwrap(), "{name}");
    }
}

/// REL-09, REL-10, REL-14, REL-18: a consumer with the three pins gets exactly the declared directory, in which the
/// daemon's provenance names its executable's digest and the notices that lie there.
#[test]
fn a_consumer_verifies_and_extracts_its_archive() {
    let sealed = sealed(Purpose::Publication);
    let directory = sealed.extract().unwrap();
    demand_declared(&directory, &declared(&source().root).unwrap()).unwrap();
    let names: Vec<_> = fs::read_dir(directory.parent().unwrap()).unwrap().collect();
    assert_eq!(names.len(), 1, "one directory");
    assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o7777, 0o755);
    fs::write(directory.join("foreign"), "").unwrap();
    let refused = sealed.extract().unwrap_err().to_string();
    assert!(refused.ends_with("already exists"), "nothing is merged with what is there: {refused}");
    assert_eq!(fs::read_dir(directory.parent().unwrap()).unwrap().count(), 1, "and nothing else is left");
    let provenance = fs::read(directory.join("coreflow-vpn.tsrust-build.json")).unwrap();
    let provenance: Provenance = serde_json::from_slice(&provenance).unwrap();
    assert_eq!(provenance.sha256, sha256(b"in the place of coreflow-vpnd"));
    assert_eq!(provenance.sha256, sha256_of_file(&directory.join(&provenance.file)).unwrap());
    assert_eq!(
        (provenance.target.as_str(), provenance.commit),
        ("aarch64-unknown-linux-gnu", sealed.pin.commit)
    );
    assert!(!provenance.project.is_empty() && provenance.version == sealed.pin.version);
    for notice in &provenance.notices {
        assert!(directory.join(notice).metadata().unwrap().len() > 500, "{notice}");
    }
    let of_daemon = fs::read_to_string(directory.join(&provenance.notices[1])).unwrap();
    assert!(
        of_daemon.contains("\nquinn 0.") && !of_daemon.contains("\ntungstenite 0."),
        "the daemon's alone"
    );
}

/// REL-09: what differs from a pin, or was changed behind the manifest's back, is refused before anything is written.
#[test]
fn a_set_that_is_not_the_pinned_one_is_refused() {
    let mut set = sealed(Purpose::Publication);
    let good = set.pin.clone();
    set.pin.manifest = "0".repeat(64);
    assert!(set.refusal().contains("tspack-manifest.json has another digest"));
    set.pin = Pin { version: "33.1.1".to_owned(), ..good.clone() };
    assert!(set.refusal().contains("and not 33.1.1"));
    set.pin = Pin { commit: "0".repeat(40), ..good.clone() };
    assert!(set.refusal().contains("the commit is"));
    set.pin = good;

    let sums = set.set.join("SHA256SUMS.txt");
    let listed = fs::read_to_string(&sums).unwrap();
    fs::write(&sums, listed.lines().take(2).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    assert!(set.refusal().contains("SHA256SUMS.txt does not list"));
    fs::write(&sums, listed).unwrap();

    let archive = set.set.join(format!("coreflow-relay-{}-linux-arm64.tar.gz", set.pin.version));
    let mut bytes = fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&archive, bytes).unwrap();
    assert!(set.refusal().contains("has another digest"));
}

/// REL-05: a tree that is not the clean source of its tag is sealed as a draft alone, which no consumer takes for a
/// release; and a publication lacks neither target.
#[test]
fn a_draft_is_no_release() {
    let mut draft = sealed(Purpose::Draft);
    assert!(draft.refusal().contains("the set is a draft"));
    draft.pin.purpose = Purpose::Draft;
    draft.extract().unwrap();

    let home = tempfile::tempdir().unwrap();
    let unclean = Source { unpublishable: vec!["the tree is not clean".to_owned()], ..source() };
    let both = staged(home.path(), &unclean, &Target::ALL);
    let refused = seal(&unclean, Purpose::Publication, &both, home.path()).unwrap_err();
    assert_eq!(refused.to_string(), "not-publishable: the tree is not clean");
    let refused = seal(&tagged(), Purpose::Publication, &both[..1], home.path()).unwrap_err();
    assert_eq!(refused.to_string(), "not-publishable: linux-arm64 is not staged");
    assert!(!home.path().join("tspack-manifest.json").exists());
}

/// REL-05, REL-24: nothing is sealed that is not the declared set of that commit, whatever happened to it after it was
/// staged.
#[test]
fn a_directory_that_was_changed_is_not_sealed() {
    let (home, source) = (tempfile::tempdir().unwrap(), tagged());
    let staged = staged(home.path(), &source, &Target::ALL);
    let core = staged[1].directory.join("core");
    fs::write(&core, "").unwrap();
    let refused = seal(&source, Purpose::Draft, &staged, home.path()).unwrap_err().to_string();
    assert!(refused.contains("linux-arm64: core is not declared"), "{refused}");
    fs::remove_file(core).unwrap();
    let later = Source { commit: "0".repeat(40), ..source.clone() };
    let refused = seal(&later, Purpose::Draft, &staged, home.path()).unwrap_err().to_string();
    assert!(
        refused.contains(&format!("is of commit {} and not of what is sealed", source.commit)),
        "{refused}"
    );
    fs::write(staged[0].directory.join("coreflow-vpn"), "another daemon").unwrap();
    let refused = seal(&source, Purpose::Draft, &staged, home.path()).unwrap_err().to_string();
    assert!(refused.contains("linux-amd64: coreflow-vpn.tsrust-build.json is of commit"), "{refused}");
}

/// REL-15, REL-16, REL-22: the notices of the staged set name every linked crate and have a text for each.
#[test]
fn the_notices_account_for_everything_that_is_linked() {
    let (home, source) = (tempfile::tempdir().unwrap(), source());
    let staged = staged(home.path(), &source, &[Target::LinuxAmd64]).remove(0);
    let read = |name: &str| fs::read_to_string(staged.directory.join(name)).unwrap();
    let (text, json) = (read("coreflow.third-party-notices.txt"), read("coreflow.third-party-notices.json"));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let packages = json["packages"].as_array().unwrap();
    assert_eq!(packages.len(), staged.linkage.crates.len());
    for (linked, package) in staged.linkage.crates.iter().zip(packages) {
        assert_eq!(
            (&package["name"], &package["version"]),
            (&linked.name.as_str().into(), &linked.version.as_str().into())
        );
        for notice in package["notices"].as_array().unwrap() {
            let notice = notice["text"].as_str().unwrap();
            assert!(
                !notice.is_empty() && text.contains(notice),
                "{}: the text is there in full",
                linked.name
            );
        }
        assert!(
            text.contains(&format!("\n{} {}\n  license: {}\n", linked.name, linked.version, linked.license))
        );
    }
    for part in ["Rust standard library", "\nglibc\n", "\nlibgcc and libgcc_eh"] {
        assert!(text.contains(part), "{part}");
    }
}

/// What dpkg-deb prints of a package.
fn of_package(package: &Path, option: &str, more: &[&str]) -> String {
    let output = Command::new("dpkg-deb").arg(option).arg(package).args(more).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// REL-22, REL-24: a Debian package is made of the declared set of its commit and target alone, is the same bytes each
/// time, belongs to root, and has its own license beside the notices.
#[test]
fn a_package_is_of_what_was_staged_for_it() {
    let (home, source) = (tempfile::tempdir().unwrap(), tagged());
    let staged = staged(home.path(), &source, &[Target::LinuxAmd64]).remove(0);
    let make = |source: &Source, target, into: &str| {
        let into = home.path().join(into);
        fs::create_dir_all(&into).unwrap();
        debian_package(source, target, &staged.directory, &into)
    };
    let package = make(&source, Target::LinuxAmd64, "one").unwrap();
    let again = make(&source, Target::LinuxAmd64, "two").unwrap();
    assert_eq!(sha256_of_file(&package).unwrap(), sha256_of_file(&again).unwrap());
    let listed = of_package(&package, "--contents", &[]);
    for line in listed.lines() {
        assert!(line.contains(" root/root "), "{line}");
    }
    assert!(listed.contains("-rwxr-xr-x root/root"), "{listed}");
    assert!(listed.lines().any(|line| line.ends_with("./usr/sbin/coreflowctl -> /opt/coreflow/coreflowctl")));
    let unpacked = home.path().join("unpacked");
    of_package(&package, "--extract", &[unpacked.to_str().unwrap()]);
    let copyright = fs::read_to_string(unpacked.join("usr/share/doc/coreflow/copyright")).unwrap();
    let notices = fs::read_to_string(staged.directory.join("coreflow.third-party-notices.txt")).unwrap();
    let license = fs::read_to_string(staged.directory.join("license")).unwrap();
    assert!(copyright.starts_with(&license) && copyright.ends_with(&notices));

    let later = Source { commit: "0".repeat(40), ..source.clone() };
    let refused = make(&later, Target::LinuxAmd64, "three").unwrap_err().to_string();
    assert!(refused.contains(&format!("is of commit {}", source.commit)), "{refused}");
    let refused = make(&source, Target::LinuxArm64, "three").unwrap_err().to_string();
    assert!(refused.starts_with("not-the-declared-set: "), "{refused}");
    assert_eq!(
        fs::read_dir(home.path().join("three")).unwrap().count(),
        0,
        "nothing is left of a refused one"
    );
}
