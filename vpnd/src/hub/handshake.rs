//! From a first packet to a session, or to the one code that says no (VPN-41). Whether a key is that of
//! nobody, of a member whose time has passed or of one that was withdrawn, the peer is told the same at the same
//! step, before the hub has said anything of itself.

use std::{convert::Infallible, future::Future, net::IpAddr, sync::Arc};

use quinn::{Connection, ConnectionError, Incoming};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};
use tracing::debug;

use super::{
    admission::{Judgement, Outcome, Place},
    counters::Ending,
    session,
    shared::{Leg, Shared},
};
use crate::{
    constants::{HANDSHAKE_BOUND, KEEPALIVE, LEAST_DATAGRAM},
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
        Judgement::Accept { place, instead_of } => {
            let (holding, lost) = oneshot::channel();
            {
                let mut state = shared.state();
                if let Some(former) = instead_of.and_then(|former| state.places.remove(&former)) {
                    let _ = former.send(());
                }
                state.places.insert(place.number(), holding);
            }
            let terms = Terms { until: Instant::now() + HANDSHAKE_BOUND, lost };
            tokio::spawn(begin(Arc::clone(shared), incoming, address, place, terms));
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

async fn begin(shared: Arc<Shared>, incoming: Incoming, address: IpAddr, place: Place, mut terms: Terms) {
    let shaken = shake(&shared, incoming, &mut terms).await;
    let outcome = if shaken.is_ok() { Outcome::Session } else { Outcome::Failed };
    let mono = (shared.clock)().mono;
    {
        let mut state = shared.state();
        state.places.remove(&place.number());
        state.admission.give_back(place, outcome, mono);
    }
    match shaken {
        Ok(leg) => drop(tokio::spawn(session::carry(shared, leg))),
        Err(ending) => {
            shared.counters.ended(ending);
            debug!(%address, why = ending.name(), "a handshake came to nothing");
        }
    }
}

/// How long a handshake may take.
struct Terms {
    until: Instant,
    /// Another was given its place.
    lost: oneshot::Receiver<()>,
}

impl Terms {
    /// What `step` comes to.
    ///
    /// # Errors
    /// There is no time for it any more.
    async fn bound<T>(&mut self, step: impl Future<Output = T>) -> Result<T, Close> {
        tokio::select! {
            biased;
            done = step => Ok(done),
            _ = &mut self.lost => Err(Close::Busy),
            () = sleep_until(self.until) => Err(Close::Late),
        }
    }
}

async fn shake(shared: &Shared, incoming: Incoming, terms: &mut Terms) -> Result<Arc<Leg>, Ending> {
    let lost = |error: ConnectionError| Ending::of(&error);
    let connecting = incoming.accept().map_err(lost)?;
    let connection = terms.bound(connecting).await.map_err(Ending::Closed)?.map_err(lost)?;
    let proven = async {
        tokio::select! {
            biased;
            proven = prove(shared, &connection) => proven,
            Err(why) = unasked(&connection) => Err(why),
        }
    };
    let proven = terms.bound(proven).await.unwrap_or_else(Err);
    proven.map_err(|why| {
        // A peer that left first has its own reason.
        let ending = connection.close_reason().map_or(Ending::Closed(why), |error| Ending::of(&error));
        close(&connection, why);
        ending
    })
}

/// A peer that sends packets before it is a member holds memory that is none of its own.
async fn unasked(connection: &Connection) -> Result<Infallible, Close> {
    let _ = connection.read_datagram().await;
    Err(Close::Malformed)
}

async fn prove(shared: &Shared, connection: &Connection) -> Result<Arc<Leg>, Close> {
    // Each packet for a peer that takes less would be work of many.
    if connection.max_datagram_size().is_none_or(|most| most < LEAST_DATAGRAM) {
        return Err(Close::Malformed);
    }
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
        let mut state = shared.state();
        let now = (shared.clock)();
        let place = state.membership.admissible(asked.node_key(), now).ok_or(Close::NotAdmitted)?;
        if !state.admission.member(asked.node_key(), now.mono) {
            return Err(Close::Busy);
        }
        (state.membership.network().map(Arc::clone).ok_or(Close::NotAdmitted)?, place)
    };
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
