//! From a first packet to a session, or to the one code that says no (VPN-07, VPN-41). Whether a key is that of
//! nobody, of a member whose time has passed or of one that was withdrawn, the peer is told the same at the same
//! step, before the hub has said anything of itself.

use std::sync::Arc;

use quinn::{Connection, ConnectionError, Incoming};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::{
    admission::{Judgement, Outcome},
    counters::Ending,
    session,
    shared::{Leg, Shared},
};
use crate::{
    constants::{HANDSHAKE_BOUND, KEEPALIVE},
    protocol::{
        close::Close,
        closing::close,
        control::{ControlError, Grant, Wish, read_message, write_message},
        noise::{Asked, NoiseError, binding},
    },
};

/// Judges a first packet, and begins its handshake if there is room.
pub(super) fn arrived(shared: &Arc<Shared>, incoming: Incoming) {
    let address = incoming.remote_address().ip();
    let validated = incoming.remote_address_validated();
    let mono = (shared.clock)().mono;
    let judgement = shared.state().admission.judge(address, validated, mono);
    match judgement {
        Judgement::Accept(place) => {
            let shared = Arc::clone(shared);
            let until = Instant::now() + HANDSHAKE_BOUND;
            tokio::spawn(async move {
                let shaken = shake(&shared, incoming, until).await;
                let outcome = if shaken.is_ok() { Outcome::Session } else { Outcome::Failed };
                let mono = (shared.clock)().mono;
                shared.state().admission.give_back(place, outcome, mono);
                match shaken {
                    Ok(leg) => drop(tokio::spawn(session::carry(shared, leg))),
                    Err(ending) => {
                        shared.counters.ended(ending);
                        debug!(%address, why = ending.name(), "a handshake came to nothing");
                    }
                }
            });
        }
        Judgement::Retry => {
            // One that was told so already has a token of another address, and is not answered.
            if let Err(told) = incoming.retry() {
                told.into_incoming().ignore();
            }
        }
        Judgement::Refuse => {
            shared.counters.ended(Ending::Refused);
            incoming.refuse();
        }
    }
}

async fn shake(shared: &Shared, incoming: Incoming, until: Instant) -> Result<Arc<Leg>, Ending> {
    let lost = |error: ConnectionError| Ending::of(&error);
    let connecting = incoming.accept().map_err(lost)?;
    let connection =
        timeout_at(until, connecting).await.map_err(|_| Ending::Closed(Close::Late))?.map_err(lost)?;
    let proven = timeout_at(until, prove(shared, &connection)).await.unwrap_or(Err(Close::Late));
    proven.map_err(|why| {
        // A peer that left first has its own reason.
        let ending = connection.close_reason().map_or(Ending::Closed(why), |error| Ending::of(&error));
        close(&connection, why);
        ending
    })
}

async fn prove(shared: &Shared, connection: &Connection) -> Result<Arc<Leg>, Close> {
    let (mut answers, mut asks) = connection.accept_bi().await.map_err(|_| Close::Malformed)?;
    let message = read_message(&mut asks).await.map_err(refused)?;
    if !shared.state().admission.noise((shared.clock)().mono) {
        return Err(Close::Busy);
    }
    let malformed = |_: NoiseError| Close::Malformed;
    let asked = Asked::read(&shared.key, &binding(connection).map_err(malformed)?, &message);
    let asked = asked.map_err(malformed)?;
    let wish = Wish::decode(asked.payload()).map_err(refused)?;
    let (network, place) = {
        let state = shared.state();
        let place = state.membership.admissible(asked.node_key(), (shared.clock)());
        place.and_then(|place| Some((Arc::clone(state.membership.network()?), place)))
    }
    .ok_or(Close::NotAdmitted)?;
    let (member, held) = (&network.members()[place], network.held());
    let grant = Grant {
        address: member.address,
        control_prefix: held.control_prefix,
        mtu: wish.granted_mtu(),
        keepalive: KEEPALIVE,
        generation: held.generation,
        revision: held.revision,
    };
    let answer = asked.answer(&grant.encode()).map_err(malformed)?;
    write_message(&mut answers, &answer).await.map_err(refused)?;
    shared.admit(connection.clone(), member)
}

fn refused(error: ControlError) -> Close {
    match error {
        ControlError::Version(_) => Close::Version,
        ControlError::Ended | ControlError::Length(_) | ControlError::Payload(_) => Close::Malformed,
    }
}
