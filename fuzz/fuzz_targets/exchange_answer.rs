//! Cloudly's answer to the identity exchange, as HTTP or as its body: an identity is one of a cluster's machine, in the
//! text that was sent, and a failure says nothing of the answer (SES-03, SES-07, SES-16, LOG-01).
#![no_main]

use bytes::Bytes;
use coreflow_fuzz::peer::{answering, run};
use coreflow_supervisor::{
    constants::EXCHANGE_ANSWER_BYTES,
    exchange::{
        ExchangeError, IdentityKind, IdentityRole,
        envelope::{Answer, RequestIds, judge, parse},
        speak,
    },
};
use http::Request;
use http_body_util::Full;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// The supervisor's clock in Unix milliseconds, by which the seeds are valid.
const NOW: u64 = 1_800_000_000_000;

/// Names, paths and a status: nothing that Cloudly wrote.
fn says_nothing(error: &ExchangeError) {
    let words = error.to_string();
    let own = |character: char| character.is_ascii_alphanumeric() || " .,:'-()".contains(character);
    assert!(words.len() < 160 && words.chars().all(own), "{words:?}");
    if let ExchangeError::Transport { code: Some(code), .. } = error {
        assert!(code.len() <= 32, "{code:?}");
    }
}

fn read(body: &[u8]) {
    let ids = RequestIds { correlation: "uni_c".to_owned(), instance: "uni_i".to_owned() };
    let identity = match parse(body, &ids) {
        Ok(Answer::Identity(identity)) => identity,
        Ok(Answer::Retry(wait)) => return assert!(wait.as_millis() < 1 << 53),
        Err(error) => return says_nothing(&error),
    };
    match judge(identity, NOW) {
        Ok(identity) => {
            assert!(identity.kind == IdentityKind::Machine && identity.role == IdentityRole::Cluster);
            assert!(identity.expires_at > NOW && !identity.jwt.expose().is_empty());
            let raw = identity.raw.expose();
            assert!(
                body.windows(raw.len()).any(|part| part == raw.as_bytes()),
                "it is the text that was sent"
            );
            let value: Value = serde_json::from_str(raw).expect("an identity is flat");
            assert_eq!(value["jwt"].as_str(), Some(identity.jwt.expose()));
            assert_eq!(value["expiresAt"].as_u64(), Some(identity.expires_at));
            assert_eq!(value.as_object().map(serde_json::Map::len), Some(6));
        }
        Err(error) => says_nothing(&error),
    }
}

fuzz_target!(|input: &[u8]| {
    if !input.starts_with(b"HTTP/") {
        return read(input);
    }
    let request =
        Request::post("/typedrequest").body(Full::new(Bytes::from_static(b"{}"))).expect("a path is a URL");
    match run(speak(answering(input, input.len() / 2), request)) {
        Ok(body) => {
            assert!(body.len() <= EXCHANGE_ANSWER_BYTES);
            read(&body);
        }
        Err(error) => says_nothing(&error),
    }
});
