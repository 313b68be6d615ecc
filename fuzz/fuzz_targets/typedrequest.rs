//! The TypedRequest envelope: a body is a part of its frame, byte for byte, and crosses as it is; what is read and
//! written again is read as the same (FWD-02, FWD-03, FWD-39).
#![no_main]

use bytes::Bytes;
use coreflow_fuzz::memory::peak_of;
use coreflow_ipc::typedrequest::{
    Answer, Body, Envelope, IdSource, Ids, NAME_LIMIT, Outcome, PeerError, Request, read, write_answer,
    write_request,
};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

/// Bytes that a frame costs in memory, in multiples of its own: names and bodies are copied, and nothing twice at once.
const MULTIPLE: usize = 4;
/// The same of the shortest frame.
const LEAST: usize = 4 << 10;

fn is_part_of(body: &Body, frame: &[u8]) {
    let text = body.text();
    assert!(
        text == "null" || frame.windows(text.len()).any(|part| part == text.as_bytes()),
        "a body is as it was sent"
    );
    // Serde's own check of depth is not one of this text.
    assert!(serde_json::from_str::<&RawValue>(text).is_ok(), "a body is JSON");
}

fn asked(request: &Request, frame: &[u8]) {
    let Request { method, ids, body } = request;
    assert!(method.len() <= NAME_LIMIT && (1..=NAME_LIMIT).contains(&ids.correlation.len()));
    assert!(body.text().starts_with('{') && body.text().ends_with('}'));
    is_part_of(body, frame);
    let instance = ids.instance.clone().unwrap_or_default();
    let written = write_request(method, body, &ids.correlation, &instance);
    let Ok(Envelope::Request(again)) = read(&Bytes::from(written)) else {
        panic!("a request is read as one")
    };
    assert!(again.method == *method && again.body == *body);
    assert!(again.ids == Ids { instance: Some(instance), ..ids.clone() });
}

fn answered(answer: Answer, frame: &[u8]) {
    let Answer { correlation, instance, outcome, retry_after_ms: _ } = answer;
    let (Outcome::Response(body) | Outcome::Error(body)) = &outcome;
    is_part_of(body, frame);
    let ids = Ids { correlation, instance };
    let written = write_answer("m", &ids, &outcome);
    let Ok(Envelope::Answer(again)) = read(&Bytes::from(written)) else { panic!("an answer is read as one") };
    assert!(
        again.correlation == ids.correlation
            && again.instance == ids.instance
            && again.retry_after_ms.is_none()
    );
    match (&again.outcome, &outcome) {
        (Outcome::Response(read), Outcome::Response(written)) => assert!(read == written),
        (Outcome::Error(read), Outcome::Error(written)) => {
            assert!(read == written);
            let error = PeerError::of(read);
            assert!(error.text.chars().count() <= 300 && error.text.starts_with(error.name()));
        }
        (Outcome::Response(_), Outcome::Error(_)) | (Outcome::Error(_), Outcome::Response(_)) => {
            panic!("an answer and a refusal are not each other")
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let frame = Bytes::copy_from_slice(input);
    let (envelope, peak) = peak_of(|| read(&frame));
    assert!(peak <= MULTIPLE * input.len() + LEAST, "{peak} bytes for a frame of {}", input.len());
    match envelope {
        Ok(Envelope::Request(request)) => asked(&request, input),
        Ok(Envelope::Answer(answer)) => answered(answer, input),
        Err(_) => {}
    }
    // An id of ours has one form.
    let source = IdSource::new();
    let own = source.write(0);
    let (process, _) = own.split_at(own.len() - 16);
    if let Ok(text) = std::str::from_utf8(input) {
        for id in [text.to_owned(), format!("{process}{text}")] {
            assert!(source.number(&id).is_none_or(|number| source.write(number) == id), "{id:?}");
        }
    }
});
