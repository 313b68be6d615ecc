//! Packets from the hub on their way to the host.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Instant,
};

use bytes::Bytes;
use futures_util::FutureExt;
use quinn::{Connection, ConnectionError};
use tokio::sync::{mpsc, watch};

use super::session::Session;
use crate::protocol::{frame::Frame, ipv4::Header};

/// The node has stopped, and nothing comes any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the node has stopped")
    }
}

impl std::error::Error for Stopped {}

/// What became of the hub's datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceivedCounts {
    /// Packets that were delivered.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets of them that came in two frames.
    pub reassembled: u64,
    /// What was no IPv4 packet.
    pub malformed: u64,
    /// Datagrams that carry no frame of this version.
    pub unknown: u64,
    /// Halves whose other half did not come in time.
    pub halves: u64,
}

/// The way from the hub, through every session of the node.
pub struct NodeReceiver {
    sessions: watch::Receiver<Option<Arc<Session>>>,
    /// Not held: what a session holds is given back when it ends, whether the host receives or not.
    current: Weak<Session>,
    /// What the node itself made for its host.
    own: mpsc::Receiver<Bytes>,
    counts: ReceivedCounts,
}

/// What a wait ended with.
enum Came {
    Own(Bytes),
    Session(Result<(), watch::error::RecvError>),
    Datagram(Arc<Session>, Result<Bytes, ConnectionError>),
}

impl NodeReceiver {
    pub(super) fn new(sessions: watch::Receiver<Option<Arc<Session>>>, own: mpsc::Receiver<Bytes>) -> Self {
        Self { sessions, current: Weak::new(), own, counts: ReceivedCounts::default() }
    }

    /// Waits for a packet, and adds it and those that are there already to `into`, `most` altogether. All are
    /// well-formed IPv4. To drop it before it is done loses nothing. What arrived of a session
    /// that ended while nobody waited here is lost with it.
    ///
    /// # Errors
    ///
    /// [`Stopped`] when the node has.
    pub async fn receive(&mut self, into: &mut Vec<Bytes>, most: usize) -> Result<(), Stopped> {
        let before = into.len();
        loop {
            match self.next().await {
                Came::Own(packet) => into.push(packet),
                Came::Session(Ok(())) => {
                    self.current =
                        self.sessions.borrow_and_update().as_ref().map_or_else(Weak::new, Arc::downgrade);
                }
                Came::Session(Err(_)) => return Err(Stopped),
                Came::Datagram(session, Ok(datagram)) => into.extend(self.packet_of(&session, &datagram)),
                Came::Datagram(_, Err(_)) => self.current = Weak::new(),
            }
            if let Some(session) = self.current.upgrade() {
                for _ in 1..most {
                    let Some(datagram) = at_hand(&session.connection) else { break };
                    into.extend(self.packet_of(&session, &datagram));
                }
            }
            if into.len() > before {
                return Ok(());
            }
        }
    }

    /// What became of the datagrams so far.
    pub fn counts(&self) -> ReceivedCounts {
        self.counts
    }

    async fn next(&mut self) -> Came {
        let current = self.current.upgrade();
        let datagram = async {
            match current {
                Some(session) => {
                    let datagram = session.connection.read_datagram().await;
                    Came::Datagram(session, datagram)
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(packet) = self.own.recv() => Came::Own(packet),
            // A session that ended is read to its end first: the next comes by a dial, and so later.
            datagram = datagram => datagram,
            changed = self.sessions.changed() => Came::Session(changed),
        }
    }

    fn packet_of(&mut self, session: &Session, datagram: &Bytes) -> Option<Bytes> {
        let packet = match Frame::decode(datagram) {
            Frame::Packet(packet) => packet.clone(),
            Frame::Fragment(fragment) => {
                let whole = {
                    let mut halves = session.halves.lock().expect("no holder of it panics");
                    let whole = halves.take(fragment, Instant::now());
                    self.counts.halves += halves.lost();
                    whole?
                };
                self.counts.reassembled += 1;
                whole
            }
            Frame::Unknown => {
                self.counts.unknown += 1;
                return None;
            }
        };
        let Ok(header) = Header::parse(&packet) else {
            self.counts.malformed += 1;
            return None;
        };
        self.counts.packets += 1;
        self.counts.bytes += header.total_length as u64;
        Some(packet.slice(..header.total_length))
    }
}

/// A datagram that need not be waited for.
fn at_hand(connection: &Connection) -> Option<Bytes> {
    connection.read_datagram().now_or_never()?.ok()
}
