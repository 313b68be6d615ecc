//! The hub among the other machines: what it does for Cloudly and vpnd, and the registration that states its key
//! (REG-20, REG-21, REG-22, REG-23, VPN-41, VPN-42).

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{Core, Effect, Turn};
use crate::{
    contract::registration::VpnHub,
    hub::{self, Told},
    registration,
};

impl Core {
    pub(super) fn hub(&mut self, event: hub::Event, turn: &mut Turn) {
        let actions = self.hub.handle(event, turn.now);
        self.hub_actions(actions, turn);
    }

    pub(super) fn hub_actions(&mut self, actions: Vec<hub::Action>, turn: &mut Turn) {
        for action in actions {
            match action {
                hub::Action::SendUp(frame) => self.send_up(frame, turn),
                hub::Action::AnswerUp { connection, frame } => {
                    turn.effects.push(Effect::ToCloudly { connection, frame });
                }
                hub::Action::Validate { job, body } => {
                    turn.effects.push(Effect::ValidateNetwork { job, body });
                }
                hub::Action::Apply { link, id, snapshot } => {
                    turn.effects.push(Effect::ApplyNetwork { link, id, snapshot });
                }
                hub::Action::Note(note) => note.log(),
            }
        }
    }

    /// A key that Cloudly was not told is registered; one that is gone is left out of whatever registration
    /// comes next.
    pub(super) fn vpnd_told(&mut self, told: Told, turn: &mut Turn) {
        self.hub(hub::Event::Vpnd(told), turn);
        let key = self.hub.advertised().map(|(_, public_key)| public_key);
        if key.is_some() && key != self.advertised {
            self.register(registration::Event::HubChanged, turn);
        }
    }

    /// The hub as it is registered: its key, and address and port as they are configured.
    pub(super) fn advertised_hub(&self) -> Option<VpnHub> {
        self.hub.advertised().map(|(facts, public_key)| VpnHub {
            public_key: STANDARD.encode(public_key),
            address: facts.address,
            quic_port: facts.quic_port,
        })
    }
}
