//! The TypedRequest envelope of the wire notes, section 2, with every body kept as the text
//! that came, so that a test can compare bytes (FWD-02, FWD-39).

use std::collections::BTreeMap;
use std::fmt;

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// `error.text` of an answer to a method that the answering side does not have.
pub const UNKNOWN_METHOD: &str = "There is no available method for this call on the server side";

/// Which half of an exchange a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It asks.
    Request,
    /// It answers.
    Response,
}

/// The ids of one exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids {
    /// `correlation.id`.
    pub correlation: String,
    /// `requestInstanceId`; a 3.x library states none.
    pub instance: Option<String>,
}

impl Ids {
    /// Fresh ids, both stated.
    pub fn fresh() -> Self {
        Self { correlation: new_id(), instance: Some(new_id()) }
    }
}

/// A refusal: `error` of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// `error.text`: `<name>` or `<name>: <reason>`.
    pub text: String,
    /// `error.data`.
    pub data: Value,
}

impl Refusal {
    /// A refusal without data.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), data: json!({}) }
    }

    /// The part before the first `: `, which is what a reader matches on.
    pub fn name(&self) -> &str {
        self.text.split_once(": ").map_or(self.text.as_str(), |(name, _)| name)
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `retry` of an answer: ask again after a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// How long to wait, in milliseconds.
    pub wait_for_ms: u64,
    /// Why.
    pub reason: String,
}

/// What an answer says: the response as it came, or a refusal.
pub type Outcome = Result<Box<RawValue>, Refusal>;

/// A text that is no envelope, and why a peer would not answer it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAnEnvelope(pub &'static str);

/// One readable envelope.
#[derive(Debug, Clone)]
pub struct Message {
    /// The whole text as it came.
    pub text: String,
    /// Which half it is.
    pub phase: Phase,
    /// Its ids.
    pub ids: Ids,
    /// `method`, empty when the message has none.
    pub method: String,
    members: BTreeMap<String, Box<RawValue>>,
}

impl Message {
    /// Reads one envelope. What both library generations drop without an answer is refused.
    ///
    /// # Errors
    /// [`NotAnEnvelope`] with the first reason.
    pub fn parse(text: &str) -> Result<Self, NotAnEnvelope> {
        let members: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(text).map_err(|_| NotAnEnvelope("not a JSON object"))?;
        let value = |key: &str| -> Option<Value> { serde_json::from_str(members.get(key)?.get()).ok() };
        let correlation = value("correlation").ok_or(NotAnEnvelope("no correlation"))?;
        let phase = match correlation["phase"].as_str() {
            Some("request") => Phase::Request,
            Some("response") => Phase::Response,
            Some(_) | None => return Err(NotAnEnvelope("unknown phase")),
        };
        let Some(id) = correlation["id"].as_str().filter(|id| !id.is_empty()) else {
            return Err(NotAnEnvelope("no correlation id"));
        };
        let text_of = |key: &str| value(key).and_then(|value| value.as_str().map(str::to_owned));
        let ids = Ids { correlation: id.to_owned(), instance: text_of("requestInstanceId") };
        let method = text_of("method").unwrap_or_default();
        Ok(Self { text: text.to_owned(), phase, ids, method, members })
    }

    /// `request` as it came, `null` when absent.
    pub fn request(&self) -> &str {
        self.member("request").unwrap_or("null")
    }

    /// `response` as it came, `null` when absent.
    pub fn response(&self) -> &str {
        self.member("response").unwrap_or("null")
    }

    /// A top-level member as it came.
    pub fn member(&self, key: &str) -> Option<&str> {
        self.members.get(key).map(|raw| raw.get())
    }

    /// The names of the top-level members, sorted.
    pub fn keys(&self) -> Vec<&str> {
        self.members.keys().map(String::as_str).collect()
    }

    /// What the wire notes forbid to send and this message carries all the same: `localData`,
    /// an `error` that is `null`.
    pub fn forbidden(&self) -> Vec<&'static str> {
        let mut found = Vec::new();
        if self.members.contains_key("localData") {
            found.push("localData");
        }
        if self.member("error") == Some("null") {
            found.push("error:null");
        }
        found
    }

    /// `retry`, where the answer asks for one.
    pub fn retry(&self) -> Option<Retry> {
        let retry: Value = serde_json::from_str(self.member("retry")?).ok()?;
        Some(Retry {
            wait_for_ms: retry["waitForMs"].as_u64()?,
            reason: retry["reason"].as_str().unwrap_or_default().to_owned(),
        })
    }

    /// What the answer says. An `error` counts even beside a response.
    pub fn outcome(&self) -> Outcome {
        match self.member("error").filter(|error| *error != "null") {
            Some(error) => {
                let error: Value = serde_json::from_str(error).unwrap_or_default();
                let text = error["text"].as_str().unwrap_or_default().to_owned();
                Err(Refusal { text, data: error["data"].clone() })
            }
            None => Ok(raw(self.response())),
        }
    }
}

/// A JSON text as a carried body.
///
/// # Panics
/// When `text` is not JSON; a test that wants a broken frame sends one as raw text.
pub fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("a scripted body is JSON")
}

/// `uni_` and 24 lower-case hex digits.
pub fn new_id() -> String {
    format!("uni_{}", random_hex::<12>())
}

/// `N` random bytes in lower-case hex.
pub fn random_hex<const N: usize>() -> String {
    random_bytes::<N>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `N` random bytes.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes
}

/// The text of a request. `body` is placed as it is.
pub fn request(method: &str, body: &str, ids: &Ids) -> String {
    format!(
        r#"{{"method":{},"request":{body},"response":null{}{}}}"#,
        quoted(method),
        instance(ids),
        correlation(ids, "request")
    )
}

/// The text of an answer. `body` is placed as it is.
pub fn answer(method: &str, body: &str, ids: &Ids) -> String {
    format!(
        r#"{{"method":{},"response":{body}{}{}}}"#,
        quoted(method),
        instance(ids),
        correlation(ids, "response")
    )
}

/// The text of an answer that refuses.
pub fn refusal(method: &str, refusal: &Refusal, ids: &Ids) -> String {
    format!(
        r#"{{"method":{},"response":null{}{},"error":{}}}"#,
        quoted(method),
        instance(ids),
        correlation(ids, "response"),
        error_json(refusal)
    )
}

/// `error` of a refusal.
pub fn error_json(refusal: &Refusal) -> String {
    json!({"text": refusal.text, "data": refusal.data}).to_string()
}

/// The text of an answer that asks to come again.
pub fn come_again(method: &str, retry: &Retry, ids: &Ids) -> String {
    let retry = json!({"waitForMs": retry.wait_for_ms, "reason": retry.reason});
    format!(
        r#"{{"method":{},"response":null{}{},"retry":{retry}}}"#,
        quoted(method),
        instance(ids),
        correlation(ids, "response")
    )
}

/// What a library of the 8.x line answers: the request's own members with `response`, phase and
/// `error` or `retry` put in (wire notes, section 3). The request's body goes back whole.
pub fn echoed(request: &Message, minimal_answer: &str, local_data: bool) -> String {
    let answer = Message::parse(minimal_answer).expect("the answer was composed here");
    let mut members = request.members.clone();
    for key in ["response", "correlation", "error", "retry"] {
        if let Some(text) = answer.member(key) {
            members.insert(key.to_owned(), raw(text));
        }
    }
    members.remove("localData");
    if local_data {
        members.insert("localData".to_owned(), raw("null"));
    }
    serde_json::to_string(&members).expect("raw members serialise")
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn instance(ids: &Ids) -> String {
    ids.instance.as_ref().map_or_else(String::new, |id| format!(r#","requestInstanceId":{}"#, quoted(id)))
}

fn correlation(ids: &Ids, phase: &str) -> String {
    format!(r#","correlation":{{"id":{},"phase":"{phase}"}}"#, quoted(&ids.correlation))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body is carried byte for byte, number form and key order included.
    #[test]
    fn a_body_keeps_its_bytes() {
        let body = r#"{"z":1.0,"a":[1e3, 0.10],"é":"\u00e9"}"#;
        let message = Message::parse(&request("m", body, &Ids::fresh())).unwrap();
        assert_eq!(message.request(), body);
        assert_eq!(message.response(), "null");
        assert_eq!(message.phase, Phase::Request);
        assert_eq!(message.keys(), ["correlation", "method", "request", "requestInstanceId", "response"]);
    }

    /// Ids have the form of the contract.
    #[test]
    fn ids_have_the_contract_form() {
        let id = new_id();
        assert_eq!(id.len(), 28);
        let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        assert!(id.strip_prefix("uni_").unwrap().bytes().all(lower_hex));
        assert_ne!(id, new_id());
    }

    /// What both library generations drop is no envelope.
    #[test]
    fn a_peer_drops_what_is_no_envelope() {
        for text in [
            "nonsense",
            "null",
            "[]",
            r#"{"method":"m","request":{}}"#,
            r#"{"method":"m","correlation":{"id":"x","phase":"other"}}"#,
            r#"{"method":"m","correlation":{"id":"","phase":"request"}}"#,
            r#"{"method":"m","correlation":{"id":7,"phase":"request"}}"#,
        ] {
            assert!(Message::parse(text).is_err(), "{text}");
        }
    }

    /// An answer refuses, answers, or asks to come again; a library's echo changes none of it.
    #[test]
    fn an_answer_reads_as_it_was_meant() {
        let ids = Ids { correlation: "c".into(), instance: None };
        let asked = Message::parse(&request("m", r#"{"secret":1}"#, &ids)).unwrap();
        let refused = Refusal { text: "some-name: reason: more".into(), data: json!({"n": 7}) };
        let text = refusal("m", &refused, &ids);
        for form in [text.clone(), echoed(&asked, &text, false), echoed(&asked, &text, true)] {
            let read = Message::parse(&form).unwrap();
            assert_eq!(read.outcome().unwrap_err(), refused);
            assert_eq!(read.ids, ids);
        }
        assert_eq!(refused.name(), "some-name");
        let echo = echoed(&asked, &answer("m", r#"{"b":2}"#, &ids), true);
        let echo = Message::parse(&echo).unwrap();
        assert_eq!(echo.request(), r#"{"secret":1}"#);
        assert_eq!(echo.outcome().unwrap().get(), r#"{"b":2}"#);
        assert_eq!(echo.forbidden(), ["localData"]);
        let retry = Retry { wait_for_ms: 20, reason: "busy".into() };
        assert_eq!(Message::parse(&come_again("m", &retry, &ids)).unwrap().retry(), Some(retry));
    }
}
