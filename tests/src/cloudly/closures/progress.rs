//! The progress of closures (contract of the Corestore half, section 7): a Cloudly that takes slowly or falls silent, and
//! the end of a transfer without a byte for too long, by the clock that it is told.

use super::{Closures, Frame, FrameBody, Incoming, StreamName, WINDOW};
use crate::cloudly::Cloudly;

/// How long a closure may get on by no byte, in milliseconds.
pub const PROGRESS_TIMEOUT_MS: u64 = 30_000;

/// Why a transfer is given up whose silent side is the node, with the relay before it.
const NODE: &str = "closure-stalled: node";
/// Why a transfer is given up whose silent side is Cloudly.
const CLOUDLY: &str = "closure-stalled: cloudly";

impl Incoming {
    /// The credit as far as the bytes taken and the bound let it go; `None` where it stays.
    pub(super) fn raise_credit(&mut self, most: Option<u64>) -> Option<u64> {
        let due = (self.bytes.len() as u64 + WINDOW).min(most.unwrap_or(u64::MAX));
        if due <= self.credit {
            return None;
        }
        self.credit = due;
        Some(due)
    }

    /// Its sender may send no more, though there is more.
    fn waits_for_credit(&self) -> bool {
        let taken = self.bytes.len() as u64;
        taken == self.credit && taken < self.byte_length
    }
}

impl Closures {
    /// Bounds what is taken of each closure, and gives the credit that a bound further on lets go, by connection.
    pub(super) fn take_up_to(&mut self, most: Option<u64>) -> Vec<(u64, Frame)> {
        self.taken_most = most;
        let due = |(stream, incoming): (&StreamName, &mut Incoming)| {
            let credit = FrameBody::Credit(incoming.raise_credit(most)?);
            Some((incoming.connection, Frame { stream: *stream, body: credit }))
        };
        self.incoming.iter_mut().filter_map(due).collect()
    }

    /// Gives up each transfer that got on by no byte for [`PROGRESS_TIMEOUT_MS`] at `now`, Unix milliseconds, and names the
    /// side that went quiet: the one whose turn it was. The aborts are by connection.
    pub(super) fn end_stalled(&mut self, now: u64) -> Vec<(u64, Frame)> {
        let over = |progressed_at: u64| now.saturating_sub(progressed_at) >= PROGRESS_TIMEOUT_MS;
        let mut stalled: Vec<(u64, StreamName, &str)> = Vec::new();
        for (stream, incoming) in self.incoming.iter().filter(|(_, one)| over(one.progressed_at)) {
            let silent = if incoming.waits_for_credit() { CLOUDLY } else { NODE };
            stalled.push((incoming.connection, *stream, silent));
        }
        for (stream, outgoing) in self.outgoing.iter().filter(|(_, one)| over(one.progressed_at)) {
            let silent = if outgoing.sent < outgoing.credit { CLOUDLY } else { NODE };
            stalled.push((outgoing.connection, *stream, silent));
        }
        let give_up = |(connection, stream, silent): (u64, StreamName, &str)| {
            self.lose(stream, silent);
            if let Some(outgoing) = self.outgoing.remove(&stream) {
                self.restored.insert(outgoing.whose, (false, silent.to_owned()));
            }
            (connection, Frame { stream, body: FrameBody::Abort(silent.to_owned()) })
        };
        stalled.into_iter().map(give_up).collect()
    }
}

impl Cloudly {
    /// Takes so many bytes of each closure and gives no credit beyond, until the test sets another bound, or none: a
    /// receiver that is slower than its sender.
    pub async fn take_closures_up_to(&self, most: Option<u64>) {
        let due = self.shared.state().corestore.closures.take_up_to(most);
        self.send_frames(due).await;
    }

    /// Sends so many bytes of each closure and then no more, whatever the relay lets it: a sender that falls silent. A bound
    /// further on, or none, holds from the relay's next credit.
    pub fn give_closures_up_to(&self, most: Option<u64>) {
        self.shared.state().corestore.closures.given_most = most;
    }

    /// Looks at its clock, which [`Settings::clock_ahead_ms`](crate::cloudly::Settings) moves, and aborts each closure that
    /// got on by no byte for [`PROGRESS_TIMEOUT_MS`].
    pub async fn end_stalled_closures(&self) {
        let aborts = {
            let mut state = self.shared.state();
            let now = state.now_ms();
            state.corestore.closures.end_stalled(now)
        };
        self.send_frames(aborts).await;
    }

    async fn send_frames(&self, frames: Vec<(u64, Frame)>) {
        for (connection, frame) in frames {
            let carrier = self.shared.state().connections.get(&connection).map(|open| open.carrier.clone());
            if let Some(carrier) = carrier {
                carrier.send_binary(frame.bytes()).await;
            }
        }
        self.shared.change.announce();
    }
}
