use super::*;

fn frame(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn request(text: &str) -> Request {
    match read(&frame(text)) {
        Ok(Envelope::Request(request)) => request,
        Ok(Envelope::Answer(_)) => panic!("read as an answer: {text}"),
        Err(error) => panic!("{error}: {text}"),
    }
}

fn answer(text: &str) -> Answer {
    match read(&frame(text)) {
        Ok(Envelope::Answer(answer)) => answer,
        Ok(Envelope::Request(_)) => panic!("read as a request: {text}"),
        Err(error) => panic!("{error}: {text}"),
    }
}

/// FWD-02, FWD-39: key order, number forms, duplicate keys and escapes of a body survive the hop.
#[test]
fn a_body_crosses_byte_for_byte() {
    let body =
        r#"{"z":1.0e+02,"a":-0,"a":1E400,"u":"\u00e9\ud83d\ude00","n":12345678901234567890123, "s" : [ ] }"#;
    let text = format!(
        r#"{{"correlation":{{"id":"c","phase":"request"}},"request":{body},"method":"m","response":null,"extra":1}}"#
    );
    let request = request(&text);
    assert_eq!(request.body.text(), body);
    let written = write_request("m", &request.body, "uni_1", "uni_2");
    assert!(written.contains(&format!("\"request\":{body},")));
    let outcome = Outcome::Response(request.body);
    assert!(write_answer("m", &request.ids, &outcome).contains(&format!("\"response\":{body},")));
}

#[test]
fn an_answer_copies_the_ids_and_echoes_nothing() {
    let ids = Ids { correlation: "c\"1".into(), instance: Some("i".into()) };
    assert_eq!(
        write_answer("m", &ids, &Outcome::Response(Body::empty())),
        r#"{"method":"m","response":{},"requestInstanceId":"i","correlation":{"id":"c\"1","phase":"response"}}"#
    );
    let ids = Ids { correlation: "c".into(), instance: None };
    assert_eq!(
        write_answer("m", &ids, &plain_refusal("name: reason")),
        r#"{"method":"m","response":null,"correlation":{"id":"c","phase":"response"},"error":{"data":{},"text":"name: reason"}}"#
    );
}

#[test]
fn an_echoed_request_is_skipped_and_a_null_error_is_none() {
    let text = r#"{"method":"m","request":{"token":"secret"},"response":{"a":1},"error":null,
        "correlation":{"id":"c","phase":"response"},"localData":null,"requestInstanceId":"i"}"#;
    let answer = answer(text);
    assert!(matches!(&answer.outcome, Outcome::Response(body) if body.text() == r#"{"a":1}"#));
    assert_eq!(answer.instance.as_deref(), Some("i"));
}

#[test]
fn an_answer_of_the_older_generation_without_response_is_null() {
    let answer = answer(r#"{"correlation":{"id":"c","phase":"response"}}"#);
    assert!(matches!(&answer.outcome, Outcome::Response(body) if body.text() == "null"));
}

#[test]
fn an_error_keeps_its_text_and_data() {
    let answer = answer(
        r#"{"response":null,"error":{"text":"relay-node-unknown: no such node","data":{"a":[1]}},
            "correlation":{"id":"c","phase":"response"}}"#,
    );
    let Outcome::Error(error) = answer.outcome else { panic!("no error") };
    let error = PeerError::of(&error);
    assert_eq!((error.name(), error.data.text()), ("relay-node-unknown", r#"{"a":[1]}"#));
}

#[test]
fn retry_is_read() {
    let answer =
        answer(r#"{"correlation":{"id":"c","phase":"response"},"retry":{"waitForMs":40,"reason":"busy"}}"#);
    assert_eq!(answer.retry_after_ms, Some(40));
}

#[test]
fn what_is_no_envelope_is_named() {
    let correlation = r#""correlation":{"id":"c","phase":"request"}"#;
    for (text, expected) in [
        ("", Malformed::NotAnEnvelope),
        ("null", Malformed::NotAnEnvelope),
        ("[1]", Malformed::NotAnEnvelope),
        ("{} {}", Malformed::NotAnEnvelope),
        (r#"{"method":"m","method":"n"}"#, Malformed::NotAnEnvelope),
        ("{}", Malformed::NoCorrelation),
        (r#"{"correlation":{"id":7,"phase":"request"}}"#, Malformed::NoCorrelation),
        (r#"{"correlation":{"id":"","phase":"request"}}"#, Malformed::NoCorrelation),
        (
            &format!(r#"{{"correlation":{{"id":"{}","phase":"request"}}}}"#, "x".repeat(257)),
            Malformed::NoCorrelation,
        ),
        (
            &format!(
                r#"{{"method":"m","request":{{}},"requestInstanceId":"{}",{correlation}}}"#,
                "x".repeat(257)
            ),
            Malformed::NoCorrelation,
        ),
        (
            &format!(r#"{{"method":"{}","request":{{}},{correlation}}}"#, "x".repeat(257)),
            Malformed::NoRequest,
        ),
        (r#"{"correlation":{"id":"c","phase":"other"}}"#, Malformed::UnknownPhase),
        (&format!(r#"{{"method":"m",{correlation}}}"#), Malformed::NoRequest),
        (&format!(r#"{{"method":"m","request":null,{correlation}}}"#), Malformed::NoRequest),
        (&format!(r#"{{"method":"m","request":[1],{correlation}}}"#), Malformed::NoRequest),
        (&format!(r#"{{"request":{{}},{correlation}}}"#), Malformed::NoRequest),
    ] {
        assert_eq!(read(&frame(text)).err(), Some(expected), "{text}");
    }
    assert_eq!(read(&Bytes::from_static(b"\xff{}")).err(), Some(Malformed::NotAnEnvelope));
}

#[test]
fn ids_have_the_library_s_form_and_are_found_again() {
    let mut source = IdSource::new();
    let number = source.take();
    let id = source.write(number);
    assert!(id.len() == 28 && id.starts_with("uni_"), "{id}");
    assert_eq!(source.number(&id), Some(number));
    for foreign in ["", "uni_", "uni_zz", "uni_ééééééééééée", &id[..27]] {
        assert_eq!(source.number(foreign), None);
    }
}

proptest::proptest! {
    /// ARC-13 and FWD-30's counterpart: no bytes panic the reader.
    #[test]
    fn random_text_is_read_or_named(text in "[\\PC{}\\[\\]\":,a-z0-9 ]{0,80}") {
        let _ = read(&Bytes::from(text));
    }
}
