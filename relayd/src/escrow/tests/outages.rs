//! A day of outages for a whole cluster: what it costs, and that nobody's lease runs out.

use super::*;

const NODES: u64 = 500;
const CYCLES: u64 = 6;
/// Renewals of a run: four hours of Cloudly's grid.
const WINDOWS: u64 = 23;

/// A node with a clock of its own, which admits windows forward only.
struct Pallet {
    /// How far its clock is behind the relay's, in milliseconds.
    behind: u64,
    lease: u64,
    sequence: u64,
    /// Refusals that it still gives before it admits anything.
    refusals: u64,
    silent: bool,
    offers: u64,
}

/// Cuts a member's number out of a text that has it once.
fn number(text: &str, name: &str) -> u64 {
    let (_, rest) = text.split_once(&format!(r#""{name}":"#)).unwrap();
    rest[..rest.find([',', '}']).unwrap()].parse().unwrap()
}

fn cut<'a>(text: &'a str, name: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!(r#""{name}":""#)).unwrap();
    &rest[..rest.find('"').unwrap()]
}

impl Pallet {
    /// The answer to an offer, or none.
    fn offered(&mut self, frame: &str, wall: u64) -> Option<Outcome> {
        self.offers += 1;
        let (sequence, not_before, expires_at) =
            (number(frame, "sequence"), number(frame, "notBefore"), number(frame, "expiresAt"));
        let own = wall - self.behind;
        assert!(not_before <= own && own < expires_at, "the margin covers the clock of each node");
        if self.silent {
            return None;
        }
        if self.refusals > 0 {
            self.refusals -= 1;
            return Some(plain_refusal("clock-not-qualified"));
        }
        assert!(sequence >= self.sequence, "nothing is offered that it has left behind");
        assert!(wall < self.lease, "its lease has run out");
        (self.sequence, self.lease) = (sequence, expires_at);
        let (from, to) = (frame.find(r#"{"session":"#).unwrap(), frame.find(r#","nodeId""#).unwrap());
        let to = frame[to..].find(r#","renewal""#).map_or(to, |at| to + at);
        let session = &frame[from + r#"{"session":"#.len()..to];
        let (_, projection) = frame.split_once(r#""projection":"#).unwrap();
        let projection = &projection[..=projection.find('}').unwrap()];
        Some(Outcome::Response(Body::from_json(format!(
            r#"{{"session":{session},"renewal":{{"projection":{projection},"sequence":{sequence}}}}}"#
        ))))
    }
}

struct Cluster {
    script: Script,
    nodes: Vec<Pallet>,
    texts: Vec<String>,
}

impl Cluster {
    fn handle(&mut self, event: Event) {
        let mut actions = self.script.escrow.handle(event, self.script.now, &self.script.roster);
        while !actions.is_empty() {
            let mut answers = Vec::new();
            for action in actions {
                let Action::SendDown { socket, frame } = action else { continue };
                let node = &mut self.nodes[usize::try_from(socket).unwrap()];
                let Some(outcome) = node.offered(&frame, self.script.now.wall) else { continue };
                let correlation = cut(&frame[frame.find(r#""correlation""#).unwrap()..], "id").to_owned();
                let instance = Some(cut(&frame, "requestInstanceId").to_owned());
                let answer = Answer { correlation, instance, outcome, retry_after_ms: None };
                answers.push(Event::NodeAnswered { socket, answer });
            }
            actions = Vec::new();
            for answer in answers {
                actions.extend(self.script.escrow.handle(answer, self.script.now, &self.script.roster));
            }
        }
    }

    /// Cloudly signs four hours ahead for each node, on a grid that is shifted from node to node, and
    /// delivers the current window itself.
    fn sign(&mut self) {
        let p = projection("p", 3);
        for (index, node) in (0..NODES).zip(&mut self.nodes) {
            let grid = 10 * MIN;
            let start = self.script.now.wall - index * 997 % grid - MIN;
            let renewals: Vec<String> = (0..WINDOWS)
                .map(|window| {
                    let from = start + window * grid;
                    renewal(&format!("n{index}"), &p, from / MIN, (from, from + 15 * MIN))
                })
                .collect();
            (node.sequence, node.lease) = (start / MIN, start + 15 * MIN);
            let body = hold_body(&binding(&format!("n{index}"), "s"), &p, &renewals);
            self.texts.push(body);
        }
        for body in std::mem::take(&mut self.texts) {
            let ids = Ids { correlation: "h".to_owned(), instance: None };
            let body = Body::from_json(body);
            self.handle(Event::Hold {
                connection: 1,
                request: Request { method: HOLD.to_owned(), ids, body },
            });
        }
        self.handle(Event::Tick);
        assert_eq!(self.script.escrow.held(), self.nodes.len());
    }

    fn pass(&mut self, time: Duration) {
        let end = self.script.now.mono + time;
        while let Some(due) = self.script.escrow.next_deadline(self.script.now).filter(|due| *due <= end) {
            self.script.go_to(due);
            self.handle(Event::Tick);
        }
        self.script.go_to(end);
    }
}

/// ESC-01, ESC-26, ESC-28, ESC-30, ESC-34, ESC-35, ESC-45, ESC-60: through six outages of nearly four hours each
/// node that answers keeps its lease, with a clock up to 20 s behind and some refusals on the way; one that
/// answers nothing costs a bounded number of offers.
#[test]
fn a_day_of_outages_lets_no_lease_run_out() {
    let node = |index: u64| Pallet {
        behind: index % 21 * 1000,
        lease: 0,
        sequence: 0,
        refusals: 0,
        silent: index % 50 == 49,
        offers: 0,
    };
    let mut cluster =
        Cluster { script: Script::new(), nodes: (0..NODES).map(node).collect(), texts: Vec::new() };
    for index in 0..NODES {
        cluster.script.carry(index, &format!("n{index}"));
    }
    let mut acknowledged = 0;
    for _ in 0..CYCLES {
        cluster.sign();
        for (index, node) in (0..NODES).zip(&mut cluster.nodes) {
            node.refusals = index % 5;
        }
        cluster.handle(Event::SessionDown);
        cluster.pass(Duration::from_millis((WINDOWS - 1) * 10 * MIN));
        for node in cluster.nodes.iter().filter(|node| !node.silent) {
            assert!(cluster.script.now.wall < node.lease, "its lease lasts to the end of the outage");
            acknowledged += 1;
        }
        cluster.handle(Event::SessionUp);
        let offers: u64 = cluster.nodes.iter().map(|node| node.offers).sum();
        cluster.pass(Duration::from_millis(20 * MIN));
        assert_eq!(offers, cluster.nodes.iter().map(|node| node.offers).sum::<u64>());
    }
    assert_eq!(acknowledged, CYCLES * NODES * 49 / 50);
    for node in &cluster.nodes {
        // 30 s apart for 5 of each 10 minutes, and one that ends them.
        let most = if node.silent { CYCLES * WINDOWS * 11 } else { CYCLES * (WINDOWS + 5) };
        assert!(node.offers <= most, "{} offers", node.offers);
    }
}
