//! What the relay keeps of its nodes while Cloudly is away: in memory their bindings and nothing that they or
//! Cloudly said, and on disk nothing at all (OUT-13).
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use coreflow_tests::authority::Authority;
use coreflow_tests::binaries::binaries;
use coreflow_tests::cloudly::{Cloudly, Step};
use coreflow_tests::disclosure::Marks;
use coreflow_tests::envelope::random_hex;
use coreflow_tests::free_port::free_port;
use coreflow_tests::memory::{Place, search};
use coreflow_tests::pallet::{PalletNode, Reaction, Setup};
use coreflow_tests::relay::RelaySetup;
use serde_json::{Value, json};

/// A request of a node and a push to it.
type Methods = (&'static str, &'static str);

const MARKED: Methods = ("getRuntimeManagedVpnCredential", "applyRuntimeAssignment");
const AFTERWARDS: Methods = ("getRuntimeRegistryCredential", "applyRuntimeNetworkProjection");
/// More bytes than any buffer of a socket keeps.
const MORE: usize = 256 << 10;

fn found(pid: u32, value: &str) -> Vec<Place> {
    let scan = search(pid, value.as_bytes()).unwrap();
    assert!(scan.read > 1 << 20, "only {} bytes of process {pid} could be read", scan.read);
    scan.found
}

/// Every file below `root`, with what a change of it would change.
fn files(root: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let (mut found, mut left) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                left.push(entry.path());
            }
            found.insert(entry.path(), (metadata.len(), metadata.modified().unwrap()));
        }
    }
    found
}

/// What a process has open that keeps what is written to it, beside the executables, which the supervisor has
/// open to start them again.
fn open_files(pid: u32) -> Vec<PathBuf> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let on_disk = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|metadata| {
            let kind = metadata.file_type();
            kind.is_file() || kind.is_dir() || kind.is_block_device()
        })
    };
    let paths = descriptors.flatten().map(|entry| entry.path()).filter(on_disk);
    let paths = paths.map(|path| std::fs::read_link(path).unwrap_or_default());
    paths.filter(|path| !path.starts_with(binaries())).collect()
}

/// A node whose id, and with it the id of its session, is like no other text. Whatever it says begins with
/// `mark`.
async fn node(cloudly: &Cloudly, relay: &RelaySetup, mark: &str) -> PalletNode {
    let id = format!("node-{}", random_hex::<12>());
    let (bearer, nonce) = (format!("{mark} bearer"), format!("{mark} nonce of an instance"));
    cloudly.change(|settings| settings.nodes.insert(id.clone(), bearer.clone()));
    let node = PalletNode::start(Setup { bearer, nonce, ..Setup::new(relay.target(), &id) });
    node.wait_registered(1).await.unwrap();
    node
}

/// The node asks Cloudly for a credential and gets a push. Each of the four bodies begins with `mark` and is
/// longer by `more` bytes.
async fn converse(cloudly: &Cloudly, node: &PalletNode, methods: Methods, mark: &str, more: usize) {
    let said = |what: &str| format!("{mark} {what}{}", "-".repeat(more));
    let (request, push) = methods;
    let binding = node.binding().unwrap();
    let (asked, credential) = (said("a request"), said("a credential"));
    cloudly.once(request, Step::Answer(json!({"credential": credential}).to_string()));
    let answer = node.request(request, &format!(r#"{{"session":{binding},"key":"{asked}"}}"#)).await.unwrap();
    assert!(answer.outcome().unwrap().get().contains(&credential), "the credential reached the node");
    let (pushed, answered) = (said("a push"), said("an answer of a node"));
    node.react(push, Reaction::Answer(json!({"applied": answered}).to_string()));
    let answer =
        cloudly.push(push, &format!(r#"{{"session":{binding},"pushed":"{pushed}"}}"#)).await.unwrap();
    assert!(answer.outcome().unwrap().get().contains(&answered), "the answer reached Cloudly");
    assert!(node.pushes().last().unwrap().message.request().contains(&pushed), "the push reached the node");
}

/// OUT-13: in an outage the relay's processes hold the nodes' session ids, in relayd, but no bearer, no body of a
/// request, an answer or a push and no managed-VPN credential; none of them has a file open, and none was made
/// or changed in the relay's directory.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_keeps_bindings_alone_and_nothing_on_disk() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test reads the memory and descriptors of other users' processes: run it as root"
    );
    let authority = Authority::new();
    let setup = RelaySetup::new(&authority).controlled();
    let cloudly = Cloudly::start(&authority, setup.cloudly_settings()).await;
    let setup = setup
        .facing(&cloudly)
        .variable("COREFLOW_VPN_BIND_HOSTNAME", "127.0.0.1")
        .variable("COREFLOW_VPN_QUIC_PORT", &free_port().to_string());
    let relay = setup.start();
    relay.wait_open().await.unwrap();
    cloudly.wait_accepted(1).await.unwrap();
    relay.wait_worker("vpnd", None).await.unwrap();
    let home = relay.home();
    let before = files(&home);
    let mut marks = Marks::default();
    let (mark, other) = (marks.secret("what is said"), marks.secret("what is said afterwards"));
    let nodes = [node(&cloudly, &setup, &mark).await, node(&cloudly, &setup, &mark).await];
    for node in &nodes {
        converse(&cloudly, node, MARKED, &mark, 0).await;
    }
    // The buffers of a socket and the stack keep what passed last until they are used again. So something else
    // passes, by other methods and of more than a buffer's length, which changes nothing of what is kept.
    let last = node(&cloudly, &setup, &other).await;
    for node in nodes.iter().chain([&last]) {
        converse(&cloudly, node, AFTERWARDS, &other, MORE).await;
        converse(&cloudly, node, AFTERWARDS, &other, 0).await;
    }
    cloudly.go_away().await;
    relay.wait_line("the Cloudly session is lost").await.unwrap();

    let workers = relay.workers();
    assert_eq!(workers.keys().collect::<Vec<_>>(), ["pulld", "relayd", "vpnd"]);
    // What an entry does hold is found, whole.
    for node in &nodes {
        let binding: Value = serde_json::from_str(&node.binding().unwrap()).unwrap();
        let session = binding["sessionId"].as_str().unwrap();
        let places = found(workers["relayd"], session);
        assert!(places.iter().any(|place| place.length == session.len()), "{session}: {places:?}");
    }
    let processes = workers.iter().map(|(role, pid)| (role.as_str(), *pid));
    for (process, pid) in processes.chain([("supervisor", relay.pid())]) {
        assert_eq!(found(pid, &mark), [], "{process} holds something that was said");
        assert_eq!(open_files(pid), [] as [PathBuf; 0], "{process} has a file open");
    }
    for node in &nodes {
        assert_eq!((node.closes().len(), node.registrations().len()), (0, 1), "it is carried all along");
    }
    assert_eq!(files(&home), before, "a file was made or changed");

    // The same looks find what is there: this process is the nodes and Cloudly, and it writes a file now.
    assert!(found(std::process::id(), &mark).len() >= 12);
    let kept = home.join("kept");
    let open = std::fs::File::create(&kept).unwrap();
    assert!(open_files(std::process::id()).contains(&kept));
    assert_ne!(files(&home), before);
    drop(open);
}
