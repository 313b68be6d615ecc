//! A node: its clock, its lease, and what it says to a renewal.

use super::*;

/// Windows of 15 minutes, ten minutes apart, on a grid of the node's own.
const GRID: u64 = 10 * MIN;
const WINDOW: u64 = 15 * MIN;
const HORIZON: u64 = 4 * HOUR;
/// An offer without an answer is over.
const BUDGET: Duration = Duration::from_secs(8);

#[derive(Default)]
pub(super) struct Pallet {
    index: u64,
    pub(super) name: String,
    pub(super) socket: Option<Socket>,
    /// Counts the bindings that Cloudly issued it.
    pub(super) session: u64,
    /// Of its projection.
    pub(super) generation: u64,
    /// How far its clock is ahead of the relay's, in milliseconds; half of the nodes are behind.
    ahead: i64,
    pub(super) silent: bool,
    pub(super) slow: bool,
    /// Refusals that it still gives in this outage before it admits anything, and those that it gave.
    refuses: u64,
    refused: u64,
    lease: u64,
    sequence: u64,
    pub(super) open: Option<(Duration, u64)>,
    pub(super) offers: u64,
    outage: u64,
    offered: BTreeSet<(u64, u64)>,
    /// Whether Cloudly handed the relay a run for its projection.
    pub(super) covered: bool,
    /// When its last window ends, and of which binding and projection it is.
    reaches: u64,
    handed: (u64, u64),
    pub(super) carried_since: Option<Duration>,
    /// It left by itself.
    pub(super) away: bool,
}

impl Pallet {
    pub(super) fn new(index: usize) -> Self {
        let index = index as u64;
        let ahead = i64::try_from(index % 60).unwrap() * 1000 - 29_000;
        let (silent, slow) = (index % 50 == 49, index % 10 == 3);
        let name = format!("n{index}");
        Self { index, name, generation: 1, ahead, silent, slow, ..Self::default() }
    }

    /// The return of the session before ended every offer (ESC-38).
    pub(super) fn outage_begins(&mut self) {
        (self.outage, self.open) = (self.outage + 1, None);
        self.refuses = self.index % 5;
    }

    pub(super) fn binding(&self) -> String {
        let Self { name, session, .. } = self;
        format!(r#"{{"sessionId":"s{session}","nodeId":"{name}","clusterId":"c","generation":{session}}}"#)
    }

    pub(super) fn projection(&self) -> String {
        let generation = self.generation;
        format!(r#"{{"id":"p","generation":{generation},"digest":"sha256:{generation:064x}"}}"#)
    }

    /// The number of the window that has been open for half a minute, and so by each node's clock.
    fn window(&self, wall: u64) -> u64 {
        (wall - 30_000 - self.grid()) / GRID
    }

    fn grid(&self) -> u64 {
        self.index * 1193 % GRID
    }

    fn renewal(&self, window: u64) -> String {
        let (name, projection) = (&self.name, self.projection());
        let from = window * GRID + self.grid();
        let until = from + WINDOW;
        format!(
            r#"{{"projection":{projection},"nodeId":"{name}","clusterId":"c","sequence":{window},"notBefore":{from},"expiresAt":{until},"signature":"c2lnbmVk"}}"#
        )
    }

    /// What Cloudly delivers itself while the session stands.
    pub(super) fn delivery(&self, wall: u64) -> String {
        format!(r#"{{"session":{},"renewal":{}}}"#, self.binding(), self.renewal(self.window(wall)))
    }

    /// The run that reaches as far as one may that ends within `time`.
    pub(super) fn run(&mut self, wall: u64, time: u64) -> String {
        let end = |window: u64| window * GRID + self.grid() + WINDOW;
        let first = self.window(wall);
        let fits = |window: &u64| end(*window) <= wall + time.min(HORIZON);
        let reaches = (first..).take_while(fits).last().map(end).unwrap();
        let renewals: Vec<String> = (first..).take_while(fits).map(|window| self.renewal(window)).collect();
        (self.covered, self.reaches, self.handed) = (true, reaches, (self.session, self.generation));
        let (binding, projection) = (self.binding(), self.projection());
        format!(r#"{{"session":{binding},"projection":{projection},"renewals":[{}]}}"#, renewals.join(","))
    }

    /// Whether the run that Cloudly handed over last lasts until `wall`.
    pub(super) fn is_covered_until(&self, wall: u64) -> bool {
        self.reaches >= wall && self.handed == (self.session, self.generation)
    }

    /// The answer to a renewal that Cloudly delivered.
    pub(super) fn delivered(&mut self, body: &str) -> Outcome {
        self.admit(&serde_json::from_str(body).unwrap())
    }

    /// The answer to a renewal that the relay offered at this moment.
    pub(super) fn offered(&mut self, body: &str, now: Now) -> Option<Outcome> {
        let body: Value = serde_json::from_str(body).unwrap();
        let renewal = &body["renewal"];
        let at = |member: &str| renewal[member].as_u64().unwrap();
        let own = now.wall.checked_add_signed(self.ahead).unwrap();
        assert!(at("notBefore") <= own && own < at("expiresAt"), "the margin covers the clock of each node");
        assert_eq!(body["session"], serde_json::from_str::<Value>(&self.binding()).unwrap(), "ESC-31");
        assert!(self.covered && renewal["projection"]["generation"] == self.generation, "ESC-48");
        let sequence = at("sequence");
        if let Some((since, open)) = self.open.replace((now.mono, sequence)) {
            assert!(since + BUDGET <= now.mono || open < sequence, "{}: two offers at once", self.name);
        }
        self.offers += 1;
        self.offered.insert((self.outage, sequence));
        if self.silent {
            return None;
        }
        if self.refuses > 0 {
            (self.refuses, self.refused) = (self.refuses - 1, self.refused + 1);
            return Some(plain_refusal("clock-not-qualified"));
        }
        self.assert_lease(now.wall);
        Some(self.admit(&body))
    }

    fn admit(&mut self, body: &Value) -> Outcome {
        let renewal = &body["renewal"];
        let sequence = renewal["sequence"].as_u64().unwrap();
        assert!(self.sequence <= sequence, "nothing that it has left behind");
        (self.sequence, self.lease) = (sequence, renewal["expiresAt"].as_u64().unwrap());
        let (binding, projection) = (self.binding(), self.projection());
        ok(&format!(
            r#"{{"session":{binding},"renewal":{{"projection":{projection},"sequence":{sequence}}}}}"#
        ))
    }

    /// It answers, it is there, and there was a run for it: its lease stands.
    pub(super) fn assert_lease(&self, wall: u64) {
        let exempt = self.silent || self.away || !self.covered;
        assert!(exempt || wall < self.lease, "the lease of {} has run out", self.name);
    }

    /// One offer of a window that it admits, and one for each refusal; one that is silent is asked every 38 s of
    /// one window's time at most.
    pub(super) fn most_offers(&self) -> u64 {
        let windows = self.offered.len() as u64;
        if self.silent { windows * 24 } else { windows + self.refused }
    }
}
