//! The story of one relay in half a minute: nodes are carried, pull an image and reach each other by the
//! managed VPN, an ingress serves a page, all of it but the pull goes on while Cloudly is away and the nodes are
//! offered the DNS leases that were signed ahead, the relay's worker dies, and everything ends cleanly.

mod image_pull;
mod ingress;
mod outage;
mod vpn;

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::authority::Authority;
use crate::cloudly::Cloudly;
use crate::free_port::free_port;
use crate::pallet::{PalletNode, Setup};
use crate::processes::is_alive;
use crate::relay::{Relay, RelaySetup};
use crate::waiting::poll;
use image_pull::ImagePull;
use ingress::Ingress;
use outage::Leases;
use vpn::Vpn;

/// How long the whole story may take once the binaries are built.
const STORY: Duration = Duration::from_secs(30);

/// Windows of DNS leases that the outage spans.
const WINDOWS: usize = 4;

/// How long the relay may take to stop.
const STOP: Duration = Duration::from_secs(10);

/// The nodes of the story.
const NODES: [&str; 2] = ["node-1", "node-2"];

/// The step that did not happen, and why.
#[derive(Debug)]
pub struct DemoFailure {
    step: &'static str,
    reason: String,
}

impl fmt::Display for DemoFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FAILED  {}: {}", self.step, self.reason)
    }
}

impl std::error::Error for DemoFailure {}

/// Performs `action` as one step of the story and prints its line.
async fn step<T, E: fmt::Display>(
    name: &'static str,
    action: impl Future<Output = Result<T, E>>,
) -> Result<T, DemoFailure> {
    let begin = Instant::now();
    let done = action.await.map_err(|error| DemoFailure { step: name, reason: error.to_string() })?;
    println!("ok  {name} ({} ms)", begin.elapsed().as_millis());
    Ok(done)
}

/// Performs `action` as one step of the story, whose line says what it saw. `name` is the step's where it fails.
async fn report(
    name: &'static str,
    action: impl Future<Output = Result<String, String>>,
) -> Result<(), DemoFailure> {
    let begin = Instant::now();
    let seen = action.await.map_err(|reason| DemoFailure { step: name, reason })?;
    println!("ok  {seen} ({} ms)", begin.elapsed().as_millis());
    Ok(())
}

/// Tells the story, with the executables in `binaries`, or with those that are built for it.
///
/// # Errors
/// [`DemoFailure`] at the first step that does not happen within its bound.
pub async fn run(binaries: Option<PathBuf>) -> Result<(), DemoFailure> {
    if binaries.is_none() {
        let built = async { tokio::task::spawn_blocking(crate::binaries::binaries).await };
        step("the four binaries are built", built).await?;
    }
    let authority = Authority::new();
    let mut setup = RelaySetup::new(&authority);
    setup.executables = binaries;
    let cloudly = Cloudly::start(&authority, setup.cloudly_settings()).await;
    let setup = setup
        .facing(&cloudly)
        .controlled()
        .variable("COREFLOW_VPN_BIND_HOSTNAME", "127.0.0.1")
        .variable("COREFLOW_VPN_QUIC_PORT", &free_port().to_string());
    let mut relay = setup.start();
    let told = tokio::time::timeout(STORY, tell(&setup, &cloudly, &mut relay)).await;
    let too_long = || DemoFailure { step: "the whole story", reason: format!("it took over {STORY:?}") };
    let told = told.unwrap_or_else(|_| Err(too_long()));
    if told.is_err() {
        for line in relay.lines() {
            eprintln!("relay: {}", line.text);
        }
    }
    told
}

async fn tell(setup: &RelaySetup, cloudly: &Cloudly, relay: &mut Relay) -> Result<(), DemoFailure> {
    step("the relay is open for Cloudly dispatch", relay.wait_open()).await?;
    step("Cloudly accepted the relay's registration", cloudly.wait_accepted(1)).await?;
    let nodes = NODES.map(|id| PalletNode::start(Setup::new(setup.target(), id).keeping_network()));
    step("two nodes registered through the relay", registered(&nodes, 1)).await?;
    step("an assignment reached each node and its acknowledgement came back", push(cloudly, &nodes)).await?;
    let image = ImagePull::at(cloudly, setup.target(), setup.origin());
    image.tell(cloudly, &nodes[0]).await?;
    let mut vpn = Vpn::tell(cloudly).await?;
    let ingress = Ingress::tell(cloudly, setup.target()).await?;
    let mut leases = Leases::hold(cloudly, &nodes).await?;

    step("Cloudly went away", async {
        cloudly.go_away().await;
        cloudly.wait_open_connections(0).await
    })
    .await?;
    leases.window(&nodes).await?;
    vpn.cross("packets crossed without Cloudly").await?;
    ingress.alone().await?;
    for _ in 1..WINDOWS {
        leases.window(&nodes).await?;
    }
    leases.outlived(&nodes).await?;
    step("Cloudly came back on the same port", cloudly.come_back()).await?;
    step("the relay registered again", cloudly.wait_accepted(2)).await?;
    let carried = async {
        for node in &nodes {
            node.wait_close(1).await?;
        }
        registered(&nodes, 2).await
    };
    step("each node was asked to register again, and did", carried).await?;
    step("assignments reach the nodes again", push(cloudly, &nodes)).await?;
    ingress.renew(cloudly).await?;
    leases.end(cloudly, &nodes).await?;

    let killed = relay.kill_worker("relayd");
    step("relayd was killed and started again", relay.wait_worker("relayd", killed)).await?;
    step("each node registered on the new relayd", registered(&nodes, 3)).await?;
    step("assignments reach the nodes through it", push(cloudly, &nodes)).await?;
    step("the image was pulled through it", image.again()).await?;
    vpn.cross("packets crossed on the tunnels of before").await?;
    vpn.withdraw(cloudly, relay).await?;

    let mut left: Vec<u32> = relay.workers().into_values().collect();
    left.push(relay.pid());
    drop((nodes, ingress));
    relay.signal(Signal::SIGTERM);
    let stopped = async {
        match relay.wait_exit(STOP).await {
            Ok(0) => Ok(()),
            Ok(code) => Err(format!("the exit code is {code}")),
            Err(late) => Err(late.to_string()),
        }
    };
    step("the relay stopped on SIGTERM with exit 0", stopped).await?;
    let gone = || left.iter().all(|pid| !is_alive(*pid)).then_some(());
    step("no process is left", poll(STOP, "end of every process", gone)).await?;
    step("no worker died but the one that was killed", async { only_death(relay) }).await
}

/// A worker that dies unasked is started again and could go unnoticed.
fn only_death(relay: &Relay) -> Result<(), String> {
    let deaths: Vec<String> = relay
        .lines()
        .into_iter()
        .map(|line| line.text)
        .filter(|line| line.contains("it is started again"))
        .collect();
    match &deaths[..] {
        [killed] if killed.contains("relayd") && killed.contains("SIGKILL") => Ok(()),
        deaths => Err(deaths.join("; ")),
    }
}

async fn registered(nodes: &[PalletNode], count: usize) -> Result<(), crate::waiting::Late> {
    for node in nodes {
        node.wait_registered(count).await?;
    }
    Ok(())
}

/// Pushes an assignment to each node and checks that the acknowledgement is that node's.
async fn push(cloudly: &Cloudly, nodes: &[PalletNode]) -> Result<(), String> {
    for node in nodes {
        let binding = node.binding().ok_or("a node has no binding")?;
        let body = format!(r#"{{"session":{binding},"assignment":{{"workload":"web","replicas":1}}}}"#);
        let answer =
            cloudly.push("applyRuntimeAssignment", &body).await.map_err(|error| error.to_string())?;
        let acknowledged = answer.outcome().map_err(|refusal| refusal.to_string())?;
        let acknowledged: Value =
            serde_json::from_str(acknowledged.get()).map_err(|error| error.to_string())?;
        let asked: Value = serde_json::from_str(&binding).map_err(|error| error.to_string())?;
        if acknowledged["session"] != asked {
            return Err("an acknowledgement is for another session".to_owned());
        }
    }
    Ok(())
}
