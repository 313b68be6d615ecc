//! The texts of an identity exchange: composing the request, reading the answer, judging the identity
//! (SES-03). Everything here is pure. Buffers that hold the bearer or an identity are wiped on drop.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use coreflow_ipc::messages::relayd::Identity;
use coreflow_ipc::secret::SecretText;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::failure::{AnswerFault, ExchangeError, Refusal};

#[cfg(test)]
pub(super) mod tests;

/// Largest integer that both sides keep exactly: 2^53 − 1.
const LARGEST_INTEGER: u64 = (1 << 53) - 1;

/// The ids of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestIds {
    /// The same for every repetition of a request.
    pub correlation: String,
    /// Another one for every repetition.
    pub instance: String,
}

/// What an identity is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityKind {
    /// `machine`
    Machine,
    /// `human`
    Human,
}

/// What an identity may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityRole {
    /// `admin`
    Admin,
    /// `user`
    User,
    /// `api`
    Api,
    /// `cluster`
    Cluster,
}

/// The identity that Cloudly issued for the bearer. It has no `Debug`: it authenticates its holder.
pub struct ExchangedIdentity {
    /// Its name at Cloudly.
    pub name: String,
    /// Its id at Cloudly.
    pub user_id: String,
    /// What it is for.
    pub kind: IdentityKind,
    /// What it may do.
    pub role: IdentityRole,
    /// Unix milliseconds of its end.
    pub expires_at: u64,
    /// Its token.
    pub jwt: SecretText,
    /// The identity object in the exact JSON text that Cloudly sent.
    pub raw: SecretText,
}

impl From<ExchangedIdentity> for Identity {
    fn from(identity: ExchangedIdentity) -> Self {
        Self { document: identity.raw, expires_at: identity.expires_at }
    }
}

/// What an answer says.
pub enum Answer {
    /// The identity, not judged.
    Identity(ExchangedIdentity),
    /// Wait this long and send again.
    Retry(Duration),
}

/// The request's body, in a buffer that never grows: a growing one leaves copies of the bearer behind.
pub fn compose(bearer: &[u8], ids: &RequestIds) -> Zeroizing<Vec<u8>> {
    let token = std::str::from_utf8(bearer).expect("a bearer is UTF-8 by construction");
    let (correlation, instance) = (&ids.correlation, &ids.instance);
    let head = br#"{"method":"getIdentityByToken","request":{"token":"#;
    let tail = format!(
        r#"}},"response":null,"requestInstanceId":"{instance}","correlation":{{"id":"{correlation}","phase":"request"}}}}"#
    );
    // JSON writes one byte in six at most, and two quotes.
    let mut body = Zeroizing::new(Vec::with_capacity(head.len() + 6 * token.len() + 2 + tail.len()));
    let room = body.capacity();
    body.extend_from_slice(head);
    serde_json::to_writer(&mut *body, token).expect("a string has a JSON form and a vector takes it");
    body.extend_from_slice(tail.as_bytes());
    debug_assert_eq!(body.capacity(), room);
    body
}

/// Reads an answer: refusal before retry before identity. An echoed `request`, which holds the bearer, is
/// not read.
///
/// # Errors
/// A refusal, or the path of what is no answer to this request.
pub fn parse(answer: &[u8], ids: &RequestIds) -> Result<Answer, ExchangeError> {
    let envelope: Members<'_> = serde_json::from_slice(answer)
        .map_err(|_| ExchangeError::unusable("answer", AnswerFault::NotJson))?;
    if envelope.repeated {
        return Err(ExchangeError::unusable("answer", AnswerFault::Foreign));
    }
    let correlation: Members<'_> = envelope.read("correlation", "correlation")?;
    if correlation.text("id", "correlation.id")? != ids.correlation.as_str() {
        return Err(ExchangeError::unusable("correlation.id", AnswerFault::NotOurs));
    }
    if correlation.text("phase", "correlation.phase")? != "response" {
        return Err(ExchangeError::unusable("correlation.phase", AnswerFault::Malformed));
    }
    if envelope.holds("requestInstanceId")
        && envelope.text("requestInstanceId", "requestInstanceId")? != ids.instance.as_str()
    {
        return Err(ExchangeError::unusable("requestInstanceId", AnswerFault::NotOurs));
    }
    if envelope.holds("error") {
        let error: Members<'_> = envelope.read("error", "error")?;
        return Err(ExchangeError::Refused(Refusal::of_text(&error.text("text", "error.text")?)));
    }
    if envelope.holds("retry") {
        let retry: Members<'_> = envelope.read("retry", "retry")?;
        let wait = retry.integer("waitForMs", "retry.waitForMs")?;
        return Ok(Answer::Retry(Duration::from_millis(wait)));
    }
    let response: Members<'_> = envelope.read("response", "response")?;
    response.exactly(&["identity"], "response")?;
    read_identity(&response).map(Answer::Identity)
}

fn read_identity(response: &Members<'_>) -> Result<ExchangedIdentity, ExchangeError> {
    let identity: Members<'_> = response.read("identity", "response.identity")?;
    identity.exactly(&["name", "userId", "type", "role", "expiresAt", "jwt"], "response.identity")?;
    let malformed = |path| ExchangeError::unusable(path, AnswerFault::Malformed);
    let kind = match &*identity.text("type", "response.identity.type")? {
        "machine" => IdentityKind::Machine,
        "human" => IdentityKind::Human,
        _ => return Err(malformed("response.identity.type")),
    };
    let role = match &*identity.text("role", "response.identity.role")? {
        "admin" => IdentityRole::Admin,
        "user" => IdentityRole::User,
        "api" => IdentityRole::Api,
        "cluster" => IdentityRole::Cluster,
        _ => return Err(malformed("response.identity.role")),
    };
    let jwt = identity.text("jwt", "response.identity.jwt")?;
    if jwt.is_empty() {
        return Err(malformed("response.identity.jwt"));
    }
    Ok(ExchangedIdentity {
        name: identity.text("name", "response.identity.name")?.into_owned(),
        user_id: identity.text("userId", "response.identity.userId")?.into_owned(),
        kind,
        role,
        expires_at: identity.integer("expiresAt", "response.identity.expiresAt")?,
        jwt: SecretText::new(jwt.into_owned()),
        raw: SecretText::new(response.raw("identity").get().to_owned()),
    })
}

/// Accepts the identity of a cluster's machine that ends after `now`, in Unix milliseconds.
///
/// # Errors
/// The path of what makes the identity unfit.
pub fn judge(identity: ExchangedIdentity, now: u64) -> Result<ExchangedIdentity, ExchangeError> {
    if identity.kind != IdentityKind::Machine {
        return Err(ExchangeError::unusable("response.identity.type", AnswerFault::Unfit));
    }
    if identity.role != IdentityRole::Cluster {
        return Err(ExchangeError::unusable("response.identity.role", AnswerFault::Unfit));
    }
    if identity.expires_at <= now {
        return Err(ExchangeError::unusable("response.identity.expiresAt", AnswerFault::Expired));
    }
    Ok(identity)
}

/// The members of an object, each as a span of the text that was sent: what nobody reads is copied nowhere.
struct Members<'a> {
    members: BTreeMap<Cow<'a, str>, &'a RawValue>,
    repeated: bool,
}

impl<'a> Members<'a> {
    /// Whether a member is there and not `null`.
    fn holds(&self, name: &str) -> bool {
        self.raw(name).get() != "null"
    }

    /// A member's text, `null` for an absent one.
    fn raw(&self, name: &str) -> &'a RawValue {
        self.members.get(name).copied().unwrap_or(RawValue::NULL)
    }

    fn read<T: Deserialize<'a>>(&self, name: &str, path: &'static str) -> Result<T, ExchangeError> {
        if !self.holds(name) {
            return Err(ExchangeError::unusable(path, AnswerFault::Missing));
        }
        serde_json::from_str(self.raw(name).get())
            .map_err(|_| ExchangeError::unusable(path, AnswerFault::Malformed))
    }

    fn text(&self, name: &str, path: &'static str) -> Result<Cow<'a, str>, ExchangeError> {
        self.read::<Text<'a>>(name, path).map(|text| text.0)
    }

    fn integer(&self, name: &str, path: &'static str) -> Result<u64, ExchangeError> {
        let value: u64 = self.read(name, path)?;
        let malformed = ExchangeError::unusable(path, AnswerFault::Malformed);
        if value <= LARGEST_INTEGER { Ok(value) } else { Err(malformed) }
    }

    /// Refuses members that are not in `names`, and any that occurs twice.
    fn exactly(&self, names: &[&str], path: &'static str) -> Result<(), ExchangeError> {
        if self.repeated || self.members.keys().any(|name| !names.contains(&name.as_ref())) {
            return Err(ExchangeError::unusable(path, AnswerFault::Foreign));
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut all = Members { members: BTreeMap::new(), repeated: false };
                while let Some(Text(name)) = map.next_key()? {
                    all.repeated |= all.members.insert(name, map.next_value()?).is_some();
                }
                Ok(all)
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

/// A string, borrowed where it holds no escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}
