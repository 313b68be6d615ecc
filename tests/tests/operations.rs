//! `coreflowctl` on a real relay: restart of each worker, its log level, the local roster, the trace of a link, and
//! answers of a worker that lies.
//!
//! Memory, descriptors and namespaces of other users' processes take root. Without it these tests fail; none is left
//! out.
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use coreflow_ipc::messages::Message;
use coreflow_ipc::messages::relayd::FromRelayd;
use coreflow_ipc::messages::standing::{NodePage, RelaydStanding};
use coreflow_tests::binaries::binaries;
use coreflow_tests::cloudly::Step;
use coreflow_tests::control::say;
use coreflow_tests::free_port::free_port;
use coreflow_tests::link_tap::{Injection, TappedRelease};
use coreflow_tests::relay::{Relay, RelaySetup};
use coreflow_tests::waiting::{BOUND, poll};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

#[path = "operations/isolation.rs"]
mod isolation;
#[path = "operations/metrics.rs"]
mod metrics;
#[path = "operations/output.rs"]
mod output;
#[path = "scene/scene.rs"]
mod scene;
#[path = "operations/trace.rs"]
mod trace;

use scene::Scene;

const ROLES: [&str; 3] = ["relayd", "pulld", "vpnd"];
const SESSION: &str = "registerCloudlyClientSession";
const NODE: &str = "registerPalletRuntimeSession";
/// Nodes of a roster: enough that asking all of them to register again takes seconds.
const NODES: u64 = 48;

/// The setup with a hub, so that vpnd runs.
fn with_hub(setup: RelaySetup) -> RelaySetup {
    setup
        .variable("COREFLOW_VPN_BIND_HOSTNAME", "127.0.0.1")
        .variable("COREFLOW_VPN_QUIC_PORT", &free_port().to_string())
}

/// A relay with a hub that is open, with its three workers.
async fn opened() -> (Scene, BTreeMap<String, u32>) {
    let scene = Scene::start(|_, setup| with_hub(setup)).await;
    scene.relay.wait_open().await.unwrap();
    scene.cloudly.wait_accepted(1).await.unwrap();
    let workers = all_workers(&scene.relay).await;
    (scene, workers)
}

async fn all_workers(relay: &Relay) -> BTreeMap<String, u32> {
    let look = || Some(relay.workers()).filter(|workers| workers.len() == ROLES.len());
    poll(BOUND, "relayd, pulld and vpnd", look).await.unwrap()
}

/// OPS-02, ARC-18: each worker is restarted by command while the others go on, in order and without being counted as a
/// crash; what the nodes have goes on or comes back, and who asked is written down.
#[tokio::test]
async fn each_worker_is_restarted_by_command() {
    let (scene, mut before) = opened().await;
    let node = scene.node("node-1").await;
    for role in ["pulld", "vpnd", "relayd"] {
        let said = scene.relay.ctl(&["restart", role]).await;
        assert_eq!(scene.relay.status_json().await["state"], json!("open"), "{role} does not serve yet");
        let after = all_workers(&scene.relay).await;
        let what = match role {
            "relayd" => "it is open for Cloudly dispatch",
            "pulld" => "it answers",
            _ => "no network is held, as before",
        };
        let told = format!("{role} runs again, pid {}, which was {}: {what}\n", after[role], before[role]);
        assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (Some(0), told.as_str(), ""));
        let changed: BTreeSet<&str> =
            ROLES.into_iter().filter(|role| before[*role] != after[*role]).collect();
        assert_eq!(changed, BTreeSet::from([role]));
        let asked = written(&scene, &format!("INFO supervisor: {RESTARTED}"), role).await;
        assert!(asked.contains(" client=") && asked.ends_with(" user=0"), "{asked}");
        scene
            .relay
            .wait_line(&format!("{role}: the worker ended and is started again, by command"))
            .await
            .unwrap();
        if role == "relayd" {
            scene.relay.wait_line("relayd serves again").await.unwrap();
            scene.wait_status("open for Cloudly dispatch").await;
            node.wait_registered(2).await.unwrap();
        } else {
            assert_eq!(node.registrations().len(), 1, "the restart of {role} touched a node");
        }
        scene.assert_carried(&node).await;
        before = after;
    }
    assert_eq!((scene.count("it is started again in"), scene.count("is killed")), (0, 0));
    let ready = |status: &Value| status["readiness"]["ready"] == json!(true);
    let status = scene.relay.wait_status_json("a ready relay", ready).await.unwrap();
    for worker in status["workers"].as_array().unwrap() {
        assert_eq!((&worker["state"], &worker["restarts"]), (&json!("running"), &json!(0)), "{worker}");
    }
}

const RESTARTED: &str = "the worker is restarted, by command";

/// The first line that begins so and is of what somebody did to `process`.
async fn written(scene: &Scene, beginning: &str, process: &str) -> String {
    let process = format!(" process={process} ");
    let look = || {
        let lines = scene.relay.lines().into_iter();
        lines.map(|line| line.text).find(|text| text.starts_with(beginning) && text.contains(&process))
    };
    poll(BOUND, beginning, look).await.unwrap()
}

/// LIS-23: the socket is held no longer for a relayd that takes long to end for a restart by command than for one that
/// died; the next one gets a new socket.
#[tokio::test]
async fn a_relayd_that_takes_long_to_end_does_not_hold_the_listener() {
    let scene = Scene::open(|_| {}).await;
    let relayd = scene.relay.workers()["relayd"];
    scene.relay.signal_worker("relayd", relayd, Signal::SIGSTOP);
    let closed = async {
        let closed = "relayd does not serve: the listener is closed until it is open again";
        scene.relay.wait_line(closed).await.unwrap();
        assert_eq!(scene.count("it is started again, by command"), 0, "it closed before relayd ended");
        scene.relay.signal_worker("relayd", relayd, Signal::SIGCONT);
    };
    let (said, ()) = tokio::join!(scene.relay.ctl(&["restart", "relayd"]), closed);
    assert_eq!(said.code, Some(0), "{said:?}");
    scene.relay.wait_line("relayd: the worker ended and is started again, by command").await.unwrap();
    scene.relay.wait_line("relayd serves again").await.unwrap();
    let node = scene.node("node-1").await;
    scene.assert_carried(&node).await;
}

/// A worker that does not end by itself is killed in time and started again all the same, and no restart of one that
/// the relay does not need is made.
#[tokio::test]
async fn a_restart_is_carried_out_or_refused_by_name() {
    let scene = Scene::open(|_| {}).await;
    let said = scene.relay.ctl(&["restart", "vpnd"]).await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
    assert_eq!(said.stderr, "control-worker-absent: vpnd does not run\n");

    let pulld = scene.relay.workers()["pulld"];
    scene.relay.signal_worker("pulld", pulld, Signal::SIGSTOP);
    let said = scene.relay.ctl(&["restart", "pulld"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    scene.relay.wait_line("pulld: the worker is killed: it does not end in time").await.unwrap();
    scene.relay.wait_line("the worker killed by SIGKILL; it is started again, by command").await.unwrap();
    let status = scene.relay.status_json().await;
    assert_eq!(status["workers"][1]["restarts"], json!(0));
}

/// LOG-02, OPS-02: a level holds for its process alone, from the command on and through a restart of the worker.
#[tokio::test]
async fn a_log_level_is_of_one_process_and_lasts() {
    let scene = Scene::open(|_| {}).await;
    let debugs = |process: &str| {
        let lines = scene.relay.lines();
        lines.iter().filter(|line| line.text.starts_with(&format!("DEBUG {process}: "))).count()
    };
    let levels = async || {
        let (code, workers) = scene.relay.ctl_json(&["workers"]).await;
        let level = |worker: &Value| (worker["role"].clone(), worker["level"].clone());
        assert_eq!(code, Some(0));
        workers.as_array().unwrap().iter().map(level).collect::<Vec<_>>()
    };
    let said = scene.relay.ctl(&["log", "relayd", "debug"]).await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "relayd records at debug, before at info\n"));
    // The end of a node's socket is such a line.
    scene.node("node-1").await.stop();
    poll(BOUND, "a debug line of relayd", || (debugs("relayd") > 0).then_some(())).await.unwrap();
    assert_eq!((debugs("supervisor"), debugs("pulld")), (0, 0));
    scene.wait_lines("node node-1 is gone", 1).await;
    assert_eq!(scene.relay.ctl(&["restart", "relayd"]).await.code, Some(0));
    let expected = [("supervisor", "info"), ("relayd", "debug"), ("pulld", "info"), ("vpnd", "info")];
    assert_eq!(levels().await, expected.map(|(role, level)| (json!(role), json!(level))));
    scene.relay.wait_line("relayd serves again").await.unwrap();
    let before = debugs("relayd");
    scene.node("node-2").await.stop();
    poll(BOUND, "a debug line of the next relayd", || (debugs("relayd") > before).then_some(()))
        .await
        .unwrap();

    let said = scene.relay.ctl(&["log", "relayd", "info"]).await;
    assert_eq!(said.stdout, "relayd records at info, before at debug\n");
    let before = debugs("relayd");
    scene.relay.ctl(&["log", "supervisor", "debug"]).await;
    scene.node("node-1").await.stop();
    scene.wait_lines("node node-1 is gone", 2).await;
    scene.relay.status_json().await;
    poll(BOUND, "a debug line of the supervisor", || (debugs("supervisor") > 0).then_some(())).await.unwrap();
    assert_eq!(debugs("relayd"), before);

    // What somebody did is written down whatever the supervisor records.
    for (level, word) in [("warn", "WARN"), ("error", "ERROR")] {
        scene.relay.ctl(&["log", "supervisor", level]).await;
        scene.relay.ctl(&["restart", "pulld"]).await;
        written(&scene, &format!("{word} supervisor: {RESTARTED}"), "pulld").await;
        scene.relay.ctl(&["log", "pulld", "info"]).await;
        written(&scene, &format!("{word} supervisor: the log level is INFO, by command"), "pulld").await;
    }
}

/// XTR-20, XTR-21, OPS-02: the roster has each node's id and how it stands, and nothing else: registered, carried while
/// there is no session, awaiting registration while one came back and the node was not asked yet. It is read over the
/// control socket.
#[tokio::test]
async fn the_roster_is_read_over_the_control_socket() {
    let ids: Vec<String> = (10..10 + NODES).map(|number| format!("node-{number}")).collect();
    let scene = Scene::open(|cloudly| {
        let enrolled = ids.iter().map(|id| (id.clone(), format!("pallet-bearer-of-{id}")));
        cloudly.change(|settings| settings.nodes.extend(enrolled));
    })
    .await;
    let said = scene.relay.ctl(&["nodes"]).await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "no node is connected\n"));
    let mut nodes = Vec::new();
    for id in ids.iter().rev() {
        nodes.push(scene.node(id).await);
    }
    let all = |state: &str| Value::from_iter(ids.iter().map(|id| json!({"id": id, "state": state})));
    assert_eq!(scene.relay.ctl_json(&["nodes"]).await, (Some(0), all("registered")));
    let said = scene.relay.ctl(&["nodes"]).await;
    assert!(said.stdout.starts_with("node-10  registered\nnode-11  registered\n"), "{}", said.stdout);
    scene.cloudly.always(SESSION, Step::Never);
    scene.cloudly.drop_connections();
    scene.relay.wait_line("the Cloudly session is lost").await.unwrap();
    assert_eq!(scene.relay.ctl_json(&["nodes"]).await, (Some(0), all("carried")));

    // They are asked one after the other to register again, so that most of them wait for that.
    scene.cloudly.always(NODE, Step::Never);
    scene.cloudly.ordinary(SESSION);
    scene.cloudly.drop_connections();
    let awaiting = |status: &Value| status["relayd"]["nodes"]["awaiting"].as_u64() > Some(NODES / 2);
    scene.relay.wait_status_json("nodes that await registration", awaiting).await.unwrap();
    let page = say(scene.relay.control_socket(), b"{\"command\":\"nodes\"}\n").await.unwrap();
    let page: Value = serde_json::from_str(&page).unwrap();
    let page = &page["nodes"];
    let listed = page["nodes"].as_array().unwrap();
    assert!(!listed.is_empty() && page["more"] == json!(false), "{page}");
    for node in listed {
        assert_eq!(
            (&node["state"], node.as_object().unwrap().len()),
            (&json!("awaitingRegistration"), 2),
            "{page}"
        );
    }
    // A page goes on behind the id that is named.
    let last = listed.last().unwrap()["id"].as_str().unwrap();
    let request = format!("{{\"command\":\"nodes\",\"after\":\"{last}\"}}\n");
    let page = say(scene.relay.control_socket(), request.as_bytes()).await.unwrap();
    assert_eq!(page, "{\"nodes\":{\"nodes\":[],\"more\":false}}\n");
}

/// A running `coreflowctl` whose lines are read as they come; it ends with this value.
struct Following {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Following {
    fn start(relay: &Relay, arguments: &[&str]) -> Self {
        let mut child = Command::new(binaries().join("coreflowctl"))
            .args(arguments)
            .arg("--socket")
            .arg(relay.control_socket())
            .env_clear()
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = std::sync::mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let _ = stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line));
        });
        Self { child, lines }
    }

    /// The lines up to one with `part`, that one among them.
    async fn until(&self, part: &str) -> Vec<String> {
        let mut read = Vec::new();
        let look = || {
            read.extend(self.lines.try_iter());
            let at = read.iter().position(|line| line.contains(part))?;
            Some(read[..=at].to_vec())
        };
        poll(BOUND, &format!("line of coreflowctl with {part}"), look).await.unwrap()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// LOG-01, OPS-02: a trace shows the messages of a link by name, number and length, also of the worker that takes the
/// traced one's place, and no secret is in it: neither the bearer nor the token of an identity.
#[tokio::test]
async fn a_trace_shows_messages_and_no_secret() {
    let (scene, before) = opened().await;
    let (text, documents) = (
        Following::start(&scene.relay, &["trace", "relayd"]),
        Following::start(&scene.relay, &["trace", "relayd", "--json"]),
    );
    text.until("supervisor -> relayd").await;
    scene.relay.wait_line("the worker's link is traced, by command").await.unwrap();
    scene.wait_lines("the worker's link is traced, by command", 2).await;
    assert_eq!(scene.relay.ctl(&["restart", "relayd"]).await.code, Some(0));
    let lines = text.until("-> AnswerIdentity").await;
    for part in ["-> Stop ", "<- Stopped ", "<- Hello ", "<- Confined ", "-> Start ", "<- AskIdentity "] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:#?}");
    }
    assert!(lines.last().unwrap().ends_with("granted"), "{lines:#?}");
    let documents = documents.until(r#""kind":"AnswerListener""#).await;
    let read: Vec<Value> = documents.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| read.iter().find(|message| message["kind"] == json!(kind)).unwrap();
    let (asked, answered, listener) = (of("AskIdentity"), of("AnswerIdentity"), of("AnswerListener"));
    assert_eq!((&asked["direction"], &answered["direction"]), (&json!("fromWorker"), &json!("toWorker")));
    assert_eq!(asked["id"], answered["id"]);
    assert!(answered["bytes"].as_u64() > asked["bytes"].as_u64());
    assert_eq!((&listener["descriptors"], &listener["note"]), (&json!(1), &json!("granted")));
    assert_eq!(of("Stop")["pid"], json!(before["relayd"]));
    assert_ne!(of("Hello")["pid"], json!(before["relayd"]));

    let seen = lines.join("\n") + &documents.join("\n");
    for secret in scene.cloudly.issued_jwts().into_iter().chain([scene.setup.bearer.clone()]) {
        assert!(!seen.contains(&secret));
    }
    drop(text);
    // Four at once; a place is free again when one is left.
    let more: Vec<Following> = (0..3).map(|_| Following::start(&scene.relay, &["trace", "vpnd"])).collect();
    for trace in &more {
        trace.until("supervisor -> vpnd").await;
    }
    let said = scene.relay.ctl(&["trace", "pulld"]).await;
    assert_eq!((said.code, said.stderr.split(": ").next()), (Some(1), Some("control-trace-busy")));
    assert_eq!(scene.relay.status().await.code, Some(0), "other commands are served");
}

/// ARC-13: an answer that nobody asked for, and a page of the roster that nobody asked for, end the worker by name; the
/// relay answers looks all the while and afterwards.
#[tokio::test]
async fn an_answer_that_nobody_asked_for_ends_its_worker() {
    let release = TappedRelease::lay_out(Path::new(env!("CARGO_BIN_EXE_coreflow-link-tap")), None);
    let scene = Scene::start(|_, mut setup| {
        setup.executables = Some(release.directory());
        setup
    })
    .await;
    scene.relay.wait_open().await.unwrap();
    let answers = [
        FromRelayd::AnswerStanding { id: 7_000_000, standing: Box::new(RelaydStanding::default()) },
        FromRelayd::AnswerNodes { id: 0, page: NodePage::default() },
    ];
    for (number, answer) in (1..).zip(answers) {
        let mut frame = Vec::new();
        answer.append(&mut frame).unwrap();
        release.inject("relayd", Injection::Bytes(&frame));
        scene
            .wait_lines(
                "ERROR relayd: the worker broke a rule of its link: it answers what nobody asked",
                number,
            )
            .await;
        scene.wait_lines("relayd serves again", number).await;
        let status =
            scene.relay.wait_status_json("an answer", |status| status["relayd"].is_object()).await.unwrap();
        assert_eq!(status["unanswered"], json!([]));
    }
}

/// OPS-02: a worker that does not answer costs a look its time and no more: what is known is told, and which worker
/// does not answer.
#[tokio::test]
async fn a_worker_that_does_not_answer_fails_no_look() {
    let scene = Scene::open(|_| {}).await;
    let relayd = scene.relay.workers()["relayd"];
    scene.relay.signal_worker("relayd", relayd, Signal::SIGSTOP);
    let status = scene.relay.status_json().await;
    assert_eq!((&status["relayd"], &status["unanswered"]), (&json!(null), &json!(["relayd"])));
    assert!(status["pulld"].is_object(), "{status}");
    let text = scene.relay.status().await.stdout;
    assert_eq!(text.matches("does not answer").count(), 1, "{text}");
    let said = scene.relay.ctl(&["nodes"]).await;
    assert_eq!((said.code, said.stderr.split(": ").next()), (Some(1), Some("control-worker-unanswered")));
    let figures = scene.relay.ctl(&["metrics"]).await.stdout;
    assert!(figures.contains("coreflow_worker_answering{worker=\"relayd\"} 0\n"), "{figures}");
    assert!(!figures.contains("coreflow_nodes_carried") && figures.ends_with("# EOF\n"), "{figures}");
    scene.relay.signal_worker("relayd", relayd, Signal::SIGCONT);
    let status =
        scene.relay.wait_status_json("an answer", |status| status["relayd"].is_object()).await.unwrap();
    assert_eq!(status["workers"][0]["pid"], json!(relayd), "the late answers cost it nothing");
}

/// OPS-02: `--watch` goes on by blocks on a pipe, through a relay that goes.
#[tokio::test]
async fn watching_goes_on_until_it_is_ended() {
    let mut scene = Scene::open(|_| {}).await;
    let watching = Following::start(&scene.relay, &["workers", "--watch", "1"]);
    let first = watching.until("vpnd").await;
    assert!(first[0].starts_with("worker ") && !first.concat().contains('\u{1b}'), "{first:?}");
    assert!(watching.until("vpnd").await.len() > first.len(), "a second block");
    let documents = Following::start(&scene.relay, &["workers", "--watch", "1", "--json"]);
    documents.until("vpnd").await;
    scene.relay.signal(Signal::SIGTERM);
    scene.relay.wait_exit(BOUND).await.unwrap();
    watching.until("control-unreachable: ").await;
    // Where documents are read, what went wrong is one.
    let missed = documents.until("control-unreachable: ").await;
    let missed: Value = serde_json::from_str(missed.last().unwrap()).unwrap();
    assert!(missed["error"].as_str().unwrap().starts_with("control-unreachable: "), "{missed}");
}
