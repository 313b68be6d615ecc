//! The readiness that the supervisor keeps beyond a relayd: what the last one stated, what the relay waits
//! for, and the parked statement, which nothing ends (PROT-21, PROT-23, PROT-27, PROT-33, PROT-35).

use coreflow_ipc::messages::readiness::{Hop, Refusal, StatedOffer};

use crate::{
    constants::{STATUS_LINE, STATUS_REFUSALS, STATUS_RELEASE, STATUS_WAITING},
    status::Readiness,
};

/// What a start waits for before anything more is known.
const CLOUDLY: &str = "Cloudly";
/// What a relay without a relayd waits for.
const RELAYD: &str = "relayd, which is being restarted";

/// What is kept.
#[derive(Debug)]
pub struct Kept {
    refusals: Vec<Refusal>,
    waiting: String,
}

impl Default for Kept {
    fn default() -> Self {
        Self { refusals: Vec::new(), waiting: CLOUDLY.to_owned() }
    }
}

impl Kept {
    /// relayd stated all that blocks the hops. What it waited for went by with what had blocked it.
    pub fn state(&mut self, refusals: Vec<Refusal>) {
        if refusals.is_empty() {
            CLOUDLY.clone_into(&mut self.waiting);
        }
        self.refusals = refusals.into_iter().take(STATUS_REFUSALS).map(bounded).collect();
    }

    /// The exchange for an identity, which a start needs first, came to its end, or to this failure.
    pub fn exchanged(&mut self, failure: Option<&str>) {
        match failure {
            Some(failure) => self.wait_for(&format!("Cloudly to give an identity: {failure}")),
            None => CLOUDLY.clone_into(&mut self.waiting),
        }
    }

    /// relayd waits for something.
    pub fn wait_for(&mut self, what: &str) {
        self.waiting = cut(what, STATUS_WAITING);
    }

    /// The relayd that stated it has ended: what blocked its hops has to be met anew.
    pub fn relayd_ended(&mut self) {
        self.refusals.clear();
        RELAYD.clone_into(&mut self.waiting);
    }

    /// A relayd begins, and Cloudly is what it needs first.
    pub fn relayd_begins(&mut self) {
        *self = Self::default();
    }

    /// `checkReadiness()`. A parked relay has that one line on the registration hop, whatever relayd states
    /// of it and whether or not there is one (REG-60).
    pub fn check(&self, open: bool, parked: Option<&str>) -> Readiness {
        let hop = Hop::ClusterRelayRegistration;
        let others = self.refusals.iter().filter(|refusal| parked.is_none() || refusal.hop != hop);
        let parked = parked.map(|line| Refusal { hop, refusal: None, line: line.to_owned() });
        let mut refusals: Vec<Refusal> = others.cloned().chain(parked).collect();
        refusals.sort_by_key(|refusal| refusal.hop);
        Readiness { ready: open && refusals.is_empty(), refusals }
    }

    /// What the relay waits for: nothing once it is open, nor ever when it is parked.
    pub fn waiting_for(&self, open: bool, parked: Option<&str>) -> Option<&str> {
        (!open && parked.is_none()).then_some(self.waiting.as_str())
    }
}

/// The entry within what an answer has room for, whatever relayd states.
fn bounded(refusal: Refusal) -> Refusal {
    let offer = |offer: StatedOffer| StatedOffer {
        release: cut(&offer.release, STATUS_RELEASE),
        oldest_accepted_peer_release: cut(&offer.oldest_accepted_peer_release, STATUS_RELEASE),
    };
    let Refusal { hop, refusal, line } = refusal;
    let refusal = refusal.map(|mut offers| {
        offers.own = offer(offers.own);
        offers.peer = offers.peer.map(offer);
        offers
    });
    Refusal { hop, refusal, line: cut(&line, STATUS_LINE) }
}

/// At most `limit` characters.
fn cut(text: &str, limit: usize) -> String {
    text.chars().take(limit).collect()
}

#[cfg(test)]
mod tests {
    use coreflow_ipc::messages::readiness::Offers;

    use super::*;

    fn offer(release: &str) -> StatedOffer {
        StatedOffer { release: release.to_owned(), oldest_accepted_peer_release: "32.0.0".to_owned() }
    }

    fn refused(hop: Hop) -> Refusal {
        let offers = Offers { own: offer("33.1.0"), peer: Some(offer("31.0.0")) };
        Refusal { hop, refusal: Some(offers), line: "protocol-refused".to_owned() }
    }

    fn unusable(hop: Hop) -> Refusal {
        Refusal { hop, refusal: None, line: "no credential".to_owned() }
    }

    fn hops(readiness: &Readiness) -> Vec<(Hop, bool)> {
        readiness.refusals.iter().map(|entry| (entry.hop, entry.refusal.is_some())).collect()
    }

    /// PROT-21, PROT-22, PROT-23, PROT-24, PROT-25, PROT-27: each thing that blocks a hop is an entry, both
    /// kinds side by side; the relay is ready again once relayd states none.
    #[test]
    fn the_relay_is_ready_when_it_is_open_and_nothing_blocks_a_hop() {
        let mut kept = Kept::default();
        assert_eq!(kept.check(true, None), Readiness { ready: true, refusals: vec![] });
        assert_eq!(kept.check(false, None), Readiness { ready: false, refusals: vec![] });
        let hop = Hop::ClusterRelayRegistration;
        kept.state(vec![refused(hop), unusable(hop), refused(Hop::PalletRuntime)]);
        let blocked = kept.check(true, None);
        assert_eq!((blocked.ready, blocked.refusals.len()), (false, 3));
        assert_eq!(hops(&blocked), [(hop, true), (hop, false), (Hop::PalletRuntime, true)]);
        kept.state(vec![unusable(hop)]);
        assert_eq!(hops(&kept.check(true, None)), [(hop, false)]);
        kept.state(vec![]);
        assert!(kept.check(true, None).ready);
    }

    /// PROT-33, REG-60: parked is the one line of the registration hop, with a relayd and without one; other
    /// hops are stated beside it while there is a relayd that serves them.
    #[test]
    fn a_parked_relay_states_its_one_line_through_a_restart_of_relayd() {
        let mut kept = Kept::default();
        kept.state(vec![refused(Hop::ClusterRelayRegistration), refused(Hop::PalletRuntime)]);
        let parked = kept.check(true, Some("parked"));
        assert_eq!(hops(&parked), [(Hop::ClusterRelayRegistration, false), (Hop::PalletRuntime, true)]);
        assert_eq!((parked.ready, parked.refusals[0].line.as_str()), (false, "parked"));
        for step in [Kept::relayd_ended, Kept::relayd_begins] {
            step(&mut kept);
            let parked = kept.check(false, Some("parked"));
            assert_eq!((parked.ready, hops(&parked)), (false, vec![(Hop::ClusterRelayRegistration, false)]));
            assert_eq!(kept.waiting_for(false, Some("parked")), None);
        }
    }

    /// START-27: what the relay waits for is said as long as it is not open, and follows what happens.
    #[test]
    fn what_is_waited_for_follows_what_happens() {
        let mut kept = Kept::default();
        assert_eq!(kept.waiting_for(false, None), Some(CLOUDLY));
        kept.wait_for("Cloudly to accept the protocol offer");
        kept.state(vec![refused(Hop::CloudlyClient)]);
        assert_eq!(kept.waiting_for(false, None), Some("Cloudly to accept the protocol offer"));
        kept.state(vec![]);
        assert_eq!(kept.waiting_for(false, None), Some(CLOUDLY));
        assert_eq!(kept.waiting_for(true, None), None);
        kept.state(vec![refused(Hop::CloudlyClient)]);
        kept.relayd_ended();
        assert_eq!(kept.waiting_for(false, None), Some(RELAYD));
        assert_eq!(kept.check(false, None).refusals, []);
        kept.relayd_begins();
        assert_eq!(kept.waiting_for(false, None), Some(CLOUDLY));
        kept.exchanged(Some("the identity exchange failed: dns"));
        let failed = "Cloudly to give an identity: the identity exchange failed: dns";
        assert_eq!(kept.waiting_for(false, None), Some(failed));
        kept.exchanged(None);
        assert_eq!(kept.waiting_for(false, None), Some(CLOUDLY));
    }

    /// What relayd states costs a bounded answer.
    #[test]
    fn what_relayd_states_is_cut_to_its_bounds() {
        let mut kept = Kept::default();
        let mut long = refused(Hop::PalletRuntime);
        long.line = "ü".repeat(30_000);
        long.refusal.as_mut().unwrap().own.release = "9".repeat(10_000);
        kept.state(vec![long; 1000]);
        kept.wait_for(&"x".repeat(10_000));
        let refusals = kept.check(false, None).refusals;
        assert_eq!(refusals.len(), STATUS_REFUSALS);
        assert_eq!(refusals[0].line.chars().count(), STATUS_LINE);
        assert_eq!(refusals[0].refusal.as_ref().unwrap().own.release.len(), STATUS_RELEASE);
        assert_eq!(kept.waiting_for(false, None).unwrap().len(), STATUS_WAITING);
    }
}
