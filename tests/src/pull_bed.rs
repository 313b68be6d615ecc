//! A relay whose registry is the scripted double: what the tests of pulls begin with. What the relay wrote is
//! shown when a test fails.

use crate::authority::Authority;
use crate::cloudly::{Cloudly, Settings};
use crate::dial::Target;
use crate::puller::{Pulled, pull};
use crate::registry::Registry;
use crate::relay::{Relay, RelaySetup};
use crate::waiting::{BOUND, poll};

/// A digest, for paths.
pub const DIGEST: &str = "sha256:abababababababababababababababababababababababababababababababab";
/// A path of a manifest.
pub const MANIFEST: &str = "/v2/a/b/manifests/v1";

/// The parties.
pub struct PullBed {
    /// Cloudly, at whose origin the registry is.
    pub cloudly: Cloudly,
    /// The registry.
    pub registry: Registry,
    /// How the relay was started.
    pub setup: RelaySetup,
    /// The relay.
    pub relay: Relay,
}

impl PullBed {
    /// A relay that is open and through which a pull passes.
    ///
    /// # Panics
    /// When it does not open, or the pull does not pass in time.
    pub async fn open() -> Self {
        Self::open_with(|_, _| {}).await
    }

    /// [`PullBed::open`], where `prepare` changes how the relay is set up and Cloudly's facts before the start.
    ///
    /// # Panics
    /// As [`PullBed::open`].
    pub async fn open_with(prepare: impl FnOnce(&mut RelaySetup, &mut Settings)) -> Self {
        let bed = Self::start(prepare, |_| {}).await;
        bed.relay.wait_open().await.expect("the relay opens");
        bed.wait_served().await;
        bed
    }

    /// A relay that was just started, in front of a Cloudly that `script` told how to answer.
    pub async fn start(
        prepare: impl FnOnce(&mut RelaySetup, &mut Settings),
        script: impl FnOnce(&Cloudly),
    ) -> Self {
        let authority = Authority::new();
        let mut setup = RelaySetup::new(&authority);
        let mut settings = setup.cloudly_settings();
        prepare(&mut setup, &mut settings);
        let cloudly = Cloudly::start(&authority, settings).await;
        script(&cloudly);
        let registry = Registry::default();
        cloudly.pulls_from(&registry);
        let setup = setup.facing(&cloudly);
        Self { relay: setup.start(), cloudly, registry, setup }
    }

    /// Waits until pulld serves: until then the relay says that it does not.
    ///
    /// # Panics
    /// When that takes too long, or the relay says something else meanwhile.
    pub async fn wait_served(&self) {
        let serving = async {
            while pull(&self.h1(), "GET", "/v2/", &[]).await.status == 503 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        crate::waiting::within(BOUND, "pull that is served", serving).await.expect("pulld serves");
    }

    /// The relay, dialled as an HTTP/1.1 client does.
    pub fn h1(&self) -> Target {
        self.setup.target_offering(&["http/1.1"])
    }

    /// The relay, dialled as an HTTP/2 client does.
    pub fn h2(&self) -> Target {
        self.setup.target_offering(&["h2"])
    }

    /// One GET over HTTP/1.1.
    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Pulled {
        pull(&self.h1(), "GET", path, headers).await
    }

    /// One request over HTTP/1.1 and one over HTTP/2, and both answers.
    pub async fn over_both(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> [Pulled; 2] {
        [pull(&self.h1(), method, path, headers).await, pull(&self.h2(), method, path, headers).await]
    }

    /// How many lines with `part` the relay has written.
    pub fn lines(&self, part: &str) -> usize {
        self.relay.lines().iter().filter(|line| line.text.contains(part)).count()
    }

    /// Waits for the `count`th line with `part`.
    ///
    /// # Panics
    /// When it does not come.
    pub async fn wait_lines(&self, part: &str, count: usize) {
        let what = format!("line {count} of the relay with \"{part}\"");
        poll(BOUND, &what, || (self.lines(part) >= count).then_some(())).await.expect("the relay says so");
    }

    /// Every process of the relay.
    pub fn processes(&self) -> Vec<u32> {
        self.relay.workers().into_values().chain([self.relay.pid()]).collect()
    }
}

impl Drop for PullBed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for line in self.relay.lines() {
                eprintln!("relay: {}", line.text);
            }
            for asked in self.registry.asked() {
                eprintln!("registry: {asked:?}");
            }
        }
    }
}
