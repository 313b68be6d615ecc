//! Requests through each relay: how many, how fast, and what a request costs, at several numbers in flight.
//!
//! As many nodes as requests are in flight ask one after the other, each on its own TLS connection: every
//! request is a message of its own to the relay. The same nodes' exchange with Cloudly directly is measured
//! beside; what a time through the relay has more is the relay's.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::arguments::Arguments;
use super::contestant::{Contestant, Ground, Kind};
use super::crowd::Crowd;
use super::latencies::Latencies;

/// What one contestant did at one number in flight, over all rounds.
#[derive(Debug, Default)]
pub struct Measured {
    /// Time of each exchange; as many as there were.
    pub latencies: Latencies,
    /// How long was measured.
    pub elapsed: Duration,
    /// CPU time the relay's processes used meanwhile.
    pub cpu: Duration,
}

impl Measured {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        count(&self.latencies) / self.elapsed.as_secs_f64()
    }

    /// CPU time per request, in microseconds.
    pub fn cpu_per_request(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / count(&self.latencies)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of samples are far below 2^52")]
fn count(latencies: &Latencies) -> f64 {
    latencies.len() as f64
}

/// By contestant and number in flight.
pub type Forwarding = BTreeMap<(Kind, usize), Measured>;

struct Runner {
    contestant: Contestant,
    crowd: Crowd,
}

/// Measures all contestants, by turns in each round.
///
/// # Errors
/// What did not work, and with whom.
pub async fn measure(arguments: &Arguments, ground: &Ground<'_>) -> Result<Forwarding, String> {
    let most = arguments.loads.iter().copied().max().unwrap_or(1);
    let mut runners = Vec::new();
    for kind in [Kind::Coreflow, Kind::Node, Kind::Direct] {
        let contestant = Contestant::start(kind, ground).await?;
        let mut crowd = Crowd::default();
        crowd.grow(&contestant, most).await?;
        let mut runner = Runner { contestant, crowd };
        // A just-in-time compiler has seen the path by then, and so have all caches.
        runner.run(most.min(64), arguments.measure).await?;
        runners.push(runner);
    }
    let mut measured = Forwarding::new();
    for _ in 0..arguments.rounds {
        for load in arguments.loads.iter().copied() {
            // One right after the other: a machine whose speed changes changes it for all of them.
            for runner in &mut runners {
                let round = runner.run(load, arguments.measure).await?;
                let sum = measured.entry((runner.contestant.kind, load)).or_default();
                sum.latencies.merge(round.latencies);
                sum.elapsed += round.elapsed;
                sum.cpu += round.cpu;
            }
            runners.rotate_left(1);
        }
    }
    Ok(measured)
}

impl Runner {
    async fn run(&mut self, in_flight: usize, measure: Duration) -> Result<Measured, String> {
        let cpu = self.contestant.cpu()?;
        let begin = Instant::now();
        let latencies = self.crowd.ask(&self.contestant, in_flight, begin + measure).await?;
        let elapsed = begin.elapsed();
        let cpu = self.contestant.cpu()? - cpu;
        if latencies.is_empty() {
            return Err(self.contestant.blame("not one request was answered"));
        }
        Ok(Measured { latencies, elapsed, cpu })
    }
}
