//! A relay in front of a loopback Cloudly, as most tests begin. What the relay wrote is shown when
//! the test fails.

use std::time::Duration;

use coreflow_tests::authority::Authority;
use coreflow_tests::cloudly::Cloudly;
use coreflow_tests::pallet::{PalletNode, Setup};
use coreflow_tests::relay::{Relay, RelaySetup};
use coreflow_tests::waiting::{BOUND, poll};

/// Cloudly and the relay that faces it.
pub(crate) struct Scene {
    pub(crate) cloudly: Cloudly,
    pub(crate) setup: RelaySetup,
    pub(crate) relay: Relay,
}

impl Scene {
    /// Starts the relay; `prepare` scripts Cloudly and changes the setup before that.
    pub(crate) async fn start(prepare: impl FnOnce(&Cloudly, RelaySetup) -> RelaySetup) -> Self {
        Self::start_with(&Authority::new(), prepare).await
    }

    /// [`Scene::start`] with certificates of `authority`.
    pub(crate) async fn start_with(
        authority: &Authority,
        prepare: impl FnOnce(&Cloudly, RelaySetup) -> RelaySetup,
    ) -> Self {
        let setup = RelaySetup::new(authority).notified().controlled();
        let cloudly = Cloudly::start(authority, setup.cloudly_settings()).await;
        let setup = setup.facing(&cloudly);
        let setup = prepare(&cloudly, setup);
        let relay = setup.start();
        Self { cloudly, setup, relay }
    }

    /// A relay that is open and whose registration Cloudly accepted.
    pub(crate) async fn open(prepare: impl FnOnce(&Cloudly)) -> Self {
        let scene = Self::start(|cloudly, setup| {
            prepare(cloudly);
            setup
        })
        .await;
        scene.relay.wait_open().await.expect("the relay opens");
        scene.cloudly.wait_accepted(1).await.expect("Cloudly accepts the relay");
        scene
    }

    /// A node that is carried.
    pub(crate) async fn node(&self, id: &str) -> PalletNode {
        let node = PalletNode::start(Setup::new(self.setup.target(), id));
        node.wait_registered(1).await.expect("the node registers");
        node
    }

    /// How many lines with `part` the relay has written.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.relay.lines().iter().filter(|line| line.text.contains(part)).count()
    }

    /// Waits for the `count`th line with `part`.
    pub(crate) async fn wait_lines(&self, part: &str, count: usize) {
        let what = format!("line {count} of the relay with \"{part}\"");
        poll(BOUND, &what, || (self.count(part) >= count).then_some(())).await.expect("the relay says so");
    }

    /// Waits until what the service manager was told last begins with `status` (PROT-35).
    pub(crate) async fn wait_status(&self, status: &str) {
        let last = || {
            let messages = self.relay.notify()?.messages();
            let stated = messages.iter().rev().flat_map(|message| message.lines());
            let last = stated.filter_map(|line| line.strip_prefix("STATUS=")).next()?;
            last.starts_with(status).then_some(())
        };
        poll(BOUND, &format!("status {status}"), last).await.expect("the relay states so");
    }

    /// Checks that the node's requests reach Cloudly and Cloudly's pushes the node (REG-28).
    pub(crate) async fn assert_carried(&self, node: &PalletNode) {
        let binding = node.binding().expect("the node is registered");
        let body = format!(r#"{{"session":{binding}}}"#);
        let answer = node.request("getRuntimeRegistryCredential", &body).await.expect("an answer");
        answer.outcome().expect("Cloudly's answer");
        let body = format!(r#"{{"session":{binding},"assignment":{{"w":1}}}}"#);
        let push = self.cloudly.push_within("applyRuntimeAssignment", &body, Duration::from_secs(9));
        push.await.expect("an answer").outcome().expect("the node's acknowledgement");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for line in self.relay.lines() {
                eprintln!("relay: {}", line.text);
            }
        }
    }
}
