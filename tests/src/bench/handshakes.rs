//! Full TLS handshakes of each relay's listener: how many in a second, and how many in a second of its CPU.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::arguments::Arguments;
use super::contestant::{Contestant, Ground, Kind};
use super::node::shake_hands;

/// Handshakes under way at the same time.
const AT_ONCE: usize = 32;
/// Node numbers, and with them source addresses, that the handshakes go round.
const SOURCES: usize = 4096;

/// What one relay did over all rounds.
#[derive(Debug, Default)]
pub struct Shaken {
    /// Handshakes that ended in order.
    pub count: u32,
    /// How long was measured.
    pub elapsed: Duration,
    /// CPU time the relay's processes used meanwhile.
    pub cpu: Duration,
}

impl Shaken {
    /// Handshakes per second.
    pub fn rate(&self) -> f64 {
        f64::from(self.count) / self.elapsed.as_secs_f64()
    }

    /// Handshakes per second of CPU.
    pub fn per_cpu_second(&self) -> f64 {
        f64::from(self.count) / self.cpu.as_secs_f64()
    }
}

/// Measures both relays, by turns in each round.
///
/// # Errors
/// What did not work, and with whom.
pub async fn measure(arguments: &Arguments, ground: &Ground<'_>) -> Result<BTreeMap<Kind, Shaken>, String> {
    let mut relays = Vec::new();
    for kind in Kind::RELAYS {
        let relay = Contestant::start(kind, ground).await?;
        round(&relay, arguments.measure / 2).await?;
        relays.push(relay);
    }
    let mut measured: BTreeMap<Kind, Shaken> = BTreeMap::new();
    for _ in 0..arguments.rounds {
        for relay in &relays {
            let round = round(relay, arguments.measure).await?;
            let sum = measured.entry(relay.kind).or_default();
            sum.count += round.count;
            sum.elapsed += round.elapsed;
            sum.cpu += round.cpu;
        }
        relays.reverse();
    }
    Ok(measured)
}

async fn round(relay: &Contestant, measure: Duration) -> Result<Shaken, String> {
    let cpu = relay.cpu()?;
    let begin = Instant::now();
    let mut dialling = JoinSet::new();
    for lane in 0..AT_ONCE {
        let dial = relay.dial.clone();
        dialling.spawn(async move {
            let mut count = 0_u32;
            while begin.elapsed() < measure {
                let turn = usize::try_from(count).expect("a count fits");
                shake_hands(&dial, (lane + turn * AT_ONCE) % SOURCES).await?;
                count += 1;
            }
            Ok::<_, String>(count)
        });
    }
    let mut count = 0;
    while let Some(done) = dialling.join_next().await {
        count += done.expect("a lane does not panic").map_err(|why| relay.blame(&why))?;
    }
    let shaken = Shaken { count, elapsed: begin.elapsed(), cpu: relay.cpu()? - cpu };
    if shaken.count == 0 || shaken.cpu.is_zero() {
        return Err(relay.blame("no handshake that cost anything"));
    }
    Ok(shaken)
}
