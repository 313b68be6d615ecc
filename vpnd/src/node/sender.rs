//! A host's packets on their way to the hub.

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use bytes::Bytes;
use quinn::SendDatagramError;
use tokio::sync::{mpsc, watch};

use super::session::Session;
use crate::protocol::{
    egress::{FragmentIds, Plan, plan},
    icmp::{IcmpBudget, fragmentation_needed},
    ipv4::Header,
};

/// What became of a host's packets. A packet that went is one, in however many datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SentCounts {
    /// Packets that went to the hub.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets of them that went in two frames.
    pub split: u64,
    /// Packets of them that went as IPv4 fragments.
    pub fragmented: u64,
    /// What was no IPv4 packet.
    pub malformed: u64,
    /// Packets without a session to go by.
    pub unconnected: u64,
    /// Packets that may not be fragmented and are too large.
    pub too_big: u64,
}

/// The way to the hub, through every session of the node.
pub struct NodeSender {
    sessions: watch::Receiver<Option<Arc<Session>>>,
    /// Not held: what a session holds is given back when it ends, whether the host sends or not.
    current: Weak<Session>,
    /// For the host, by way of the receiver.
    own: mpsc::Sender<Bytes>,
    ids: FragmentIds,
    budget: IcmpBudget,
    counts: SentCounts,
}

impl NodeSender {
    pub(super) fn new(sessions: watch::Receiver<Option<Arc<Session>>>, own: mpsc::Sender<Bytes>) -> Self {
        Self {
            sessions,
            current: Weak::new(),
            own,
            ids: FragmentIds::default(),
            budget: IcmpBudget::new(Instant::now()),
            counts: SentCounts::default(),
        }
    }

    /// Sends a batch and empties it; never waits. What is unsent beyond the session's buffer gives way to
    /// what is newer, and what cannot be sent is counted. The sender of a packet that is too large is told, by
    /// ICMP that the node's receiver delivers.
    pub fn send(&mut self, packets: &mut Vec<Bytes>) {
        match self.sessions.has_changed() {
            Ok(false) => {}
            Ok(true) => {
                self.current =
                    self.sessions.borrow_and_update().as_ref().map_or_else(Weak::new, Arc::downgrade);
            }
            // The node has stopped.
            Err(_) => self.current = Weak::new(),
        }
        let session = self.current.upgrade();
        let room = session.as_ref().and_then(|session| session.connection.max_datagram_size());
        let (Some(session), Some(mut room)) = (session, room) else {
            self.counts.unconnected += packets.len() as u64;
            packets.clear();
            return;
        };
        for packet in packets.drain(..) {
            match Header::parse(&packet) {
                Ok(header) => self.send_one(&session, &packet, &header, &mut room),
                Err(_) => self.counts.malformed += 1,
            }
        }
    }

    /// What became of the packets so far.
    pub fn counts(&self) -> SentCounts {
        self.counts
    }

    fn send_one(&mut self, session: &Session, packet: &Bytes, header: &Header, room: &mut usize) {
        let mut result = self.send_planned(session, packet, header, *room);
        if let (Err(SendDatagramError::TooLarge), Some(now)) =
            (&result, session.connection.max_datagram_size())
        {
            // The path got smaller since the batch began.
            *room = now;
            result = self.send_planned(session, packet, header, now);
        }
        match result {
            Ok(true) => {
                self.counts.packets += 1;
                self.counts.bytes += header.total_length as u64;
            }
            Ok(false) => self.counts.too_big += 1,
            Err(_) => self.counts.unconnected += 1,
        }
    }

    /// Whether the packet went.
    fn send_planned(
        &mut self,
        session: &Session,
        packet: &Bytes,
        header: &Header,
        room: usize,
    ) -> Result<bool, SendDatagramError> {
        let connection = &session.connection;
        match plan(packet, header, room, &mut self.ids) {
            Plan::Whole => connection.send_datagram(packet.clone())?,
            Plan::Two(frames) => {
                frames.into_iter().try_for_each(|frame| connection.send_datagram(frame))?;
                self.counts.split += 1;
            }
            Plan::Pieces(pieces) => {
                pieces.into_iter().try_for_each(|piece| connection.send_datagram(piece))?;
                self.counts.fragmented += 1;
            }
            Plan::TooBig { mtu } => {
                self.tell_sender(session, packet, mtu);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn tell_sender(&mut self, session: &Session, packet: &Bytes, mtu: u16) {
        if let Some(message) = fragmentation_needed(session.grant.hub_address(), packet, mtu)
            && self.budget.take(Instant::now())
        {
            // A host that does not receive gets no more of these.
            let _ = self.own.try_send(message);
        }
    }
}
