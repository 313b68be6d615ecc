//! Database closures at Cloudly: taken in from the relay and given back to it in the binary frames of the session
//! (contract of the Corestore half, section 7), and the replication record of each backup. It models BAK-14. How slowly
//! they go, and when one that stands still is given up, is in `progress`.

mod descriptor;
mod frames;
mod progress;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Cloudly;
use super::judgement::exact;
use crate::carrier::CallFailure;
use crate::corestore::answer::digest;
use crate::envelope::{Message, Refusal};
use crate::waiting::{BOUND, Late};

use descriptor::{composed, stated, text};

pub use frames::{CHUNK, Frame, FrameBody, StreamName, WINDOW, sha256};
pub use progress::PROGRESS_TIMEOUT_MS;

/// The largest closure that it takes, in bytes.
pub const LARGEST: u64 = 1 << 30;

/// Whose closure: the backup and the service.
type Whose = (String, String);

/// What became of a replication that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replication {
    /// The backup that was asked for it has not answered.
    Requested,
    /// Its closure was accepted.
    Accepted {
        /// The closure's length in bytes.
        byte_length: u64,
        /// `Digest` of its bytes.
        digest: String,
        /// The node's receipt.
        receipt: String,
    },
    /// There is no closure of it, for this reason.
    Failed(String),
}

/// A closure that was accepted.
#[derive(Clone)]
struct Stored {
    bytes: Vec<u8>,
    receipt: String,
}

/// A closure on its way in.
struct Incoming {
    connection: u64,
    whose: Whose,
    byte_length: u64,
    digest: String,
    receipt: String,
    bytes: Vec<u8>,
    credit: u64,
    /// When it was begun or last got a byte, Unix milliseconds.
    progressed_at: u64,
}

/// A closure on its way out.
struct Outgoing {
    connection: u64,
    whose: Whose,
    bytes: Vec<u8>,
    sent: usize,
    /// How far its receiver lets it go.
    credit: usize,
    ended: bool,
    /// When it was offered or last sent a byte, Unix milliseconds.
    progressed_at: u64,
}

/// The transfers, what was stored, and what was asked for.
#[derive(Default)]
pub(super) struct Closures {
    incoming: BTreeMap<StreamName, Incoming>,
    outgoing: BTreeMap<StreamName, Outgoing>,
    stored: BTreeMap<Whose, Stored>,
    replications: BTreeMap<Whose, Replication>,
    /// How each closure that was sent to the relay ended: whether it was accepted, and in what words.
    restored: BTreeMap<Whose, (bool, String)>,
    streams: u64,
    /// How many bytes of a closure are taken at most; all of them where there is no bound.
    taken_most: Option<u64>,
    /// How many bytes of a closure are sent at most; all of them where there is no bound.
    given_most: Option<u64>,
}

impl Closures {
    /// Leave to send. The credit that goes with it is [`Closures::credit_of`]'s.
    pub(super) fn begin_backup(&mut self, connection: u64, body: &Value, now: u64) -> Result<Value, Refusal> {
        exact(body, &["backupId", "nodeId", "receipt", "serviceId", "stream"], &[], "closure")?;
        let (whose, stream) = (whose(body)?, &body["stream"]);
        let stated = stated(stream)?;
        if stated.byte_length > LARGEST {
            return Err(Refusal::new("closure-too-large"));
        }
        let name = StreamName::of(text(stream, "streamId")?);
        if self.incoming.contains_key(&name) || self.outgoing.contains_key(&name) {
            return Err(Refusal::new("closure-stream-known"));
        }
        let incoming = Incoming {
            connection,
            whose,
            byte_length: stated.byte_length,
            digest: stated.digest,
            receipt: text(body, "receipt")?.to_owned(),
            bytes: Vec::new(),
            credit: self.taken_most.unwrap_or(WINDOW).min(WINDOW),
            progressed_at: now,
        };
        self.incoming.insert(name, incoming);
        Ok(json!({"permitted": true}))
    }

    /// The first credit of the stream that a permitted request named.
    pub(super) fn credit_of(&self, body: &Value) -> Option<Frame> {
        let stream = StreamName::of(body["stream"]["streamId"].as_str()?);
        let incoming = self.incoming.get(&stream)?;
        Some(Frame { stream, body: FrameBody::Credit(incoming.credit) })
    }

    /// Offers a stored closure; its bytes follow the relay's credit.
    pub(super) fn begin_restore(
        &mut self,
        connection: u64,
        body: &Value,
        now: u64,
    ) -> Result<Value, Refusal> {
        exact(body, &["backupId", "nodeId", "serviceId"], &[], "closure")?;
        let whose = whose(body)?;
        let stored = self.stored.get(&whose).ok_or_else(|| Refusal::new("closure-unknown"))?.clone();
        self.streams += 1;
        let stream_id = format!("cloudly-closure-{}", self.streams);
        let descriptor = composed(&stream_id, &stored.bytes);
        let outgoing = Outgoing {
            connection,
            whose,
            bytes: stored.bytes,
            sent: 0,
            credit: 0,
            ended: false,
            progressed_at: now,
        };
        self.outgoing.insert(StreamName::of(&stream_id), outgoing);
        Ok(json!({"receipt": stored.receipt, "stream": descriptor}))
    }

    /// What is sent upon a frame. One of no stream that runs on its connection is answered with an abort, unless it
    /// ends a stream itself.
    pub(super) fn received(&mut self, connection: u64, frame: Frame, now: u64) -> Vec<Frame> {
        let stream = frame.stream;
        if self.incoming.get(&stream).is_some_and(|incoming| incoming.connection == connection) {
            return self.taken(stream, frame.body, now);
        }
        if self.outgoing.get(&stream).is_some_and(|outgoing| outgoing.connection == connection) {
            return self.given(stream, frame.body, now);
        }
        match frame.body {
            FrameBody::Chunk { .. } | FrameBody::Credit(_) | FrameBody::End { .. } => {
                vec![Frame { stream, body: FrameBody::Abort("closure-stream-unknown".to_owned()) }]
            }
            FrameBody::Receipt { .. } | FrameBody::Abort(_) => Vec::new(),
        }
    }

    fn taken(&mut self, stream: StreamName, body: FrameBody, now: u64) -> Vec<Frame> {
        let most = self.taken_most;
        let Some(incoming) = self.incoming.get_mut(&stream) else { return Vec::new() };
        let wrong = match body {
            FrameBody::Chunk { offset, bytes } => match incoming.take(offset, &bytes, most, now) {
                Ok(credit) => {
                    let credit = credit.map(|credit| Frame { stream, body: FrameBody::Credit(credit) });
                    return credit.into_iter().collect();
                }
                Err(wrong) => wrong,
            },
            FrameBody::End { length, digest } => {
                let Some(incoming) = self.incoming.remove(&stream) else { return Vec::new() };
                return vec![Frame { stream, body: self.judge(incoming, length, digest) }];
            }
            FrameBody::Abort(reason) => {
                self.lose(stream, &format!("aborted: {reason}"));
                return Vec::new();
            }
            FrameBody::Credit(_) | FrameBody::Receipt { .. } => "closure-frame-of-a-receiver",
        };
        self.lose(stream, wrong);
        vec![Frame { stream, body: FrameBody::Abort(wrong.to_owned()) }]
    }

    /// The receipt: stored when length and digest are the descriptor's, those of the end and those of the bytes.
    fn judge(&mut self, incoming: Incoming, length: u64, ended: [u8; 32]) -> FrameBody {
        let Incoming { whose, byte_length, digest: stated, receipt, bytes, .. } = incoming;
        let wrong = if length != byte_length || bytes.len() as u64 != byte_length {
            Some("closure-length-mismatch")
        } else if sha256(&bytes) != ended || digest(&bytes) != stated {
            Some("closure-digest-mismatch")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.fail(whose, wrong);
            return FrameBody::Receipt { accepted: false, text: wrong.to_owned() };
        }
        let accepted = Replication::Accepted { byte_length, digest: stated, receipt: receipt.clone() };
        self.replications.insert(whose.clone(), accepted);
        self.stored.insert(whose, Stored { bytes, receipt: receipt.clone() });
        FrameBody::Receipt { accepted: true, text: receipt }
    }

    fn given(&mut self, stream: StreamName, body: FrameBody, now: u64) -> Vec<Frame> {
        let most = self.given_most;
        let Some(outgoing) = self.outgoing.get_mut(&stream) else { return Vec::new() };
        let end = match body {
            FrameBody::Credit(upto) => return outgoing.give(stream, upto, most, now),
            FrameBody::Receipt { accepted, text } if outgoing.ended || !accepted => (accepted, text),
            FrameBody::Abort(reason) => (false, reason),
            FrameBody::Receipt { .. } => (false, "closure-receipt-early".to_owned()),
            FrameBody::Chunk { .. } | FrameBody::End { .. } => {
                (false, "closure-frame-of-a-sender".to_owned())
            }
        };
        if let Some(outgoing) = self.outgoing.remove(&stream) {
            self.restored.insert(outgoing.whose, end);
        }
        Vec::new()
    }

    fn lose(&mut self, stream: StreamName, reason: &str) {
        if let Some(incoming) = self.incoming.remove(&stream) {
            self.fail(incoming.whose, reason);
        }
    }

    /// A closure that was accepted stays the record of its backup.
    fn fail(&mut self, whose: Whose, reason: &str) {
        if !matches!(self.replications.get(&whose), Some(Replication::Accepted { .. })) {
            self.replications.insert(whose, Replication::Failed(reason.to_owned()));
        }
    }

    /// A connection's streams end with it.
    pub(super) fn connection_ended(&mut self, connection: u64) {
        let of_it = self.incoming.iter().filter(|(_, incoming)| incoming.connection == connection);
        for stream in of_it.map(|(stream, _)| *stream).collect::<Vec<StreamName>>() {
            self.lose(stream, "connection-ended");
        }
        self.outgoing.retain(|_, outgoing| outgoing.connection != connection);
    }

    /// A backup is asked for, with replication.
    fn request(&mut self, whose: Whose) {
        self.replications.insert(whose, Replication::Requested);
    }

    /// The backup was answered: what was accepted by then is the record, and what never came has failed (BAK-14).
    fn settle(&mut self, whose: &Whose) {
        let underway: Vec<StreamName> = self
            .incoming
            .iter()
            .filter(|(_, incoming)| incoming.whose == *whose)
            .map(|(stream, _)| *stream)
            .collect();
        for stream in underway {
            self.lose(stream, "closure-never-ended");
        }
        if let Some(record) = self.replications.get_mut(whose).filter(|r| **r == Replication::Requested) {
            *record = Replication::Failed("closure-never-arrived".to_owned());
        }
    }
}

impl Incoming {
    /// Takes a chunk, and gives the credit that is due by it: once half of the window is used up.
    fn take(
        &mut self,
        offset: u64,
        bytes: &[u8],
        most: Option<u64>,
        now: u64,
    ) -> Result<Option<u64>, &'static str> {
        let held = self.bytes.len() as u64;
        let after = held + bytes.len() as u64;
        if offset != held {
            return Err("closure-offset-mismatch");
        }
        if after > self.byte_length {
            return Err("closure-length-mismatch");
        }
        if after > self.credit {
            return Err("closure-credit-exceeded");
        }
        self.bytes.extend_from_slice(bytes);
        self.progressed_at = now;
        if self.credit - after > WINDOW / 2 {
            return Ok(None);
        }
        Ok(self.raise_credit(most))
    }
}

impl Outgoing {
    /// The chunks that credit allows, at most a window, and the end behind the last.
    fn give(&mut self, stream: StreamName, upto: u64, most: Option<u64>, now: u64) -> Vec<Frame> {
        let bounded = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let window = self.sent.saturating_add(bounded(WINDOW));
        self.credit = self.credit.max(bounded(upto).min(window).min(self.bytes.len()));
        let upto = self.credit.min(most.map_or(usize::MAX, bounded));
        if self.sent < upto {
            self.progressed_at = now;
        }
        let mut frames = Vec::new();
        while self.sent < upto {
            let next = upto.min(self.sent + CHUNK);
            let bytes = self.bytes[self.sent..next].to_vec();
            frames.push(Frame { stream, body: FrameBody::Chunk { offset: self.sent as u64, bytes } });
            self.sent = next;
        }
        if self.sent == self.bytes.len() && !self.ended {
            self.ended = true;
            let (length, digest) = (self.bytes.len() as u64, sha256(&self.bytes));
            frames.push(Frame { stream, body: FrameBody::End { length, digest } });
        }
        frames
    }
}

fn whose(body: &Value) -> Result<Whose, Refusal> {
    text(body, "nodeId")?;
    Ok((text(body, "backupId")?.to_owned(), text(body, "serviceId")?.to_owned()))
}

impl Cloudly {
    /// Asks the relay for a backup, the body of `backupClusterService`. With replication the record begins with the
    /// request and is settled by the answer, whatever it is (BAK-14).
    ///
    /// # Errors
    /// [`CallFailure`]; a refusal is an answer.
    pub async fn back_up(&self, body: &Value) -> Result<Message, CallFailure> {
        let member = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        let whose = (member("backupId"), member("serviceId"));
        let replicated = body["replication"]["enabled"] == true;
        if replicated {
            self.shared.state().corestore.closures.request(whose.clone());
        }
        let answer = self.push("backupClusterService", &body.to_string()).await;
        if replicated {
            self.shared.state().corestore.closures.settle(&whose);
            self.shared.change.announce();
        }
        answer
    }

    /// The replication record of a backup of a service; `None` where none was asked for and none came.
    pub fn replication(&self, backup: &str, service: &str) -> Option<Replication> {
        let whose = (backup.to_owned(), service.to_owned());
        self.shared.state().corestore.closures.replications.get(&whose).cloned()
    }

    /// Stores a closure as if it had been replicated.
    pub fn store_closure(&self, backup: &str, service: &str, bytes: Vec<u8>, receipt: &str) {
        let stored = Stored { bytes, receipt: receipt.to_owned() };
        let whose = (backup.to_owned(), service.to_owned());
        self.shared.state().corestore.closures.stored.insert(whose, stored);
    }

    /// The bytes of a stored closure.
    pub fn stored_closure(&self, backup: &str, service: &str) -> Option<Vec<u8>> {
        let whose = (backup.to_owned(), service.to_owned());
        self.shared.state().corestore.closures.stored.get(&whose).map(|stored| stored.bytes.clone())
    }

    /// Waits until the relay answered a closure that it was sent, or Cloudly gave it up: whether it was accepted, and in
    /// what words.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_restored(&self, backup: &str, service: &str) -> Result<(bool, String), Late> {
        let whose = (backup.to_owned(), service.to_owned());
        let look = || self.shared.state().corestore.closures.restored.get(&whose).cloned();
        self.shared.change.until(BOUND, "end of a closure that the relay is sent", look).await
    }
}

#[cfg(test)]
mod tests;
