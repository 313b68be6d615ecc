//! One dial, from QUIC's first packet to a session.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use quinn::{ClientConfig, Connection, RecvStream, SendStream};

use super::{NodeConfig, Why, local::Local};
use crate::{
    constants::LEAST_DATAGRAM,
    protocol::{
        close::Close,
        control::{ControlError, Grant, Wish, read_message, write_message},
        fragments::Reassembly,
        noise::{self, Asking, StaticKey},
    },
};

/// A session that the hub admitted.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) grant: Grant,
    /// Halves of packets that came.
    pub(super) halves: Mutex<Reassembly>,
    /// Open as long as the session: to end the stream would say something that the protocol has no word for.
    _control: (SendStream, RecvStream),
}

/// What every dial of a node goes by.
pub(super) struct Dialer {
    pub(super) local: Arc<Local>,
    client: ClientConfig,
    key: StaticKey,
    hub_key: [u8; 32],
    hub: SocketAddr,
    wish: Wish,
}

impl Dialer {
    pub(super) fn new(local: Arc<Local>, client: ClientConfig, config: NodeConfig) -> Arc<Self> {
        let NodeConfig { key, hub_key, hub, mtu, local: _ } = config;
        Arc::new(Self { local, client, key, hub_key, hub, wish: Wish::of_mtu(mtu) })
    }

    /// Dials once. Bounding it is the caller's; to drop it closes what there is.
    pub(super) async fn dial(&self) -> Result<Session, Why> {
        let connecting = self.local.connect(&self.client, self.hub)?;
        let connection = connecting.await.map_err(|why| Why::of(&why))?;
        match self.agree(&connection).await {
            Ok((grant, control)) => {
                Ok(Session { connection, grant, halves: Mutex::default(), _control: control })
            }
            Err(why) => Err(blamed(&connection, why)),
        }
    }

    async fn agree(&self, connection: &Connection) -> Result<(Grant, (SendStream, RecvStream)), Why> {
        let (mut send, mut receive) = connection.open_bi().await.map_err(|why| Why::of(&why))?;
        let binding = noise::binding(connection)?;
        let (asking, first) = Asking::begin(&self.key, &self.hub_key, &binding, &self.wish.encode())?;
        write_message(&mut send, &first).await.map_err(Why::Malformed)?;
        let second = read_message(&mut receive).await.map_err(Why::Malformed)?;
        let grant = Grant::decode(&asking.finish(&second)?).map_err(Why::Malformed)?;
        if connection.max_datagram_size().is_none_or(|most| most < LEAST_DATAGRAM) {
            return Err(Why::Refused);
        }
        Ok((grant, (send, receive)))
    }
}

/// Who ended a dial: the hub, whose code then counts, or this end, which says so.
fn blamed(connection: &Connection, why: Why) -> Why {
    match (connection.close_reason(), why) {
        (Some(reason), Why::Malformed(ControlError::Ended)) => Why::of(&reason),
        (_, why) => {
            connection.close(Close::Malformed.code(), &[]);
            why
        }
    }
}
