//! What each hop cannot serve, and why (PROT-21 – PROT-27, PROT-33).
//!
//! Two things can stand on one hop and end apart: a disagreement of offers, and an answer that is
//! not the contract's. A hop serves again only when neither stands.

use std::collections::BTreeMap;

pub use coreflow_ipc::messages::readiness::{Hop, Refusal};

use crate::protocol::Disagreement;

/// What blocks the relay's hops; empty is ready.
#[derive(Debug, Default)]
pub struct Readiness {
    offers: BTreeMap<Hop, Disagreement>,
    answers: BTreeMap<Hop, String>,
    parked: Option<String>,
}

impl Readiness {
    /// Two offers disagree on `hop`; says whether that is news.
    pub fn refuse_offer(&mut self, hop: Hop, disagreement: Disagreement) -> bool {
        self.offers.insert(hop, disagreement) != Some(disagreement)
    }

    /// An offer that this relay serves arrived on `hop`; says whether that is news (PROT-23, PROT-31).
    pub fn accept_offer(&mut self, hop: Hop) -> bool {
        self.offers.remove(&hop).is_some()
    }

    /// An answer on `hop` was not the contract's; says whether that is news.
    pub fn unusable_answer(&mut self, hop: Hop, line: String) -> bool {
        self.answers.insert(hop, line.clone()) != Some(line)
    }

    /// An answer that this build can act on arrived on `hop`; says whether that is news (PROT-26).
    pub fn usable_answer(&mut self, hop: Hop) -> bool {
        self.answers.remove(&hop).is_some()
    }

    /// The relay is parked: that is the one thing recorded of the registration hop (REG-60).
    pub fn park(&mut self, line: String) {
        self.offers.remove(&Hop::ClusterRelayRegistration);
        self.answers.remove(&Hop::ClusterRelayRegistration);
        self.parked = Some(line);
    }

    /// `checkReadiness()`: every entry that stands, in the order of the hops.
    pub fn check(&self) -> Vec<Refusal> {
        let offers = self.offers.iter().map(|(hop, disagreement)| Refusal {
            hop: *hop,
            refusal: Some(disagreement.offers()),
            line: disagreement.line(),
        });
        let unusable = |hop: Hop, line: &String| Refusal { hop, refusal: None, line: line.clone() };
        let answers = self.answers.iter().map(|(hop, line)| unusable(*hop, line));
        let parked = self.parked.iter().map(|line| unusable(Hop::ClusterRelayRegistration, line));
        let mut entries: Vec<Refusal> = offers.chain(answers).chain(parked).collect();
        entries.sort_by_key(|entry| entry.hop);
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Kind;

    fn disagreement() -> Disagreement {
        Disagreement { kind: Kind::CloudlyClient, own: Kind::CloudlyClient.own_offer(), peer: None }
    }

    /// PROT-22, PROT-24, PROT-25, PROT-27: both kinds stand together, are told apart, and end apart.
    #[test]
    fn a_disagreement_and_an_unusable_answer_are_held_apart() {
        let mut readiness = Readiness::default();
        let hop = Hop::ClusterRelayRegistration;
        assert!(readiness.refuse_offer(hop, disagreement()));
        assert!(!readiness.refuse_offer(hop, disagreement()));
        assert!(readiness.unusable_answer(hop, "no credential".into()));
        let refusals: Vec<bool> = readiness.check().iter().map(|entry| entry.refusal.is_some()).collect();
        assert_eq!(refusals, [true, false]);
        assert!(readiness.accept_offer(hop));
        let left: Vec<String> = readiness.check().iter().map(Refusal::to_string).collect();
        assert_eq!(left, ["clusterRelayRegistration: no credential"]);
        assert!(readiness.usable_answer(hop));
        assert_eq!(readiness.check(), []);
    }

    /// REG-60, PROT-33: once parked, that one line blocks the registration hop, and other hops are
    /// stated beside it.
    #[test]
    fn parked_is_the_one_thing_on_the_registration_hop() {
        let mut readiness = Readiness::default();
        readiness.refuse_offer(Hop::ClusterRelayRegistration, disagreement());
        readiness.unusable_answer(Hop::ClusterRelayRegistration, "other".into());
        readiness.refuse_offer(Hop::PalletRuntime, disagreement());
        readiness.park("parked".into());
        let hops: Vec<(Hop, bool)> =
            readiness.check().iter().map(|entry| (entry.hop, entry.line == "parked")).collect();
        assert_eq!(hops, [(Hop::ClusterRelayRegistration, true), (Hop::PalletRuntime, false)]);
    }
}
