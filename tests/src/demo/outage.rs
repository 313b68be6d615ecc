//! DNS leases through an outage: Cloudly signs renewals ahead, the relay holds them, and each node is offered the
//! current one while Cloudly is away, and none while it is there. The peers' clock is a fast one: their windows
//! begin a second and a half apart instead of ten minutes, and last beyond the relay's margin, which is not
//! sped up.

use std::time::Duration;

use super::{DemoFailure, NODES, report, step};
use crate::cloudly::{Cloudly, SignedRun, Windows, in_milliseconds};
use crate::pallet::{Judged, PalletNode, Verdict};
use crate::renewal::Projection;

/// From the begin of a window to that of the next.
const GRID: Duration = Duration::from_millis(1500);
/// How long a window has been open before the relay offers it.
const MARGIN: Duration = Duration::from_secs(30);
/// How long a window lasts: the margin, and what a busy machine may take to offer and admit it.
const LENGTH: Duration = Duration::from_secs(45);
/// As many as a run may have, which outlast the story's outage.
const COUNT: u64 = 32;

/// The runs that the relay holds, and how many renewals each node was offered so far, in the order of [`NODES`].
pub(super) struct Leases {
    runs: Vec<SignedRun>,
    offered: Vec<usize>,
}

impl Leases {
    /// Has Cloudly give each node a projection of the network, and the relay renewals of its DNS lease.
    pub(super) async fn hold(cloudly: &Cloudly, nodes: &[PalletNode]) -> Result<Self, DemoFailure> {
        let projection = Projection::new("network-1", 1);
        let served = serve(cloudly, &projection);
        step("each node pinned the signing authority and serves a projection", served).await?;
        let runs = hand_over(cloudly, &projection, 1);
        let runs = step("Cloudly signed 32 windows ahead for each, and the relay holds them", runs).await?;
        let leases = Self { runs, offered: vec![0; NODES.len()] };
        step("none was offered with Cloudly there", async { leases.unchanged(nodes) }).await?;
        Ok(leases)
    }

    /// Waits until each node was offered another window: a line for each offer.
    pub(super) async fn window(&mut self, nodes: &[PalletNode]) -> Result<(), DemoFailure> {
        for ((node, run), offered) in nodes.iter().zip(&self.runs).zip(&mut self.offered) {
            *offered += 1;
            report("a window was offered in the outage", async {
                let judged = node.wait_judged(*offered).await.map_err(|late| late.to_string())?;
                admitted(run, &node.judged()[..*offered - 1], &judged)
            })
            .await?;
        }
        Ok(())
    }

    /// The nodes' leases are in force, and the ones that they were given with Cloudly there have ended.
    pub(super) async fn outlived(&self, nodes: &[PalletNode]) -> Result<(), DemoFailure> {
        step("both leases are in force, and those given before the outage have ended", async {
            let now = in_milliseconds(Duration::ZERO);
            let given = |node: &PalletNode| node.judged().first().and_then(|judged| judged.lease_end);
            let outlived = |node: &PalletNode| given(node).is_some_and(|end| end < now) && node.is_leased();
            nodes.iter().all(outlived).then_some(()).ok_or("a node's lease is not the renewals'")
        })
        .await
    }

    /// With the session back, has Cloudly hand renewals over for the nodes' new bindings. Their windows open, and
    /// nobody is offered one.
    pub(super) async fn end(mut self, cloudly: &Cloudly, nodes: &[PalletNode]) -> Result<(), DemoFailure> {
        self.offered = nodes.iter().map(|node| node.judged().len()).collect();
        let projection = self.runs[0].projection.clone();
        let runs = hand_over(cloudly, &projection, COUNT + 1);
        self.runs = step("Cloudly signed windows ahead again, and the relay holds them", runs).await?;
        step("two of them opened with Cloudly there, and none was offered", async {
            let second = self.runs[0].renewals[1].renewal.not_before + in_ms(MARGIN);
            loop {
                let left = (second + in_ms(GRID) / 2).saturating_sub(in_milliseconds(Duration::ZERO));
                if left == 0 {
                    return self.unchanged(nodes);
                }
                tokio::time::sleep(Duration::from_millis(left)).await;
            }
        })
        .await
    }

    /// No node was offered anything since the last look.
    fn unchanged(&self, nodes: &[PalletNode]) -> Result<(), String> {
        let offered: Vec<usize> = nodes.iter().map(|node| node.judged().len()).collect();
        if offered != self.offered {
            return Err(format!("the nodes were offered {offered:?} renewals and not {:?}", self.offered));
        }
        Ok(())
    }
}

/// Pushes each node the authority that it is to pin, and the projection with a lease that ends soon.
async fn serve(cloudly: &Cloudly, projection: &Projection) -> Result<(), String> {
    let now = in_milliseconds(Duration::ZERO);
    let projection = projection.with_lease((now, now + in_ms(GRID)));
    for node in NODES {
        let pinned = cloudly.push_signing_authority(node).await;
        let served = cloudly.push_projection(node, &projection).await;
        for answer in [pinned, served] {
            let answer = answer.map_err(|failure| failure.to_string())?;
            answer.outcome().map_err(|refusal| refusal.to_string())?;
        }
    }
    Ok(())
}

/// Signs a run for each node, the first window of which is due at once, and hands it to the relay.
async fn hand_over(
    cloudly: &Cloudly,
    projection: &Projection,
    first_sequence: u64,
) -> Result<Vec<SignedRun>, String> {
    let first = in_milliseconds(Duration::ZERO) - in_ms(MARGIN);
    let windows = Windows { first, spacing: GRID, length: LENGTH, count: COUNT, first_sequence };
    let mut runs = Vec::new();
    for node in NODES {
        let run = cloudly.sign_run(node, projection, windows);
        let held = cloudly.hold_run(&run).await.map_err(|failure| failure.to_string())?;
        match held.map_err(|refusal| refusal.to_string())? {
            COUNT => runs.push(run),
            held => return Err(format!("{held} renewals are held for {node}")),
        }
    }
    Ok(runs)
}

/// What was offered is Cloudly's own renewal, byte for byte, later than every one before, open for as long as the
/// margin, and admitted by the node.
fn admitted(run: &SignedRun, former: &[Judged], judged: &Judged) -> Result<String, String> {
    let node = &run.node;
    let place = |judged: &Judged| run.place(&judged.text);
    let Some(offered) = place(judged) else {
        return Err(format!("{node} was offered what Cloudly did not sign for it"));
    };
    let renewal = &run.renewals[offered].renewal;
    let (sequence, from, to) = (renewal.sequence, renewal.not_before, renewal.expires_at);
    if former.last().is_some_and(|former| place(former) >= Some(offered)) {
        return Err(format!("{node} was offered renewal {sequence} after a later one"));
    }
    if judged.at < from + in_ms(MARGIN) {
        return Err(format!("{node} was offered renewal {sequence} before its time"));
    }
    let (from, to) = (time_of_day(from), time_of_day(to));
    match &judged.verdict {
        Verdict::Admitted => {
            Ok(format!("{node} admitted renewal {sequence}, whose window is {from} to {to}"))
        }
        verdict => Err(format!("{node} judged renewal {sequence}, {from} to {to}: {verdict:?}")),
    }
}

/// Hours, minutes and seconds of Unix milliseconds, UTC.
fn time_of_day(at: u64) -> String {
    let seconds = at / 1000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{}", seconds % 60, at % 1000 / 100)
}

fn in_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).expect("the demo's spans are seconds")
}
