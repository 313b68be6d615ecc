//! The host release as its host has it: sealed, verified and extracted as a consumer does, inspected, and started as
//! the unit starts it (REL, TST-02).
//!
//! The executables are those of the test's own profile. With `COREFLOW_RELEASE`, the folder of a sealed set whose
//! executables are the release's own, it is that set's.
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use coreflow_release::compile::EXECUTABLES;
use coreflow_release::declared::{declared, demand_declared};
use coreflow_release::digest::{sha256, sha256_of_file};
use coreflow_release::extract::{Pin, extract};
use coreflow_release::manifest::Manifest;
use coreflow_release::provenance::Provenance;
use coreflow_release::runtime::Linkage;
use coreflow_release::seal::{Purpose, Staged, seal};
use coreflow_release::smoke::smoke;
use coreflow_release::source::Source;
use coreflow_release::stage::assemble;
use coreflow_release::target::Target;
use coreflow_tests::authority::Authority;
use coreflow_tests::binaries::binaries;
use coreflow_tests::cloudly::{Cloudly, VpnNetwork};
use coreflow_tests::free_port::free_port;
use coreflow_tests::relay::RelaySetup;
use coreflow_tests::sockets::is_udp_bound;
use coreflow_tests::tunnel::{NodeKey, Tunnel};
use coreflow_tests::waiting::{BOUND, poll};
use nix::sys::signal::Signal;
use serde_json::Value;

const SET: &str = "COREFLOW_RELEASE";
const STOP: Duration = Duration::from_secs(10);

fn host() -> Target {
    Target::of_host().expect("the tests run on one of the two targets")
}

fn source() -> Source {
    Source::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap()
}

/// The executables of the test's own profile without their debug information, most of what they are.
fn stripped(home: &Path) -> PathBuf {
    let folder = home.join("stripped");
    fs::create_dir(&folder).unwrap();
    for name in EXECUTABLES {
        let mut strip = Command::new("strip");
        strip.arg("--strip-debug").arg("-o").arg(folder.join(name)).arg(binaries().join(name));
        assert!(strip.status().unwrap().success(), "stripping {name}");
    }
    folder
}

/// The folder of the sealed set: the given one, or a draft of the test's own executables below `home`.
fn sealed(home: &Path) -> PathBuf {
    if let Some(given) = std::env::var_os(SET) {
        return given.into();
    }
    let (source, target, directory) = (source(), host(), home.join("staged"));
    let linkage = Linkage::of(&source, target).unwrap();
    assemble(&source, target, &linkage, &stripped(home), &directory).unwrap();
    let set = home.join("set");
    fs::create_dir(&set).unwrap();
    seal(&source, Purpose::Draft, &[Staged { target, directory, linkage }], &set).unwrap();
    set
}

/// The release directory that a consumer of the set extracts, once for both tests. It lies in the build directory, for
/// nothing removes it at the end, and the next run makes it anew.
fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host-release");
        if home.exists() {
            fs::remove_dir_all(&home).unwrap();
        }
        fs::create_dir_all(&home).unwrap();
        let set = sealed(&home);
        let manifest = fs::read(set.join("tspack-manifest.json")).unwrap();
        let stated = Manifest::read(&manifest).unwrap();
        let pin = Pin {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: stated.commit,
            manifest: sha256(&manifest),
            purpose: if stated.publishable { Purpose::Publication } else { Purpose::Draft },
        };
        extract(&set, host(), &pin, &home.join("installed")).unwrap()
    })
}

/// What lies in a directory: each path with its content's digest and its times of change.
fn listing(directory: &Path) -> BTreeMap<PathBuf, (String, i64, i64)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let digest = if metadata.is_dir() { String::new() } else { sha256_of_file(&path).unwrap() };
            found.insert(path.clone(), (digest, metadata.mtime_nsec(), metadata.ctime_nsec()));
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

/// The notices of an extracted archive name what is in it, with every text.
fn inspect_notices(directory: &Path) {
    let json = fs::read(directory.join("coreflow.third-party-notices.json")).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    let text = fs::read_to_string(directory.join("coreflow.third-party-notices.txt")).unwrap();
    assert_eq!(json["target"], host().name());
    let (runtime, packages) = (json["runtime"].as_array().unwrap(), json["packages"].as_array().unwrap());
    for name in ["rustls", "ring", "tokio", "quinn", "snow", "tungstenite", "hyper"] {
        assert!(packages.iter().any(|package| package["name"] == name), "{name} is linked and not named");
    }
    for component in runtime.iter().chain(packages) {
        let name = component["name"].as_str().unwrap();
        assert!(text.contains(name) && text.contains(component["license"].as_str().unwrap()), "{name}");
        let notices = component["notices"].as_array().unwrap();
        assert!(!notices.is_empty(), "{name} has no text");
        for notice in notices {
            assert!(text.contains(notice["text"].as_str().unwrap()), "{name}: a text is not there in full");
        }
    }
}

/// TST-02, REL-09, REL-11, REL-12, REL-13, REL-14, REL-15, REL-16, REL-17, REL-18, REL-25: the set is made and sealed,
/// the host's archive is verified and unpacked, its files are the declared ones, its notices are inspected, and its
/// executable refuses an empty environment for the missing launch facts.
#[test]
fn the_archive_of_this_host_holds_the_declared_release() {
    let directory = installed();
    demand_declared(directory, &declared(&source().root).unwrap()).unwrap();
    inspect_notices(directory);
    let provenance = fs::read(directory.join("coreflow-vpn.tsrust-build.json")).unwrap();
    let provenance: Provenance = serde_json::from_slice(&provenance).unwrap();
    assert_eq!(provenance.sha256, sha256_of_file(&directory.join("coreflow-vpn")).unwrap());
    let license = fs::read_to_string(directory.join("license")).unwrap();
    assert!(license.starts_with("MIT License"), "{license}");
    smoke(directory).unwrap();
}

/// TST-02, REL-13, REL-19, REL-20, REL-21, REL-27: the host's archive runs as its unit starts it, without arguments and
/// from a working directory that says otherwise: `qenv.yml` and the hub's `coreflow-vpn` are found beside the
/// executable, a node reaches the hub, and nothing in the directory was written.
#[tokio::test(flavor = "multi_thread")]
async fn the_release_runs_as_the_unit_starts_it() {
    let directory = installed();
    let authority = Authority::new();
    let mut setup = RelaySetup::new(&authority);
    let cloudly = Cloudly::start(&authority, setup.cloudly_settings()).await;
    let key = NodeKey::default();
    cloudly.change(|facts| facts.vpn_network = Some(VpnNetwork::of([("node-1", key.public().as_str())])));
    setup.qenv = Some("this: [is, no, list, of, launch, facts".to_owned());
    setup.executables = Some(directory.to_owned());
    let setup = setup
        .facing(&cloudly)
        .variable("COREFLOW_VPN_BIND_HOSTNAME", "127.0.0.1")
        .variable("COREFLOW_VPN_QUIC_PORT", &free_port().to_string());
    assert!(setup.arguments.is_empty(), "the unit passes none");

    let before = listing(directory);
    let mut relay = setup.start();
    relay.wait_open().await.unwrap();
    cloudly.wait_accepted(1).await.unwrap();
    let hub = cloudly.wait_hub(None).await.unwrap();
    let address = std::net::SocketAddrV4::new(hub.address, hub.quic_port);
    poll(BOUND, "hub that is bound", || is_udp_bound(address).then_some(())).await.unwrap();
    let tunnel = Tunnel::dial(&key, &hub).await.unwrap();
    let vpnd = relay.workers()["vpnd"];
    let executable = fs::read_link(format!("/proc/{vpnd}/exe")).unwrap();
    assert_eq!(executable, directory.canonicalize().unwrap().join("coreflow-vpn"));
    drop(tunnel);
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.wait_exit(STOP).await.unwrap(), 0);
    assert_eq!(listing(directory), before, "the relay writes into no file of its release");
}
