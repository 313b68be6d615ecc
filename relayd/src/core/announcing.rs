//! What follows from the registration of this relay: the request, the log, and the reads that an
//! acceptance starts (REG-03, REG-20 – REG-23, REG-26 – REG-35, REG-66).

use coreflow_ipc::typedrequest::Body;
use tracing::warn;

use super::{Core, Effect, Statement, Turn, calls, calls::Purpose};
use crate::{
    contract::{
        identity::Identified,
        registration::{RegisterRelay, Relay},
    },
    escrow, hub, ingress,
    protocol::Kind,
    readiness::Hop,
    registration, session,
};

impl Core {
    pub(super) fn register(&mut self, event: registration::Event, turn: &mut Turn) {
        let hop = Hop::ClusterRelayRegistration;
        for action in self.registration.handle(event, turn.now) {
            match action {
                registration::Action::Send { sequence } => self.send_registration(sequence, turn),
                registration::Action::Keep(kept) => turn.effects.push(Effect::Keep(kept)),
                registration::Action::OfferRefused(disagreement) => {
                    if self.readiness.refuse_offer(hop, disagreement) {
                        warn!(hop = hop.name(), "{}", disagreement.line());
                    }
                }
                registration::Action::OfferAccepted => {
                    self.readiness.accept_offer(hop);
                }
                registration::Action::Usable => {
                    self.readiness.usable_answer(hop);
                }
                registration::Action::Unusable(line) => {
                    if self.readiness.unusable_answer(hop, line.clone()) {
                        warn!(hop = hop.name(), "{line}");
                    }
                }
                registration::Action::Pinned(credential) => {
                    turn.effects.push(Effect::State(Statement::Pinned(credential)));
                }
                registration::Action::Accepted { origin } => self.accepted(&origin, turn),
                registration::Action::Refused { text, remedy, named } => {
                    self.escrow(escrow::Event::RegistrationRefused { text: text.clone() }, turn);
                    let remedy = remedy.unwrap_or("nothing that is served changes");
                    warn!(method = "registerClusterRelay", named, "registration refused: {text}; {remedy}");
                }
                registration::Action::Failed { class } => {
                    warn!(method = "registerClusterRelay", class, "registration failed");
                }
                // The nodes stay carried, and the ingress keeps its table (REG-61).
                registration::Action::GiveUpCustody => {
                    self.escrow(escrow::Event::Parked, turn);
                    self.ingress(ingress::Event::Parked, turn);
                    self.hub(hub::Event::Parked, turn);
                }
                registration::Action::ParkSession => self.session(&session::Event::Park, turn),
                registration::Action::StateParked(line) => {
                    self.readiness.park(line.clone());
                    turn.effects.push(Effect::State(Statement::Parked(line)));
                }
            }
        }
    }

    fn send_registration(&mut self, sequence: u64, turn: &mut Turn) {
        let (Some(endpoint), Some(connection)) = (&self.endpoint, self.session.connection()) else { return };
        self.advertised = self.hub.advertised().map(|(_, public_key)| public_key);
        let body = Body::of(&RegisterRelay {
            protocol: Kind::CloudlyClient.own_offer(),
            registration_sequence: sequence,
            relay: Relay {
                version: coreflow_ipc::VERSION,
                node_id: &endpoint.node_id,
                listen_address: endpoint.listen_address.clone(),
                listen_port: endpoint.listen_port,
                vpn_hub: self.advertised_hub(),
            },
        });
        self.call(connection, "registerClusterRelay", body, Purpose::Register, turn);
    }

    fn accepted(&mut self, origin: &str, turn: &mut Turn) {
        self.readiness.usable_answer(Hop::ClusterRelayRegistration);
        let served = self.endpoint.as_ref().map(|endpoint| endpoint.origin.to_string()).unwrap_or_default();
        self.escrow(escrow::Event::RegistrationAccepted, turn);
        let other = (origin != served).then(|| (origin.chars().take(300).collect(), served));
        turn.effects.push(Effect::State(Statement::Accepted { other }));
        if let (Some(identity), Some(connection)) = (&self.identity, self.session.connection()) {
            let body = Body::of(&Identified { identity: &calls::document(identity) });
            self.call(connection, "getClusterConfig", body, Purpose::Observe, turn);
        }
        self.ingress(ingress::Event::Accepted, turn);
        self.hub(hub::Event::Accepted, turn);
    }
}
