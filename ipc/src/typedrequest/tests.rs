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
    let (process, digits) = id.split_at(12);
    let signed = format!("{process}+{}", &digits[1..]);
    let capital = format!("{process}{}", source.write(10).split_at(12).1.to_uppercase());
    for foreign in ["", "uni_", "uni_zz", "uni_ééééééééééée", &id[..27], &signed, &capital] {
        assert_eq!(source.number(foreign), None);
    }
}

/// FWD-02, FWD-39: an empty body, an envelope as a body, and a depth that no recursion survives cross as
/// they are, in a request, an answer and a refusal.
#[test]
fn a_body_of_any_shape_crosses_byte_for_byte() {
    let envelope = write_request("m", &Body::empty(), "uni_1", "uni_2");
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(200_000), "]".repeat(200_000));
    for body in [
        "{}",
        r#"{"":"","\u0000":"\u0041\/\ud800","__proto__":{"session":1},"constructor":[ ]}"#,
        &envelope,
        &deep,
    ] {
        assert_crosses(body);
    }
}

/// Writes `body` into a request, an answer and a refusal, and reads it back.
fn assert_crosses(body: &str) {
    let ids = Ids { correlation: "c".into(), instance: Some("i".into()) };
    let carried = Body::from_json(body.to_owned());
    let asked = request(&write_request("m", &carried, "c", "i"));
    assert!(asked.body == carried && asked.ids == ids && asked.method == "m");
    for outcome in [Outcome::Response(carried.clone()), Outcome::Error(carried)] {
        let answered = answer(&write_answer("m", &ids, &outcome));
        assert_eq!((answered.correlation.as_str(), answered.instance.as_deref()), ("c", Some("i")));
        match (answered.outcome, outcome) {
            (Outcome::Response(read), Outcome::Response(written))
            | (Outcome::Error(read), Outcome::Error(written)) => assert!(read == written),
            _ => panic!("an answer became a refusal, or a refusal an answer"),
        }
    }
}

/// Members that stand twice in an envelope: peers could read different ones, so it is none.
#[test]
fn an_envelope_with_a_member_twice_is_none() {
    for twice in [
        r#""request":{"session":1},"request":{"session":2}"#,
        r#""method":"a","meth\u006fd":"b""#,
        r#""request":{},"requ\u0065st":{}"#,
        r#""requestInstanceId":"a","requestInstanceId":"b""#,
        r#""response":1,"response":2"#,
        r#""error":null,"error":{"text":"x"}"#,
    ] {
        let text = format!(r#"{{{twice},"correlation":{{"id":"c","phase":"request"}}}}"#);
        assert_eq!(read(&frame(&text)).err(), Some(Malformed::NotAnEnvelope), "{text}");
    }
    for correlation in [
        r#"{"id":"c","id":"d","phase":"request"}"#,
        r#"{"id":"c","phase":"request","ph\u0061se":"response"}"#,
    ] {
        let text = format!(r#"{{"method":"m","request":{{}},"correlation":{correlation}}}"#);
        assert_eq!(read(&frame(&text)).err(), Some(Malformed::NoCorrelation), "{text}");
    }
}

/// JSON text in all the notations that the grammar admits: white space, number forms, escapes that need
/// none, halves of surrogate pairs, members that stand twice.
fn json_text() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let number = "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,9})?([eE][+-]?[0-9]{1,4})?";
    let string = "\"([^\"\\\\\\x00-\\x1f]|\\\\[\"\\\\/bfnrt]|\\\\u[0-9a-fA-F]{4}){0,12}\"";
    let space = || "[ \t\r\n]{0,3}";
    let leaf = prop_oneof!["(null|true|false)", number, string];
    let value = leaf.prop_recursive(6, 48, 6, move |inner| {
        let spaced = (space(), inner, space()).prop_map(|(before, value, after)| before + &value + &after);
        let member = (space(), string, space(), spaced.clone())
            .prop_map(|(before, key, after, value)| format!("{before}{key}{after}:{value}"));
        prop_oneof![
            prop::collection::vec(spaced, 0..6).prop_map(|parts| format!("[{}]", parts.join(","))),
            prop::collection::vec(member, 0..6).prop_map(|parts| format!("{{{}}}", parts.join(","))),
        ]
    });
    prop::collection::vec((string, space(), value), 0..4).prop_map(|members| {
        let members: Vec<String> =
            members.into_iter().map(|(key, space, value)| format!("{key}:{space}{value}")).collect();
        format!("{{{}}}", members.join(","))
    })
}

proptest::proptest! {
    /// ARC-13 and FWD-30's counterpart: no bytes panic the reader.
    #[test]
    fn random_text_is_read_or_named(text in "[\\PC{}\\[\\]\":,a-z0-9 ]{0,80}") {
        let _ = read(&Bytes::from(text));
    }

    /// FWD-02, FWD-03, FWD-22, FWD-39: any JSON text survives reading and writing unchanged.
    #[test]
    fn any_json_text_crosses_byte_for_byte(body in json_text()) {
        assert_crosses(&body);
    }
}
