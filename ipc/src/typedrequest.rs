//! The TypedRequest envelope: what is read of a frame and how one is written, in the form that both
//! generations of the public library accept.
//!
//! A body is only carried: it stays the JSON text that arrived, byte for byte (FWD-39), and an
//! echoed `request` in an answer is skipped unread. Nothing here holds a Debug of a body.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Longest id or method name of a frame, in bytes.
pub const NAME_LIMIT: usize = 256;
/// `error.text` for a method nobody serves.
pub const UNKNOWN_METHOD: &str = "There is no available method for this call on the server side";
/// `error.text` for a failure of a handler itself.
pub const INTERNAL_ERROR: &str = "Internal server error";

/// A JSON value as the text that arrived or will be sent: opaque, cheap to clone, never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Body(Bytes);

impl Body {
    /// Serialises a value of this project's own.
    pub fn of(value: &impl serde::Serialize) -> Self {
        Self(Bytes::from(serde_json::to_vec(value).expect("own types have string keys and no failing parts")))
    }

    /// Takes text that is JSON already.
    pub fn from_json(text: String) -> Self {
        Self(Bytes::from(text))
    }

    /// The empty object.
    pub fn empty() -> Self {
        Self(Bytes::from_static(b"{}"))
    }

    /// The JSON text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a body is cut out of valid UTF-8 at JSON borders")
    }

    /// Length of the JSON text in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no text; a body that was read has one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads members out of a body that is an object; the error states no value of it.
    pub fn read<'de, T: Deserialize<'de>>(&'de self) -> Result<T, Unreadable> {
        object(self.text()).map_err(|error| Unreadable { column: error.map_or(1, |error| error.column()) })
    }
}

/// Reads an object; `None` stands for another kind of value. A derived reader alone would take an array
/// of the members' values for the object.
fn object<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, Option<serde_json::Error>> {
    if !text.trim_ascii_start().starts_with('{') {
        return Err(None);
    }
    serde_json::from_str(text).map_err(Some)
}

/// A body does not have the members that a reader needs. States where, never what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable {
    /// Column at which reading ended.
    pub column: usize,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unreadable at column {}", self.column)
    }
}

/// `correlation.id` and `requestInstanceId` of a request: what its answer has to copy.
#[derive(Clone, PartialEq, Eq)]
pub struct Ids {
    /// `correlation.id`.
    pub correlation: String,
    /// `requestInstanceId`, absent when the request stated none.
    pub instance: Option<String>,
}

/// A request as it arrived.
#[derive(Clone)]
pub struct Request {
    /// The method's name.
    pub method: String,
    /// What the answer copies.
    pub ids: Ids,
    /// The `request` member.
    pub body: Body,
}

/// What a call led to.
#[derive(Clone)]
pub enum Outcome {
    /// `response`, `null` included: a peer of the older generation answers a crash that way.
    Response(Body),
    /// `error`, as it was written.
    Error(Body),
}

/// An answer as it arrived.
#[derive(Clone)]
pub struct Answer {
    /// `correlation.id`.
    pub correlation: String,
    /// `requestInstanceId`, where the answer states one.
    pub instance: Option<String>,
    /// What the call led to.
    pub outcome: Outcome,
    /// Milliseconds after which the peer asks for the request again.
    pub retry_after_ms: Option<u64>,
}

/// A frame that is part of the protocol.
pub enum Envelope {
    /// `correlation.phase` is `request`.
    Request(Request),
    /// `correlation.phase` is `response`.
    Answer(Answer),
}

/// Why a frame is not part of the protocol; it gets no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Malformed {
    /// Not UTF-8, not JSON, or not an object with members of the right types.
    NotAnEnvelope,
    /// No correlation, or one without an id.
    NoCorrelation,
    /// A phase that is neither `request` nor `response`.
    UnknownPhase,
    /// A request without a method or without an object as its body.
    NoRequest,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotAnEnvelope => "not-an-envelope",
            Self::NoCorrelation => "no-correlation",
            Self::UnknownPhase => "unknown-phase",
            Self::NoRequest => "no-request",
        })
    }
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(default)]
    method: Option<String>,
    #[serde(default, borrow)]
    request: Option<&'a RawValue>,
    #[serde(default, borrow)]
    response: Option<&'a RawValue>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
    #[serde(default, rename = "requestInstanceId")]
    instance: Option<String>,
    #[serde(default, borrow)]
    correlation: Option<&'a RawValue>,
    #[serde(default, borrow)]
    retry: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireCorrelation {
    id: String,
    phase: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRetry {
    wait_for_ms: u64,
}

/// Reads one message of a socket.
pub fn read(frame: &Bytes) -> Result<Envelope, Malformed> {
    let text = std::str::from_utf8(frame).map_err(|_| Malformed::NotAnEnvelope)?;
    let wire: Wire<'_> = object(text).map_err(|_| Malformed::NotAnEnvelope)?;
    // A small body does not keep a large frame alive.
    let body = |raw: &RawValue| match raw.get().as_bytes() {
        bytes if bytes.len() < frame.len() / 2 => Body(Bytes::copy_from_slice(bytes)),
        bytes => Body(frame.slice_ref(bytes)),
    };
    let correlation: WireCorrelation = wire
        .correlation
        .and_then(|raw| object(raw.get()).ok())
        .filter(|correlation: &WireCorrelation| (1..=NAME_LIMIT).contains(&correlation.id.len()))
        .ok_or(Malformed::NoCorrelation)?;
    if wire.instance.as_ref().is_some_and(|instance| instance.len() > NAME_LIMIT) {
        return Err(Malformed::NoCorrelation);
    }
    match correlation.phase.as_str() {
        "request" => {
            let (Some(method), Some(request)) = (wire.method, wire.request) else {
                return Err(Malformed::NoRequest);
            };
            if !request.get().starts_with('{') || method.len() > NAME_LIMIT {
                return Err(Malformed::NoRequest);
            }
            let ids = Ids { correlation: correlation.id, instance: wire.instance };
            Ok(Envelope::Request(Request { method, ids, body: body(request) }))
        }
        "response" => {
            let outcome = match wire.error.filter(|error| error.get() != "null") {
                Some(error) => Outcome::Error(body(error)),
                None => {
                    Outcome::Response(wire.response.map_or_else(|| Body(Bytes::from_static(b"null")), body))
                }
            };
            let retry: Option<WireRetry> = wire.retry.and_then(|raw| object(raw.get()).ok());
            Ok(Envelope::Answer(Answer {
                correlation: correlation.id,
                instance: wire.instance,
                outcome,
                retry_after_ms: retry.map(|retry| retry.wait_for_ms),
            }))
        }
        _ => Err(Malformed::UnknownPhase),
    }
}

/// Writes a request.
pub fn write_request(method: &str, body: &Body, correlation: &str, instance: &str) -> String {
    let mut frame = String::with_capacity(body.0.len() + method.len() + 192);
    frame.push_str("{\"method\":");
    push_json(&mut frame, method);
    frame.push_str(",\"request\":");
    frame.push_str(body.text());
    frame.push_str(",\"response\":null,\"requestInstanceId\":");
    push_json(&mut frame, instance);
    frame.push_str(",\"correlation\":{\"id\":");
    push_json(&mut frame, correlation);
    frame.push_str(",\"phase\":\"request\"}}");
    frame
}

/// Writes the answer to a request of `method` with `ids`. The request is never echoed.
pub fn write_answer(method: &str, ids: &Ids, outcome: &Outcome) -> String {
    let (response, error) = match outcome {
        Outcome::Response(body) => (body.text(), None),
        Outcome::Error(error) => ("null", Some(error)),
    };
    let mut frame = String::with_capacity(response.len() + method.len() + 256);
    frame.push_str("{\"method\":");
    push_json(&mut frame, method);
    frame.push_str(",\"response\":");
    frame.push_str(response);
    if let Some(instance) = &ids.instance {
        frame.push_str(",\"requestInstanceId\":");
        push_json(&mut frame, instance);
    }
    frame.push_str(",\"correlation\":{\"id\":");
    push_json(&mut frame, &ids.correlation);
    frame.push_str(",\"phase\":\"response\"}");
    if let Some(error) = error {
        frame.push_str(",\"error\":");
        frame.push_str(error.text());
    }
    frame.push('}');
    frame
}

fn push_json(frame: &mut String, text: &str) {
    frame.push_str(&serde_json::to_string(text).expect("text is always JSON"));
}

/// An `error` member of this project's own: `text` and an object as `data`.
pub fn refusal(text: &str, data: serde_json::Value) -> Outcome {
    Outcome::Error(Body::of(&serde_json::json!({ "text": text, "data": data })))
}

/// A refusal with empty data.
pub fn plain_refusal(text: &str) -> Outcome {
    refusal(text, serde_json::json!({}))
}

/// What a peer's `error` says, read for its name: the text, and the data where a shape is known.
#[derive(Clone)]
pub struct PeerError {
    /// `error.text`, bounded for log lines; empty when it is not a text.
    pub text: String,
    /// `error.data` as it was written, `null` when absent.
    pub data: Body,
}

impl PeerError {
    /// Reads the `error` member of an answer.
    pub fn of(error: &Body) -> Self {
        #[derive(Deserialize)]
        struct Wire<'a> {
            #[serde(default)]
            text: Option<String>,
            #[serde(default, borrow)]
            data: Option<&'a RawValue>,
        }
        let wire: Option<Wire<'_>> = error.read().ok();
        let text = wire.as_ref().and_then(|wire| wire.text.as_ref());
        Self {
            text: text.map(|text| text.chars().take(300).collect()).unwrap_or_default(),
            data: wire
                .as_ref()
                .and_then(|wire| wire.data)
                .map_or_else(|| Body::from_json("null".into()), |raw| Body::from_json(raw.get().to_owned())),
        }
    }

    /// The refusal's name: what stands before the first `: `.
    pub fn name(&self) -> &str {
        self.text.split_once(": ").map_or(self.text.as_str(), |(name, _)| name)
    }
}

/// Makes the ids of this process's requests: `uni_` and 24 lower-case hex digits, never repeated.
pub struct IdSource {
    process: u32,
    next: u64,
}

impl IdSource {
    /// A source whose ids differ from those of another process.
    pub fn new() -> Self {
        let process = getrandom::u32().expect("the kernel's random source answers after boot");
        Self { process, next: 0 }
    }

    /// The next number of this source.
    pub fn take(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The id of a number of this source.
    pub fn write(&self, number: u64) -> String {
        format!("uni_{:08x}{number:016x}", self.process)
    }

    /// The number of an id that this source made.
    pub fn number(&self, id: &str) -> Option<u64> {
        // A number's own parser takes a sign and either letter case.
        let plain = |digits: &&str| digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let digits = id.strip_prefix("uni_").filter(|digits| digits.len() == 24).filter(plain)?;
        let (process, number) = digits.split_at(8);
        (u32::from_str_radix(process, 16).ok()? == self.process).then_some(())?;
        u64::from_str_radix(number, 16).ok()
    }
}

impl Default for IdSource {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
