//! The database closures that a replicated backup sends to Cloudly, and the replication record that comes of them
//! (BAK-14). A closure is announced by a request and travels in binary frames of the same session.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Cloudly;
use super::judgement::exact;
use crate::corestore::answer::digest;
use crate::envelope::{Outcome, Refusal, raw};

/// Bytes that a sender may be ahead of what was taken.
const WINDOW: u64 = 4 << 20;
/// Largest payload of a chunk, in bytes.
const CHUNK: usize = 256 << 10;
/// Bytes of a frame's head: its type and the stream.
const HEAD: usize = 17;

/// What Cloudly records of a backup that was to be replicated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replication {
    /// The closure was accepted: its length and digest.
    Stored(u64, String),
    /// No closure of it was accepted.
    Failed,
}

/// What becomes of a transfer by a frame.
enum Taken {
    /// It goes on, up to this offset.
    Credit(u64),
    /// All of it is there.
    Whole,
    /// It is not what was announced.
    Refused(&'static str),
}

struct Transfer {
    backup: String,
    length: u64,
    digest: String,
    arrived: Vec<u8>,
}

/// The closures of one cluster.
#[derive(Default)]
pub(super) struct Closures {
    /// The backups whose closure was asked for, and what was accepted.
    requested: BTreeMap<String, Option<(u64, String)>>,
    /// By the first 16 bytes of the digest of the stream's id.
    transfers: BTreeMap<[u8; 16], Transfer>,
}

/// How a stream is named in its frames: the first 16 bytes of the digest of its id.
fn name_of(stream: &str) -> [u8; 16] {
    let digest = digest(stream.as_bytes());
    let hex = digest.trim_start_matches("sha256:");
    std::array::from_fn(|at| {
        u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("a digest is hexadecimal")
    })
}

impl Closures {
    /// The announcement of a closure: leave to send it, no more.
    pub(super) fn offer(&mut self, body: &Value) -> Outcome {
        exact(body, &["backupId", "nodeId", "receipt", "serviceId", "stream"], &[], "closure")?;
        let backup = body["backupId"].as_str().unwrap_or_default();
        if !self.requested.contains_key(backup) {
            return Err(Refusal::new("closure-not-requested"));
        }
        let (stream, integrity) = (&body["stream"], &body["stream"]["integrity"]);
        let (Some(id), Some(length), Some(digest)) =
            (stream["streamId"].as_str(), integrity["byteLength"].as_u64(), integrity["digest"].as_str())
        else {
            return Err(Refusal::new("closure-invalid: stream"));
        };
        let transfer =
            Transfer { backup: backup.to_owned(), length, digest: digest.to_owned(), arrived: Vec::new() };
        self.transfers.insert(name_of(id), transfer);
        Ok(raw(&json!({"permitted": true}).to_string()))
    }

    /// Takes a frame, and gives the one that answers it.
    pub(super) fn take(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let (head, rest) = frame.split_at_checked(HEAD)?;
        let name: [u8; 16] = head[1..].try_into().expect("the head is as long");
        let transfer = self.transfers.get_mut(&name)?;
        let taken = match head[0] {
            1 => transfer.chunk(rest),
            3 => transfer.end(rest),
            5 => {
                self.transfers.remove(&name);
                return None;
            }
            // Credit and receipt are the receiver's to send.
            _ => return None,
        };
        let (kind, payload) = match taken {
            Taken::Credit(offset) => (2, offset.to_be_bytes().to_vec()),
            Taken::Whole => {
                let ended = self.transfers.remove(&name).expect("it was just found");
                self.requested.insert(ended.backup, Some((ended.length, ended.digest)));
                (4, [&[1], "stored".as_bytes()].concat())
            }
            Taken::Refused(why) => {
                self.transfers.remove(&name);
                (4, [&[0], why.as_bytes()].concat())
            }
        };
        Some([&[kind], &name[..], &payload].concat())
    }
}

impl Transfer {
    /// A chunk goes on where the last ended; the credit that it leaves.
    fn chunk(&mut self, rest: &[u8]) -> Taken {
        let Some((offset, payload)) = rest.split_first_chunk::<8>() else {
            return Taken::Refused("closure-frame-invalid");
        };
        let arrived = self.arrived.len() as u64;
        if u64::from_be_bytes(*offset) != arrived
            || payload.len() > CHUNK
            || arrived + payload.len() as u64 > self.length
        {
            return Taken::Refused("closure-frame-invalid");
        }
        self.arrived.extend_from_slice(payload);
        Taken::Credit(self.arrived.len() as u64 + WINDOW)
    }

    /// Whether what arrived is what was announced.
    fn end(&self, rest: &[u8]) -> Taken {
        let whole = self.arrived.len() as u64 == self.length && digest(&self.arrived) == self.digest;
        let stated = rest.first_chunk::<8>().map(|length| u64::from_be_bytes(*length));
        if whole && stated == Some(self.length) && rest.len() == 40 {
            Taken::Whole
        } else {
            Taken::Refused("closure-mismatch")
        }
    }
}

impl Cloudly {
    /// A backup with `replication.enabled` was asked for.
    pub fn request_closure(&self, backup: &str) {
        self.shared.state().closures.requested.insert(backup.to_owned(), None);
    }

    /// The replication record of a backup, once its response is there; `None` for one without replication.
    pub fn replication(&self, backup: &str) -> Option<Replication> {
        let accepted = self.shared.state().closures.requested.get(backup)?.clone();
        Some(accepted.map_or(Replication::Failed, |(length, digest)| Replication::Stored(length, digest)))
    }
}
