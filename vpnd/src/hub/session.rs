//! One node's tunnel while it is open: its datagrams are taken as they come, judged by the view of the moment,
//! and handed to the tunnel of whom they are for. Nothing here waits for a receiver: one that is slow loses
//! its own oldest packets and holds up nobody.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use quinn::{ConnectionError, SendDatagramError};

use super::{
    counters::Ending,
    forwarding::{Reason, judge},
    shared::{Leg, Legs, Shared},
    view::View,
};
use crate::{
    constants::{COPIED_BACKLOG, COPIED_PACKET, DATAGRAM_SEND_BUFFER, MOST_IN_A_ROW},
    protocol::{
        egress::{Plan, plan},
        fragments::Reassembly,
        frame::Frame,
        icmp::{IcmpBudget, fragmentation_needed},
        ipv4::Header,
    },
};

/// Carries what `leg` sends until it ends.
pub(super) async fn carry(shared: Arc<Shared>, leg: Arc<Leg>) {
    let mut sender = Sender {
        shared: &shared,
        leg: &leg,
        reassembly: Reassembly::default(),
        icmp: IcmpBudget::new(Instant::now()),
    };
    let error = loop {
        let first = match leg.connection.read_datagram().await {
            Ok(first) => first,
            Err(error) => break error,
        };
        match sender.take_row(first) {
            Ok(Row::Short) => {}
            // The receivers' tunnels send what was handed to them, in batches.
            Ok(Row::Full) => tokio::task::yield_now().await,
            Err(Gone::Withdrawn) => return,
            Err(Gone::Ended(error)) => break error,
        }
    };
    shared.ended(leg.session, Ending::of(&error));
}

/// A row of datagrams that was taken.
enum Row {
    /// There are no more by now.
    Short,
    /// There may be more.
    Full,
}

/// Why a row of datagrams was the last.
enum Gone {
    /// The session stands in no view any more.
    Withdrawn,
    /// The connection ended.
    Ended(ConnectionError),
}

struct Sender<'a> {
    shared: &'a Shared,
    leg: &'a Leg,
    reassembly: Reassembly,
    icmp: IcmpBudget,
}

impl Sender<'_> {
    /// Takes `first` and whatever else is there by now, within a bound, all by one view.
    fn take_row(&mut self, first: Bytes) -> Result<Row, Gone> {
        let legs = self.shared.legs.load();
        let view = legs.view.as_ref().ok_or(Gone::Withdrawn)?;
        let place = view.place(&self.leg.key, self.leg.session).ok_or(Gone::Withdrawn)?;
        self.take(&legs, view, place, first);
        for _ in 1..MOST_IN_A_ROW {
            match self.leg.connection.read_datagram().now_or_never() {
                Some(Ok(datagram)) => self.take(&legs, view, place, datagram),
                Some(Err(error)) => return Err(Gone::Ended(error)),
                None => return Ok(Row::Short),
            }
        }
        Ok(Row::Full)
    }

    fn take(&mut self, legs: &Legs, view: &View, place: usize, datagram: Bytes) {
        let packet = match Frame::decode(&datagram) {
            Frame::Packet(_) => datagram,
            Frame::Fragment(fragment) => {
                let whole = self.reassembly.take(fragment, Instant::now());
                for _ in 0..self.reassembly.lost() {
                    self.shared.counters.dropped(Reason::FragmentLost);
                }
                let Some(whole) = whole else { return };
                whole
            }
            Frame::Unknown => return self.shared.counters.dropped(Reason::UnknownFrame),
        };
        self.leg.received.add(packet.len());
        let gone_on = judge(view, place, &packet).and_then(|onward| {
            let receiver = legs.at(onward.to).ok_or(Reason::NoSession)?;
            let mut packet = packet;
            packet.truncate(onward.header.total_length);
            self.hand(legs, view, receiver, packet, &onward.header)
        });
        if let Err(reason) = gone_on {
            self.shared.counters.dropped(reason);
        }
    }

    fn hand(
        &mut self,
        legs: &Legs,
        view: &View,
        receiver: &Leg,
        packet: Bytes,
        header: &Header,
    ) -> Result<(), Reason> {
        let (length, waits) = (packet.len(), receiver.waiting());
        let budget = &self.shared.budget;
        if budget.may_be_used_up() && !budget.admits(waits, Instant::now(), || legs.waiting()) {
            return Err(Reason::HubFull);
        }
        let packet = detached(packet, waits);
        match receiver.connection.send_datagram(packet.clone()) {
            Ok(()) => {}
            Err(SendDatagramError::TooLarge) => self.hand_apart(view, receiver, packet, header)?,
            Err(error) => return Err(refused(&error)),
        }
        budget.queued(length);
        receiver.sent.add(length);
        self.shared.counters.forwarded.add(length);
        if waits + length > DATAGRAM_SEND_BUFFER {
            self.shared.counters.dropped(Reason::LegFull);
        }
        Ok(())
    }

    /// Hands over what does not fit the receiver's path as it is now.
    fn hand_apart(
        &mut self,
        view: &View,
        receiver: &Leg,
        packet: Bytes,
        header: &Header,
    ) -> Result<(), Reason> {
        let room = receiver.connection.max_datagram_size().unwrap_or(0);
        let send = |piece| receiver.connection.send_datagram(piece).map_err(|error| refused(&error));
        let planned = {
            let mut ids = receiver.fragments.lock().expect("no holder of it panics");
            plan(&packet, header, room, &mut ids)
        };
        match planned {
            Plan::Whole => send(packet),
            Plan::Two(halves) => halves.into_iter().try_for_each(send),
            Plan::Pieces(pieces) => pieces.into_iter().try_for_each(send),
            Plan::TooBig { mtu } => {
                let answer = fragmentation_needed(view.network().hub(), &packet, mtu);
                if let Some(answer) = answer.filter(|_| self.icmp.take(Instant::now())) {
                    // The sender finds out by and by if its tunnel has no room for it.
                    let _ = self.leg.connection.send_datagram(answer);
                }
                Err(Reason::TooBig)
            }
        }
    }
}

/// The packet in memory of its own, if it may have to wait: it is a part of what was received at once, which
/// may be a thousand times as large, and would hold all of that.
fn detached(packet: Bytes, waits: usize) -> Bytes {
    if waits > COPIED_BACKLOG || packet.len() <= COPIED_PACKET {
        Bytes::copy_from_slice(&packet)
    } else {
        packet
    }
}

fn refused(error: &SendDatagramError) -> Reason {
    match error {
        SendDatagramError::TooLarge => Reason::TooBig,
        SendDatagramError::UnsupportedByPeer
        | SendDatagramError::Disabled
        | SendDatagramError::ConnectionLost(_) => Reason::LegGone,
    }
}

#[cfg(test)]
mod tests;
