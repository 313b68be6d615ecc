//! What the control API answers, and how it reads a body.

use ring::digest as sha;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// An answer: a status, what its body is, and headers of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Headers beside type and length.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// An answer in JSON.
    pub fn json(status: u16, body: &Value) -> Self {
        Self { status, headers: Vec::new(), body: body.to_string().into_bytes() }
    }
}

/// A refusal with a reason in its body.
pub(super) fn refused(status: u16, error: &str, reason: &str) -> Answer {
    Answer::json(status, &json!({"error": error, "reason": reason}))
}

/// Reads an exact-key body.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Answer> {
    serde_json::from_slice(body).map_err(|_| Answer::json(400, &json!({"error": "body-invalid"})))
}

/// `sha256:` and 64 lower-case hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    let hex = sha::digest(&sha::SHA256, bytes).as_ref().iter().fold(String::new(), |mut hex, byte| {
        for nibble in [byte >> 4, byte & 15] {
            hex.push(char::from_digit(u32::from(nibble), 16).expect("a nibble is a hexadecimal digit"));
        }
        hex
    });
    format!("sha256:{hex}")
}
