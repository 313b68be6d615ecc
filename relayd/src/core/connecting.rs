//! What follows from the Cloudly session: its announcement, what every machine is told of its coming and going,
//! and the nodes that are asked to register again (SES-13, OUT-04, OUT-08, OUT-09, PROT-06).

use coreflow_ipc::typedrequest::Body;
use tracing::{debug, info, warn};

use super::{
    Core, Effect, Turn, calls,
    calls::{Purpose, announced},
};
use crate::{
    contract::{identity::RegisterSession, values::Id},
    escrow, forwarder, hub, ingress,
    protocol::Kind,
    readiness::Hop,
    registration::{self, Answered},
    session::{self, Announced, Connection},
};

impl Core {
    pub(super) fn session(&mut self, event: &session::Event, turn: &mut Turn) {
        for action in self.session.handle(event, turn.now, turn.random) {
            match action {
                session::Action::AskIdentity => turn.effects.push(Effect::AskIdentity),
                session::Action::Dial { connection } => turn.effects.push(Effect::Dial(connection)),
                session::Action::Hangup { connection } => turn.effects.push(Effect::Hangup(connection)),
                session::Action::Announce { connection } => self.announce(connection, turn),
                session::Action::Registered { count, renewed } => self.registered(count, renewed, turn),
                session::Action::Lost => self.lost(turn),
            }
        }
        if self.session.connection().is_none() {
            // Whatever was called on a connection that ended will not be answered.
            for ended in self.calls.end_where(|_| true) {
                self.ended(ended, Err("closed"), turn);
            }
        }
    }

    fn announce(&mut self, connection: Connection, turn: &mut Turn) {
        let identity = self.identity.as_ref().expect("the session announces an identity it was granted");
        let body = Body::of(&RegisterSession {
            identity: &calls::document(identity),
            client_type: "coreflow",
            protocol: Kind::CloudlyClient.own_offer(),
        });
        self.call(connection, "registerCloudlyClientSession", body, Purpose::Announce(connection), turn);
    }

    fn registered(&mut self, count: u64, renewed: bool, turn: &mut Turn) {
        if renewed {
            debug!(method = "registerCloudlyClientSession", "the Cloudly session has a renewed identity");
        } else {
            info!(connection = count, "the Cloudly session is registered");
            self.forward(forwarder::Event::SessionUp { count }, turn);
            self.escrow(escrow::Event::SessionUp, turn);
            self.ingress(ingress::Event::SessionUp, turn);
            self.hub(hub::Event::SessionUp, turn);
            if !self.stopping {
                let (stale, turned_away) = (self.forwarder.stale(), self.forwarder.turned_away());
                self.continuity.session_changed(stale, turned_away, turn.now);
            }
            turn.effects.push(Effect::Dispatchable(true));
        }
        self.register(registration::Event::SessionRegistered, turn);
        self.recarry(turn);
    }

    fn lost(&mut self, turn: &mut Turn) {
        if self.stopping {
            debug!("the Cloudly session is closed");
        } else {
            warn!("the Cloudly session is lost; nodes stay connected until it returns");
        }
        self.continuity.session_lost();
        self.register(registration::Event::SessionLost, turn);
        self.forward(forwarder::Event::SessionDown, turn);
        self.escrow(escrow::Event::SessionDown, turn);
        self.ingress(ingress::Event::SessionDown, turn);
        self.hub(hub::Event::SessionDown, turn);
        turn.effects.push(Effect::Dispatchable(false));
    }

    /// What an answer to `registerCloudlyClientSession` means to the session and its readiness.
    pub(super) fn announced(&mut self, connection: Connection, answered: &Answered, turn: &mut Turn) {
        let hop = Hop::CloudlyClient;
        let announced = match announced(answered) {
            Ok(()) => {
                self.readiness.accept_offer(hop);
                self.readiness.usable_answer(hop);
                Announced::Accepted
            }
            Err(calls::NotAnnounced::Offer(disagreement)) => {
                if self.readiness.refuse_offer(hop, disagreement) {
                    warn!(hop = hop.name(), "{}", disagreement.line());
                }
                turn.effects.push(Effect::Waiting("Cloudly to accept the protocol offer".to_owned()));
                Announced::NotServed
            }
            Err(calls::NotAnnounced::Unusable(line)) => {
                self.readiness.accept_offer(hop);
                if self.readiness.unusable_answer(hop, line.clone()) {
                    warn!(hop = hop.name(), "{line}");
                }
                turn.effects.push(Effect::Waiting("a usable answer of Cloudly".to_owned()));
                Announced::NotServed
            }
            Err(calls::NotAnnounced::Failed(why)) => {
                warn!(method = "registerCloudlyClientSession", "the session is not registered: {why}");
                Announced::Failed
            }
        };
        self.session(&session::Event::Announced { connection, announced }, turn);
    }

    /// The nodes whose turn it is are asked to register again; of one that could not register the relay has read no id.
    pub(super) fn recarry(&mut self, turn: &mut Turn) {
        let ingress = self.ingress.bound();
        let waits = |node: Option<&Id>, socket| match node {
            Some(node) => self.forwarder.is_stale(node, socket),
            None => self.forwarder.is_turned_away(socket) && ingress != Some(socket),
        };
        for (node, socket) in self.continuity.due(turn.now, waits) {
            match node {
                Some(node) => info!(
                    node = node.as_str(),
                    "node {node} asked to re-register: this relay's Cloudly session changed"
                ),
                None => {
                    debug!(socket, "a node that found no Cloudly session is asked to register: it is back")
                }
            }
            turn.effects.push(Effect::CloseNode(socket));
        }
    }
}
