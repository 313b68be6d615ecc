//! The descriptor of a stream (contract of the Corestore half, section 7): what names it in a body, and states its
//! bytes beforehand.

use serde_json::{Value, json};

use crate::cloudly::exact;
use crate::corestore::answer::digest;
use crate::envelope::Refusal;

/// What a descriptor states of the bytes.
pub(super) struct Stated {
    /// Their number.
    pub(super) byte_length: u64,
    /// `Digest` of them.
    pub(super) digest: String,
}

/// Reads a descriptor, exact-key, of a stream that its author sends.
pub(super) fn stated(stream: &Value) -> Result<Stated, Refusal> {
    const MEMBERS: [&str; 7] = [
        "_isVirtualStream",
        "contentType",
        "creatorDirection",
        "integrity",
        "protocol",
        "streamId",
        "transport",
    ];
    exact(stream, &MEMBERS, &[], "closure")?;
    let integrity = &stream["integrity"];
    exact(integrity, &["algorithm", "byteLength", "digest"], &[], "closure")?;
    let wrong = |member: &str| Refusal::new(format!("closure-invalid: {member}"));
    for (member, value) in [
        ("_isVirtualStream", json!(true)),
        ("contentType", json!("application/octet-stream")),
        ("creatorDirection", json!("send")),
        ("protocol", json!("virtual-stream-v1")),
        ("transport", json!({"kind": "binary-frames-v1"})),
    ] {
        if stream[member] != value {
            return Err(wrong(member));
        }
    }
    if integrity["algorithm"] != "sha256" {
        return Err(wrong("algorithm"));
    }
    let byte_length = integrity["byteLength"].as_u64().ok_or_else(|| wrong("byteLength"))?;
    Ok(Stated { byte_length, digest: text(integrity, "digest")?.to_owned() })
}

/// The descriptor of a stream of `bytes` that this side sends.
pub(super) fn composed(stream_id: &str, bytes: &[u8]) -> Value {
    json!({
        "_isVirtualStream": true,
        "protocol": "virtual-stream-v1",
        "streamId": stream_id,
        "creatorDirection": "send",
        "contentType": "application/octet-stream",
        "integrity": {
            "algorithm": "sha256",
            "byteLength": bytes.len(),
            "digest": digest(bytes),
        },
        "transport": {"kind": "binary-frames-v1"},
    })
}

/// A member that is a string.
pub(super) fn text<'a>(body: &'a Value, member: &str) -> Result<&'a str, Refusal> {
    body[member].as_str().ok_or_else(|| Refusal::new(format!("closure-invalid: {member}")))
}
