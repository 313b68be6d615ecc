//! What is sent, read and judged, as scripts; no connection is involved.

use super::*;

pub(in super::super) const NOW: u64 = 1_800_000_000_000;
pub(in super::super) const BEARER: &str = "marked-\"bearer\"\\\n\u{1}ü";
pub(in super::super) const IDENTITY: &str = r#"{"expiresAt":1800000000001,"jwt":"marked.jwt","name":"cluster a","role":"cluster","type":"machine","userId":"u\u0031"}"#;

fn ids() -> RequestIds {
    RequestIds { correlation: "uni_c".into(), instance: "uni_i".into() }
}

/// An answer with sorted keys and the echoed request, as the library's HTTP carriage writes it.
pub(in super::super) fn answer(rest: &str) -> String {
    let token = serde_json::to_string(BEARER).unwrap();
    format!(
        r#"{{"correlation":{{"id":"uni_c","phase":"response"}},{rest},"method":"getIdentityByToken","request":{{"token":{token}}},"requestInstanceId":"uni_i"}}"#
    )
}

pub(in super::super) fn success(identity: &str) -> String {
    format!(r#""localData":null,"response":{{"identity":{identity}}}"#)
}

/// What `text` is refused with; the words hold neither the bearer nor anything of the answer.
fn refusal(text: &str) -> ExchangeError {
    let error = match parse(text.as_bytes(), &ids()) {
        Ok(Answer::Identity(identity)) => judge(identity, NOW).err(),
        Ok(Answer::Retry(wait)) => panic!("a retry of {wait:?}"),
        Err(error) => Some(error),
    };
    let error = error.unwrap_or_else(|| panic!("accepted: {text}"));
    assert!(!format!("{error} {error:?}").contains("marked"), "{error:?}");
    error
}

fn unusable(text: &str) -> (&'static str, AnswerFault) {
    match refusal(text) {
        ExchangeError::Unusable { path, fault } => (path, fault),
        other => panic!("{other:?}"),
    }
}

/// SES-03, ARC-23: the envelope both library generations accept, in a buffer that did not grow.
#[test]
fn the_request_is_composed_without_growing() {
    let body = compose(BEARER.as_bytes(), &ids());
    let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        value,
        serde_json::json!({
            "method": "getIdentityByToken",
            "request": {"token": BEARER},
            "response": null,
            "requestInstanceId": "uni_i",
            "correlation": {"id": "uni_c", "phase": "request"},
        })
    );
    let worst = "\u{1}".repeat(16 * 1024);
    let body = compose(worst.as_bytes(), &ids());
    assert!(body.len() <= body.capacity() && body.len() > 6 * worst.len());
}

/// SES-03, ARC-07: the identity is read, and kept in the exact text that was sent.
#[test]
fn an_identity_is_read_and_kept_verbatim() {
    for identity in [IDENTITY.to_owned(), IDENTITY.replace(':', " : ")] {
        let text = answer(&success(&identity));
        let Ok(Answer::Identity(read)) = parse(text.as_bytes(), &ids()) else { panic!("{text}") };
        let read = judge(read, NOW).ok().unwrap();
        assert_eq!((&*read.name, &*read.user_id, read.expires_at), ("cluster a", "u1", NOW + 1));
        assert_eq!((read.kind, read.role), (IdentityKind::Machine, IdentityRole::Cluster));
        assert_eq!(read.jwt.expose(), "marked.jwt");
        assert_eq!(read.raw.expose(), identity);
        let handed: coreflow_ipc::messages::relayd::Identity = read.into();
        assert_eq!((handed.document.expose(), handed.expires_at), (&*identity, NOW + 1));
    }
    let without_echo = format!(
        r#"{{"correlation":{{"id":"uni_c","phase":"response"}},"response":{{"identity":{IDENTITY}}}}}"#
    );
    assert!(matches!(parse(without_echo.as_bytes(), &ids()), Ok(Answer::Identity(_))));
}

/// SES-03: machine, cluster, in the future; each other one is named by its path.
#[test]
fn a_foreign_role_and_an_expired_identity_are_refused() {
    for (old, new, expected) in [
        ("machine", "human", ("response.identity.type", AnswerFault::Unfit)),
        ("\"cluster\"", "\"admin\"", ("response.identity.role", AnswerFault::Unfit)),
        ("\"cluster\"", "\"user\"", ("response.identity.role", AnswerFault::Unfit)),
        ("\"cluster\"", "\"api\"", ("response.identity.role", AnswerFault::Unfit)),
        ("\"cluster\"", "\"marked\"", ("response.identity.role", AnswerFault::Malformed)),
        ("machine", "marked", ("response.identity.type", AnswerFault::Malformed)),
        ("1800000000001", "1800000000000", ("response.identity.expiresAt", AnswerFault::Expired)),
        ("1800000000001", "9007199254740992", ("response.identity.expiresAt", AnswerFault::Malformed)),
        ("1800000000001", "1.5", ("response.identity.expiresAt", AnswerFault::Malformed)),
        ("1800000000001", "-1", ("response.identity.expiresAt", AnswerFault::Malformed)),
        ("1800000000001", "null", ("response.identity.expiresAt", AnswerFault::Missing)),
        ("\"marked.jwt\"", "\"\"", ("response.identity.jwt", AnswerFault::Malformed)),
        ("\"marked.jwt\"", "5", ("response.identity.jwt", AnswerFault::Malformed)),
        (",\"name\":\"cluster a\"", "", ("response.identity.name", AnswerFault::Missing)),
        ("\"name\"", "\"marked\":1,\"name\"", ("response.identity", AnswerFault::Foreign)),
        ("\"name\"", "\"request\":1,\"name\"", ("response.identity", AnswerFault::Foreign)),
        ("\"name\"", "\"name\":\"b\",\"name\"", ("response.identity", AnswerFault::Foreign)),
    ] {
        assert!(IDENTITY.contains(old));
        assert_eq!(unusable(&answer(&success(&IDENTITY.replace(old, new)))), expected, "{old} -> {new}");
    }
}

/// START-18, LOG-01: refusals arrive in the envelope and are known by name; others are not repeated.
#[test]
fn refusals_are_known_by_name() {
    for (text, expected) in [
        ("identity-token-refused", Refusal::IdentityTokenRefused),
        ("identity-token-refused: marked reason", Refusal::IdentityTokenRefused),
        ("identity-token-refused-not", Refusal::Other),
        ("There is no available method for this call on the server side", Refusal::UnknownMethod),
        ("Internal server error", Refusal::InternalServerError),
        ("marked", Refusal::Other),
    ] {
        let rest = format!(r#""error":{{"data":{{}},"text":"{text}"}},"response":null"#);
        let error = refusal(&answer(&rest));
        assert_eq!(error, ExchangeError::Refused(expected));
        assert_eq!(error.refuses_the_bearer(), expected == Refusal::IdentityTokenRefused);
    }
    assert_eq!(unusable(&answer(r#""error":"marked","response":null"#)), ("error", AnswerFault::Malformed));
    assert_eq!(unusable(&answer(r#""error":{},"response":null"#)), ("error.text", AnswerFault::Missing));
}

#[test]
fn what_is_no_answer_is_named_by_its_path() {
    use AnswerFault::{Foreign, Malformed, Missing, NotJson, NotOurs};
    let good = answer(&success(IDENTITY));
    for (text, expected) in [
        ("<html>marked</html>".to_owned(), ("answer", NotJson)),
        (String::new(), ("answer", NotJson)),
        ("[]".into(), ("answer", NotJson)),
        (good[..good.len() - 1].into(), ("answer", NotJson)),
        (format!("{good}x"), ("answer", NotJson)),
        ("{}".into(), ("correlation", Missing)),
        (good.replace("uni_c", "uni_x"), ("correlation.id", NotOurs)),
        (good.replace("uni_i", "uni_x"), ("requestInstanceId", NotOurs)),
        (good.replace("\"response\"}", "\"request\"}"), ("correlation.phase", Malformed)),
        (answer(r#""response":null"#), ("response", Missing)),
        (answer(r#""response":[]"#), ("response", Malformed)),
        (answer(r#""response":{}"#), ("response.identity", Missing)),
        (answer(r#""response":{"identity":null}"#), ("response.identity", Missing)),
        (answer(&format!(r#""response":{{"identity":{IDENTITY},"marked":1}}"#)), ("response", Foreign)),
        (answer(r#""response":null,"response":null"#), ("answer", Foreign)),
        (answer(r#""retry":{"reason":"marked"}"#), ("retry.waitForMs", Missing)),
    ] {
        assert_eq!(unusable(&text), expected, "{text}");
    }
    assert!(matches!(
        parse(b"\xff", &ids()),
        Err(ExchangeError::Unusable { path: "answer", fault: NotJson })
    ));
}

proptest::proptest! {
    /// LOG-01: whatever Cloudly sends, reading it does not panic, and a refusal holds nothing of it.
    #[test]
    fn a_spoilt_answer_leaves_no_trace(at in 0_usize..600, spoilt in proptest::collection::vec(0_u8..=255, 0..8)) {
        let mut text = answer(&success(IDENTITY)).into_bytes();
        let at = at.min(text.len());
        let end = (at + spoilt.len()).min(text.len());
        text.splice(at..end, spoilt);
        if let Err(error) = parse(&text, &ids()) {
            assert!(!format!("{error} {error:?}").contains("marked"));
        }
    }
}
