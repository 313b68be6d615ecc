//! A soak: the real relay among peers that fail in every way, at random times drawn from a seed, while
//! messages go both ways all the time. Afterwards everything has to stand as if nothing had happened.
//!
//! What it promises when it passes:
//!
//! - Each request and each push has at most one answer, which is its own (FWD-03, FWD-06, FWD-22, FWD-23);
//!   bodies are what was sent, byte for byte (FWD-02, FWD-39); every refusal has a name; see [`ledger`].
//! - With the faults over, the relay is accepted, holds one session (SES-01, SES-09), and every node is carried
//!   (FWD-24, FWD-34, OUT-04, OUT-15), within [`RECOVERY`]; then every message is answered.
//! - No worker died that no fault killed, each that died was named and started again (ARC-18), and the relay
//!   called nothing else an error.
//! - No descriptor, thread, child or memory has leaked; see [`growth`].
//! - It stops on SIGTERM with 0 and leaves no process (ARC-20).
//!
//! Parts: [`plan`] and [`fault`] (what happens), [`mischief`] (doing it), [`traffic`], [`body`] and [`ledger`] (what is
//! sent and whether it balances), [`fleet`] (the nodes), [`census`] and [`growth`] (what the processes hold),
//! [`journal`] (what they say), [`settling`] (the end), [`report`].

pub mod body;
pub mod census;
pub mod chance;
pub mod fault;
pub mod fleet;
pub mod growth;
pub mod journal;
pub mod ledger;
pub mod mischief;
pub mod plan;
pub mod report;
pub mod settling;
pub mod stage;
pub mod traffic;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::authority::Authority;
use crate::cloudly::Cloudly;
use crate::free_port::free_port;
use crate::relay::RelaySetup;

use census::Census;
use fleet::Fleet;
use plan::Plan;
use report::{Report, SoakFailure};
use stage::Stage;

/// Within this time of the last fault the relay and all nodes are back: the longest wait before Cloudly is
/// dialled (60 s), a dial that hangs (15 s), the longest restart delay (30 s), and a node's rejected
/// registration and restart.
pub const RECOVERY: Duration = Duration::from_secs(150);

/// An identity's life: short, so that a run of seconds renews one on the standing session (SES-08).
const IDENTITY_LIFETIME: Duration = Duration::from_secs(20);

/// How long the traffic of the warm-up runs.
const WARM_UP: Duration = Duration::from_secs(4);

/// How old an entry of the books is when it is closed: a node that hangs reads late answers for longer than
/// any fault lasts.
const CLOSED_AFTER: Duration = Duration::from_secs(180);

/// What is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long faults are done.
    pub length: Duration,
    /// What they are drawn from.
    pub seed: u64,
    /// How many nodes there are.
    pub nodes: usize,
    /// Where `coreflow` and its workers are; `None` builds them.
    pub binaries: Option<PathBuf>,
}

/// Runs a soak to its end.
///
/// # Errors
/// [`SoakFailure`] with everything that did not hold.
///
/// # Panics
/// When the relay cannot be built or started at all.
pub async fn run(options: &Options) -> Result<Report, SoakFailure> {
    let stage = start(options).await;
    let mut course = Course { stage, report: Report::new(options), samples: Vec::new() };
    course.run(options).await;
    let Course { stage, mut report, samples } = course;
    report.failures.extend(growth::grown(&samples));
    report.trends(&samples);
    settling::stop(stage, &mut report).await;
    report.judged()
}

async fn start(options: &Options) -> Stage {
    let authority = Authority::new();
    let mut setup = RelaySetup::new(&authority)
        .variable("COREFLOW_VPN_BIND_HOSTNAME", "127.0.0.1")
        .variable("COREFLOW_VPN_QUIC_PORT", &free_port().to_string());
    setup.executables.clone_from(&options.binaries);
    let ids = Fleet::ids(options.nodes);
    let mut settings = setup.cloudly_settings();
    settings.nodes = ids.iter().map(|id| (id.clone(), format!("pallet-bearer-of-{id}"))).collect();
    settings.identity_lifetime = IDENTITY_LIFETIME;
    let cloudly = Cloudly::start(&authority, settings).await;
    let setup = setup.facing(&cloudly);
    let relay = setup.start();
    let books = Arc::new(Mutex::default());
    let fleet = Fleet::start(&setup.target(), ids, books.clone());
    Stage::new(cloudly, relay, setup.target(), fleet, books)
}

struct Course {
    stage: Stage,
    report: Report,
    samples: Vec<(Duration, Census)>,
}

impl Course {
    async fn run(&mut self, options: &Options) {
        let begin = Instant::now();
        let plan = Plan::draw(options.seed, options.length, options.nodes);
        let Self { stage, report, samples } = self;
        let stage = &*stage;
        let events = async {
            if !settling::recovered(stage, report, 0, "the start").await {
                return;
            }
            warm_up(stage, options).await;
            let before = settling::at_rest(stage, None).await;
            report.before = before.clone();
            let (stop, stopped) = watch::channel(false);
            let faults = async {
                mischief::run(stage, &plan).await;
                let whole = settling::settle(stage, report).await;
                stop.send_replace(true);
                whole
            };
            let (whole, ()) = tokio::join!(faults, traffic::run(stage, options.seed, &stopped));
            if whole {
                report.after = settling::at_rest(stage, Some(&before)).await;
                report.failures.extend(growth::compare(&report.before, &report.after));
            }
        };
        tokio::select! {
            () = events => {}
            () = stage.fleet.tend() => {}
            () = observe(stage, begin, samples) => {}
        }
        settling::account(stage, report);
    }
}

/// The load of the run without its faults.
async fn warm_up(stage: &Stage, options: &Options) {
    let (stop, stopped) = watch::channel(false);
    let warming = async {
        tokio::time::sleep(WARM_UP).await;
        stop.send_replace(true);
    };
    tokio::join!(warming, traffic::run(stage, !options.seed, &stopped));
}

/// Samples what the processes hold, and keeps what was collected small.
async fn observe(stage: &Stage, begin: Instant, samples: &mut Vec<(Duration, Census)>) {
    loop {
        samples.push((begin.elapsed(), census::take(stage.relay.pid())));
        stage.collect();
        stage.books().close_older(CLOSED_AFTER, Instant::now());
        drop(stage.journal());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
