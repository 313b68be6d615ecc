//! The half of Cloudly that has to do with Corestore: which requests it is, and on which socket they are answered.
//! It models PLT-20.

use serde_json::{Value, json};

use super::Frame;
use super::closures::Closures;
use super::judgement::State;
use super::platform::Platform;
use super::publications::Publications;
use super::recipients::Recipients;
use crate::envelope::{Message, Outcome, Refusal, UNKNOWN_METHOD, random_bytes, raw};

/// What Cloudly knows of it.
#[derive(Default)]
pub(super) struct Corestore {
    pub(super) recipients: Recipients,
    pub(super) platform: Platform,
    pub(super) publications: Publications,
    pub(super) closures: Closures,
}

/// A refusal whose `error.data.code` says why.
pub(super) fn coded(name: &str, code: &str) -> Refusal {
    Refusal { text: format!("{name}: {code}"), data: json!({"code": code}) }
}

impl State {
    /// The relay's requests of this half; of any other method Cloudly has none.
    pub(super) fn judge_corestore(&mut self, number: u64, method: &str, body: &Value) -> Outcome {
        const METHODS: [&str; 10] = [
            "getClusterSecretRecipientState",
            "beginClusterSecretRecipientEnrollment",
            "completeClusterSecretRecipientEnrollment",
            "getCorestoreControlCredentialMaterial",
            "getClusterPlatformDesiredState",
            "reportClusterPlatformBinding",
            "getSecretIngressRecipient",
            "publishCorestoreCredentialMaterial",
            "backupServiceDatabaseClosure",
            "restoreServiceDatabaseClosure",
        ];
        if !METHODS.contains(&method) {
            return Err(Refusal::new(UNKNOWN_METHOD));
        }
        self.accepted_relay(number)?;
        let now = self.now_ms();
        let cluster = &self.settings.cluster_id;
        let Corestore { recipients, platform, publications, closures } = &mut self.corestore;
        let answer = match method {
            "getClusterSecretRecipientState" => recipients.state(body),
            "beginClusterSecretRecipientEnrollment" => recipients.begin(cluster, body, random_bytes()),
            "completeClusterSecretRecipientEnrollment" => recipients.complete(body),
            "getCorestoreControlCredentialMaterial" => recipients.material(cluster, body),
            "getClusterPlatformDesiredState" => platform.desired_state(body),
            "reportClusterPlatformBinding" => platform.report(body),
            "getSecretIngressRecipient" => publications.recipient(body),
            "publishCorestoreCredentialMaterial" => publications.publish(platform, cluster, body, now),
            "backupServiceDatabaseClosure" => closures.begin_backup(number, body, now),
            "restoreServiceDatabaseClosure" => closures.begin_restore(number, body, now),
            _ => Err(Refusal::new(UNKNOWN_METHOD)),
        };
        answer.map(|answer| raw(&answer.to_string()))
    }

    /// A binary frame that came on a connection, and what is sent upon it.
    pub(super) fn frame_received(&mut self, number: u64, bytes: &[u8]) -> Vec<Frame> {
        let Some(frame) = Frame::parse(bytes) else {
            self.unreadable.push(String::from_utf8_lossy(bytes).into_owned());
            return Vec::new();
        };
        let now = self.now_ms();
        self.corestore.closures.received(number, frame, now)
    }

    /// The credit that goes with leave to send a closure.
    pub(super) fn credit_after(&self, message: &Message) -> Option<Frame> {
        if message.method != "backupServiceDatabaseClosure" {
            return None;
        }
        self.corestore.closures.credit_of(&serde_json::from_str(message.request()).ok()?)
    }

    /// PLT-20: the socket whose registration was accepted last is the relay's. One without an accepted registration
    /// is not connected as a relay; one that another took the place of would make two.
    fn accepted_relay(&self, number: u64) -> Result<(), Refusal> {
        if !self.connections.get(&number).is_some_and(|open| open.accepted) {
            return Err(Refusal::new("relay-not-connected"));
        }
        let standing = self.standing.as_ref().and_then(|relay| relay.connection);
        if standing == Some(number) { Ok(()) } else { Err(Refusal::new("relay-ambiguous")) }
    }
}
