//! Captured frames of both generations of the public TypedRequest library, read by this reader, and
//! everything that this writer emits in the form that both generations accept (FWD-02, FWD-03, FWD-39).
//!
//! A frame's `origin` says who made it: only `library` frames show what a peer sends; hand-written ones
//! are stimuli, used here for what a reader has to withstand.
#![expect(clippy::unwrap_used, reason = "a frame of another form fails the test")]

use bytes::Bytes;
use coreflow_ipc::typedrequest::{
    Answer, Body, Envelope, IdSource, Ids, Malformed, Outcome, PeerError, Request, UNKNOWN_METHOD,
    plain_refusal, read, refusal, write_answer, write_request,
};
use proptest::prelude::*;
use serde_json::{Value, json};

struct Captured {
    number: u64,
    library: bool,
    opcode: String,
    raw: String,
}

fn captured() -> Vec<Captured> {
    let text = |frame: &Value, key: &str| frame[key].as_str().unwrap().to_owned();
    let frames: Vec<Captured> = include_str!("fixtures/wire-frames.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .map(|frame: Value| Captured {
            number: frame["n"].as_u64().unwrap(),
            // Of `library-…` origins the envelope is the library's as well; the bodies are not.
            library: text(&frame, "origin").starts_with("library"),
            opcode: text(&frame, "opcode"),
            raw: text(&frame, "raw"),
        })
        .collect();
    assert_eq!(frames.len(), 244);
    frames
}

fn frame(number: u64) -> Captured {
    captured().into_iter().find(|frame| frame.number == number).unwrap()
}

fn read_text(raw: &str) -> Result<Envelope, Malformed> {
    read(&Bytes::copy_from_slice(raw.as_bytes()))
}

fn answer(number: u64) -> Answer {
    match read_text(&frame(number).raw) {
        Ok(Envelope::Answer(answer)) => answer,
        Ok(Envelope::Request(_)) | Err(_) => panic!("frame {number} is an answer"),
    }
}

fn request(raw: &str) -> Request {
    match read_text(raw) {
        Ok(Envelope::Request(request)) => request,
        Ok(Envelope::Answer(_)) | Err(_) => panic!("no request: {raw}"),
    }
}

fn malformed(number: u64) -> Malformed {
    read_text(&frame(number).raw).err().unwrap_or_else(|| panic!("frame {number} is no envelope"))
}

/// What an answer settles its call with: the response, or the error's text.
fn settled(number: u64) -> Result<String, String> {
    match answer(number).outcome {
        Outcome::Response(body) => Ok(body.text().to_owned()),
        Outcome::Error(error) => Err(PeerError::of(&error).text),
    }
}

/// Whatever the libraries send is read as what it is, and each body is the text that stands in the frame.
#[test]
fn every_frame_of_the_libraries_is_read_as_what_it_is() {
    let (mut requests, mut responses, mut errors, mut streams) = (0, 0, 0, 0);
    for Captured { number, raw, .. } in captured().into_iter().filter(|frame| frame.library) {
        let value: Value = serde_json::from_str(&raw).unwrap();
        let member = |key: &str, body: &Body| raw.contains(&format!("\"{key}\":{}", body.text()));
        let envelope = read_text(&raw);
        match (value["correlation"]["phase"].as_str(), envelope) {
            (None, Err(Malformed::NoCorrelation)) => {
                assert_eq!(value["method"], "##VirtualStream##", "frame {number}");
                streams += 1;
            }
            // A numeric id, echoed by the older generation; and its way to answer a stream's chunk.
            (Some(_), Err(Malformed::NoCorrelation)) => assert_eq!(number, 32),
            (Some("request"), Err(Malformed::NoRequest)) => assert_eq!(number, 112),
            (Some("request"), Ok(Envelope::Request(request))) => {
                assert_eq!(request.method, value["method"], "frame {number}");
                assert_eq!(request.ids.correlation, value["correlation"]["id"]);
                assert_eq!(request.ids.instance.as_deref(), value["requestInstanceId"].as_str());
                assert!(member("request", &request.body), "frame {number}");
                requests += 1;
            }
            (Some("response"), Ok(Envelope::Answer(answer))) => {
                assert_eq!(answer.correlation, value["correlation"]["id"], "frame {number}");
                assert_eq!(answer.instance.as_deref(), value["requestInstanceId"].as_str());
                assert_eq!(answer.retry_after_ms, None);
                match answer.outcome {
                    Outcome::Response(body) => {
                        assert!(value.get("error").is_none() && member("response", &body), "frame {number}");
                        responses += 1;
                    }
                    Outcome::Error(error) => {
                        assert!(member("error", &error), "frame {number}");
                        let error = PeerError::of(&error);
                        assert_eq!(error.text, value["error"]["text"]);
                        let data: Value = serde_json::from_str(error.data.text()).unwrap();
                        assert_eq!(data, value["error"]["data"]);
                        errors += 1;
                    }
                }
            }
            (phase, _) => panic!("frame {number} with phase {phase:?} is read as another thing"),
        }
    }
    // The capture holds each kind; a fixture that lost one would prove nothing of it.
    assert_eq!((requests, responses, errors, streams), (40, 36, 16, 40));
}

/// FWD-03: what either generation answers settles a call: a result, an error, or `null` where the older
/// generation cannot tell a crash from an empty result.
#[test]
fn answers_of_both_generations_settle() {
    for (number, expected) in [
        (2, Ok(r#"{"sum":5}"#)),
        (4, Err("node is not known")),
        (6, Err("plain text only")),
        (8, Ok("null")),
        (10, Ok("null")),
        (12, Ok("{}")),
        (14, Err(UNKNOWN_METHOD)),
        (16, Err("denied")),
        (22, Ok(r#"{"sum":2}"#)),
        (66, Ok(r#"{"sum":3}"#)),
        (70, Err("nope")),
        (157, Ok(r#"{"sum":5}"#)),
        (159, Ok(r#"{"sum":5}"#)),
        (161, Err("node is not known")),
        (163, Err("plain")),
        (165, Err("Internal server error")),
        (167, Ok("null")),
        (169, Err(UNKNOWN_METHOD)),
        (175, Ok(r#"{"keys":["firstTypedrouter","peer"]}"#)),
        (194, Ok(r#"{"sum":3}"#)),
        (196, Ok("null")),
        (204, Err("Internal server error")),
    ] {
        let settled = settled(number);
        assert_eq!(settled.as_deref().map_err(String::as_str), expected, "frame {number}");
    }
}

/// An error without `data`, as the older generation writes it, stays without: what travels on is its text.
#[test]
fn an_error_travels_as_it_was_written() {
    let Outcome::Error(error) = answer(6).outcome else { panic!("an error") };
    assert_eq!(error.text(), r#"{"text":"plain text only"}"#);
    let ids = Ids { correlation: "c".to_owned(), instance: None };
    let frame = write_answer("m", &ids, &Outcome::Error(error));
    assert!(frame.ends_with(r#""error":{"text":"plain text only"}}"#), "{frame}");
}

/// Answers that a peer could write as well: without an echo, a method, an instance or a response; with a
/// null error, a foreign `localData`, an error without a text.
#[test]
fn sparse_answers_settle() {
    for (number, expected) in [
        (52, Ok(r#"{"ok":true}"#)),
        (54, Err("busy")),
        (56, Ok(r#"{"ok":1}"#)),
        (206, Ok(r#"{"ok":1}"#)),
        (208, Ok(r#"{"ok":1}"#)),
        (210, Ok(r#"{"ok":1}"#)),
        (212, Ok("null")),
        (214, Err("no")),
        (216, Err("no")),
        (218, Ok(r#"{"ok":1}"#)),
        (220, Err("")),
        (222, Ok(r#"{"ok":1}"#)),
    ] {
        let settled = settled(number);
        assert_eq!(settled.as_deref().map_err(String::as_str), expected, "frame {number}");
    }
    assert_eq!(answer(208).instance, None);
    assert_eq!(answer(224).instance.as_deref(), Some("other"));
}

/// `retry` is read beside a response and beside an error, in both generations' forms.
#[test]
fn an_answer_may_ask_for_the_request_again() {
    for (number, wait) in [(60, Some(100)), (226, Some(20)), (240, Some(0)), (242, Some(10)), (244, None)] {
        assert_eq!(answer(number).retry_after_ms, wait, "frame {number}");
    }
}

/// The libraries send one request again with the same correlation; the newer one with another instance.
#[test]
fn a_request_that_is_sent_again_keeps_its_correlation() {
    let ids = |number| request(&frame(number).raw).ids;
    let (first, second) = (ids(225), ids(227));
    assert_eq!(first.correlation, second.correlation);
    assert!(first.instance.is_some() && first.instance != second.instance);
    assert!(ids(59) == ids(61) && ids(59).instance.is_none(), "the older one sends the identical frame");
}

/// A binary frame with the same JSON is read alike.
#[test]
fn a_binary_frame_is_read_alike() {
    let frame = frame(39);
    assert_eq!(frame.opcode, "binary");
    assert_eq!(request(&frame.raw).body.text(), r#"{"a":5,"b":5}"#);
}

/// What the libraries leave unanswered is named here, and nothing of it is a request.
#[test]
fn what_is_no_request_is_named() {
    for (number, expected) in [
        (27, Malformed::NoCorrelation),
        (28, Malformed::UnknownPhase),
        (31, Malformed::NoCorrelation),
        (33, Malformed::NotAnEnvelope),
        (34, Malformed::NotAnEnvelope),
        (35, Malformed::NotAnEnvelope),
        (36, Malformed::NotAnEnvelope),
        (37, Malformed::NoRequest),
        (95, Malformed::NotAnEnvelope),
        (96, Malformed::NoCorrelation),
        (178, Malformed::NoRequest),
        (179, Malformed::NoCorrelation),
        (180, Malformed::NoCorrelation),
        (181, Malformed::NoRequest),
        (182, Malformed::NoRequest),
        (192, Malformed::NoCorrelation),
    ] {
        assert_eq!(malformed(number), expected, "frame {number}");
    }
}

/// Contract section 1: what is not an object gets no answer; neither does an array whose items stand where
/// the members of an envelope would.
#[test]
fn an_array_is_no_envelope() {
    assert_eq!(malformed(184), Malformed::NotAnEnvelope);
    let array = r#"["m",{},null,null,"i",{"id":"c","phase":"request"},null]"#;
    assert_eq!(read_text(array).err(), Some(Malformed::NotAnEnvelope));
}

/// A request without a `response` member, and one with members of its sender's own, are requests.
#[test]
fn further_or_missing_members_do_not_matter() {
    for number in [21, 23, 29, 63, 174, 176, 185] {
        assert!(matches!(read_text(&frame(number).raw), Ok(Envelope::Request(_))), "frame {number}");
    }
}

/// The form that both generations accept: these members, in no other number.
fn assert_answer_form(frame: &str, instance: bool, refused: bool) {
    let value: Value = serde_json::from_str(frame).unwrap();
    let mut expected = vec!["correlation", "method", "response"];
    if instance {
        expected.push("requestInstanceId");
    }
    if refused {
        expected.push("error");
        assert!(value["response"].is_null() && value["error"]["text"].is_string(), "{frame}");
        assert!(value["error"]["data"].is_object(), "{frame}");
    }
    expected.sort_unstable();
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, expected, "{frame}");
    assert_eq!(value["correlation"]["phase"], "response");
    assert_eq!(value["correlation"].as_object().unwrap().len(), 2);
}

/// Each request of the capture, answered by this writer: a response that is always there, an error only
/// where refused, never `localData`, never the request again.
#[test]
fn this_writer_answers_in_the_form_of_both_generations() {
    let mut answered = 0;
    for Captured { raw, .. } in captured() {
        let Ok(Envelope::Request(request)) = read_text(&raw) else { continue };
        let instance = request.ids.instance.is_some();
        for outcome in [
            Outcome::Response(request.body.clone()),
            Outcome::Response(Body::from_json("null".to_owned())),
            plain_refusal(UNKNOWN_METHOD),
            refusal("name: reason", json!({ "offer": null })),
        ] {
            let frame = write_answer(&request.method, &request.ids, &outcome);
            assert_answer_form(&frame, instance, matches!(outcome, Outcome::Error(_)));
            let Ok(Envelope::Answer(answer)) = read_text(&frame) else { panic!("{frame}") };
            assert!(answer.correlation == request.ids.correlation && answer.instance == request.ids.instance);
            answered += 1;
        }
    }
    assert!(answered > 300, "{answered}");
}

/// FWD-02: a request of the capture, sent on by this writer, keeps its body byte for byte and has the
/// members, the order and the null response of the newer library's own frame.
#[test]
fn this_writer_asks_in_the_form_of_the_newer_generation() {
    for number in [193, 195, 205, 225] {
        let raw = frame(number).raw;
        let request = request(&raw);
        let (correlation, instance) = (request.ids.correlation, request.ids.instance.unwrap());
        assert_eq!(write_request(&request.method, &request.body, &correlation, &instance), raw);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any method, any ids and any body: the writer's frame is one JSON text that reads back the same.
    #[test]
    fn what_is_written_reads_back(
        method in "\\PC{0,20}",
        correlation in "\\PC{1,20}",
        instance in prop::option::of("[\\PC\n\"\\\\]{0,20}"),
        text in "[\\PC\n\"\\\\]{0,40}",
    ) {
        let body = Body::of(&json!({ "text": text }));
        let ids = Ids { correlation: correlation.clone(), instance: instance.clone() };
        let refused = plain_refusal(&text);
        for (outcome, error) in [(Outcome::Response(body.clone()), false), (refused, true)] {
            let frame = write_answer(&method, &ids, &outcome);
            assert_answer_form(&frame, instance.is_some(), error);
            let Ok(Envelope::Answer(answer)) = read_text(&frame) else { panic!("{frame}") };
            prop_assert!(answer.correlation == correlation && answer.instance == instance);
        }
        let mut source = IdSource::new();
        let number = source.take();
        let sent = write_request(&method, &body, &correlation, &source.write(number));
        let read = request(&sent);
        prop_assert_eq!(&read.method, &method);
        prop_assert!(read.body == body && read.ids.correlation == correlation);
        prop_assert_eq!(read.ids.instance.and_then(|id| source.number(&id)), Some(number));
    }
}
