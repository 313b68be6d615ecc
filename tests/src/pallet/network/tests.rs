//! The node's judgement: each rule refuses by a name of its own what no other rule would.

use super::*;
use crate::cloudly::SigningAuthority;
use crate::envelope::{Ids, request};

const SESSION: &str = r#"{"sessionId":"s","nodeId":"node-1","clusterId":"cluster-1","generation":1}"#;
const NOW: u64 = 1_800_000_000_000;

struct Bed {
    network: Network,
    authority: SigningAuthority,
}

impl Bed {
    /// A node that serves generation 3 of `network-1`, with a lease for another second.
    fn new() -> Self {
        let authority = SigningAuthority::generate("authority-1", 1);
        let mut bed = Self { network: Network::of("node-1"), authority };
        bed.pin(&bed.authority.json().to_string()).unwrap();
        bed.project(&Projection::new("network-1", 3).with_lease((NOW - 1_000, NOW + 1_000))).unwrap();
        bed
    }

    fn ask(&mut self, method: &str, member: &str, body: &str) -> Result<String, String> {
        let body = format!(r#"{{"session":{SESSION},"{member}":{body}}}"#);
        let push = Message::parse(&request(method, &body, &Ids::fresh())).unwrap();
        self.network.answer(&push, NOW).unwrap().map_err(|refusal| refusal.text)
    }

    fn pin(&mut self, authority: &str) -> Result<String, String> {
        self.ask("applyRuntimeNetworkSigningAuthority", "authority", authority)
    }

    fn project(&mut self, projection: &str) -> Result<String, String> {
        self.ask("applyRuntimeNetworkProjection", "projection", projection)
    }

    /// Offers a renewal that is sound but for `change`.
    fn offer(&mut self, change: impl FnOnce(&mut Renewal)) -> Result<String, String> {
        let text = self.signed(change);
        self.ask("applyRuntimeNetworkDnsLeaseRenewal", "renewal", &text)
    }

    fn signed(&self, change: impl FnOnce(&mut Renewal)) -> String {
        let mut renewal = Renewal {
            projection: Projection::new("network-1", 3),
            node_id: "node-1".to_owned(),
            cluster_id: "cluster-1".to_owned(),
            sequence: 5,
            not_before: NOW,
            expires_at: NOW + 10_000,
        };
        change(&mut renewal);
        self.authority.sign(renewal).text
    }
}

fn refused(name: &str) -> Result<String, String> {
    Err(name.to_owned())
}

/// ESC-45, ESC-66: a sound renewal extends the lease and is acknowledged bound; once more, it changes nothing.
#[test]
fn a_sound_renewal_extends_the_lease() {
    let mut bed = Bed::new();
    let text = bed.signed(|_| {});
    let answer = bed.offer(|_| {}).unwrap();
    let projection = Projection::new("network-1", 3).json();
    let bound = format!(r#"{{"session":{SESSION},"renewal":{{"projection":{projection},"sequence":5}}}}"#);
    assert_eq!((answer.as_str(), bed.network.lease_end), (bound.as_str(), Some(NOW + 10_000)));
    assert_eq!(bed.offer(|_| {}).unwrap(), bound);
    let judged = |verdict, end| Judged { text: text.clone(), verdict, at: NOW, lease_end: Some(NOW + end) };
    assert_eq!(bed.network.judged, [judged(Verdict::Admitted, 1_000), judged(Verdict::Replayed, 10_000)]);
    let within = [NOW, NOW + 9_999, NOW + 10_000].map(|now| bed.network.is_leased(now));
    assert_eq!(within, [true, true, false]);
}

/// ESC-02, ESC-45: each rule by its name, and what is refused extends nothing.
#[test]
fn each_rule_refuses_by_its_own_name() {
    let mut bed = Bed::new();
    let foreign = |bed: &mut Bed, change: fn(&mut Renewal)| bed.offer(change);
    let scope = refused("renewal-scope-foreign");
    let projection = refused("renewal-projection-foreign");
    let window = refused("renewal-window-not-current");
    assert_eq!(foreign(&mut bed, |renewal| renewal.node_id = "node-2".to_owned()), scope);
    assert_eq!(foreign(&mut bed, |renewal| renewal.cluster_id = "cluster-2".to_owned()), scope);
    assert_eq!(foreign(&mut bed, |renewal| renewal.projection = renewal.projection.next()), projection);
    assert_eq!(foreign(&mut bed, |renewal| renewal.projection.digest = "sha256:00".to_owned()), projection);
    assert_eq!(foreign(&mut bed, |renewal| renewal.not_before = NOW + 1), window);
    assert_eq!(foreign(&mut bed, |renewal| renewal.expires_at = NOW), window);
    let forged = bed.signed(|_| {}).replace(r#""sequence": 5"#, r#""sequence": 6"#);
    let forged = bed.ask("applyRuntimeNetworkDnsLeaseRenewal", "renewal", &forged);
    assert_eq!(forged, refused("renewal-signature-invalid"));
    assert_eq!(bed.network.lease_end, Some(NOW + 1_000));
    bed.offer(|_| {}).unwrap();
    let stale = refused("renewal-sequence-not-advancing");
    assert_eq!(bed.offer(|renewal| renewal.expires_at += 1), stale, "another of the same sequence");
    assert_eq!(bed.offer(|renewal| renewal.sequence = 4), stale);
    assert_eq!(bed.network.judged.len(), 10);
    let other = SigningAuthority::generate("authority-1", 1).json().to_string();
    assert_eq!(bed.pin(&other), refused("signing-authority-foreign"), "what is pinned stays");
    bed.pin(&SigningAuthority::generate("authority-1", 2).json().to_string()).unwrap();
    assert_eq!(bed.offer(|renewal| renewal.sequence = 6), refused("renewal-signature-invalid"));
    let mut unpinned = Network::of("node-1");
    std::mem::swap(&mut bed.network, &mut unpinned);
    assert_eq!(bed.offer(|_| {}), refused("signing-authority-absent"));
}

/// ESC-45, ESC-62: the node's own clock decides, and without a qualified one no window is admitted.
#[test]
fn the_nodes_own_clock_decides() {
    let mut bed = Bed::new();
    bed.network.clock = NodeClock::Qualified(-1);
    assert_eq!(bed.offer(|_| {}), refused("renewal-window-not-current"));
    bed.network.clock = NodeClock::Qualified(10_000);
    assert_eq!(bed.offer(|_| {}), refused("renewal-window-not-current"));
    bed.network.clock = NodeClock::NotQualified;
    assert_eq!(bed.offer(|_| {}), refused("clock-not-qualified"));
    bed.network.clock = NodeClock::Qualified(9_999);
    bed.offer(|_| {}).unwrap();
}

/// OUT-20: projections only go forward; the present one again is acknowledged, with a lease that has expired
/// too, and takes nothing away.
#[test]
fn projections_only_go_forward() {
    let mut bed = Bed::new();
    let expired = (NOW - 2_000, NOW - 1_000);
    let third = Projection::new("network-1", 3);
    bed.offer(|_| {}).unwrap();
    let answer = bed.project(&third.with_lease(expired)).unwrap();
    assert_eq!(answer, format!(r#"{{"session":{SESSION},"projection":{}}}"#, third.json()));
    assert_eq!(bed.network.lease_end, Some(NOW + 10_000));
    let backward = refused("projection-not-forward");
    let mut other = third.clone();
    other.digest = Projection::new("network-2", 3).digest;
    for projection in [&Projection::new("network-1", 2), &Projection::new("network-2", 4), &other] {
        assert_eq!(bed.project(&projection.with_lease(expired)), backward, "{projection:?}");
    }
    bed.project(&third.next().with_lease(expired)).unwrap();
    assert_eq!((bed.network.projection.clone(), bed.network.is_leased(NOW)), (Some(third.next()), false));
    assert_eq!(bed.offer(|renewal| renewal.sequence = 6), refused("renewal-projection-foreign"));
    bed.offer(|renewal| renewal.projection = third.next()).unwrap();
    assert!(bed.network.is_leased(NOW), "sequences are those of a projection");
}
