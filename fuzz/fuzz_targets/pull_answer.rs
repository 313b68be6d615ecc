//! The head of a registry's answer, as bytes: what crosses is within the bounds, on the list and what came but for the
//! challenge, and is a head again at the listener (PULL-11, PULL-21, PULL-22, PULL-24, PULL-25).
#![no_main]

use bytes::Bytes;
use coreflow_fuzz::peer::{answering, run};
use coreflow_ipc::{
    frame::HEADER,
    messages::{
        Message,
        pulld::PulldStart,
        pulls::{AnswerBody, AnswerHeader, HEAD_BYTES, HEAD_HEADERS, PullAnswer, PulldToRelayd, WHOLE_BODY},
    },
};
use coreflow_pulld::{answer::selected, notices::Notices, registry::Registry};
use coreflow_relayd::pulls::{PullBody, passed};
use http::{HeaderValue, Request, response::Parts};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use libfuzzer_sys::fuzz_target;

/// The head that a client takes out of the bytes, if it is one.
async fn answered(said: &[u8]) -> Option<Parts> {
    let stream = TokioIo::new(answering(said, said.len() / 2));
    let (mut sender, connection) = http1::handshake::<_, Empty<Bytes>>(stream).await.ok()?;
    // The sender ends with the answer, and its body unread: the connection waits for neither.
    let parts = async move {
        let answer = sender.send_request(Request::new(Empty::new())).await;
        answer.ok().map(|answer| answer.into_parts().0)
    };
    let (parts, _) = tokio::join!(parts, connection);
    parts
}

fn crosses(parts: &Parts, to_head: bool, registry: &Registry) {
    let Ok(head) = selected(parts, to_head, registry, &Notices::default()) else { return };
    assert!((200..600).contains(&head.status) && head.status == parts.status.as_u16());
    let bytes: usize = head.headers.iter().map(|(header, value)| header.name().len() + value.len()).sum();
    assert!(head.headers.len() <= HEAD_HEADERS && bytes <= HEAD_BYTES);
    assert!(head.length.is_none() || head.length == head.coming);
    assert!(!to_head || head.bodyless);
    for (header, value) in &head.headers {
        let mut came = parts.headers.get_all(header.name()).iter().map(HeaderValue::as_bytes);
        assert!(*header == AnswerHeader::WwwAuthenticate || came.any(|came| came == value.as_slice()));
    }
    let body = if head.bodyless { AnswerBody::Nothing } else { AnswerBody::Whole(vec![0; WHOLE_BODY]) };
    let answer = PullAnswer { status: head.status, headers: head.headers, length: head.length, body };
    let mut frame = Vec::new();
    PulldToRelayd::Answer { id: u64::MAX, answer }
        .append(&mut frame)
        .expect("a head within its bounds is a message");
    let Ok(PulldToRelayd::Answer { answer, .. }) =
        PulldToRelayd::of_bytes(&Bytes::from(frame).slice(HEADER..))
    else {
        panic!("an answer is read as one")
    };
    let count = answer.headers.len() + usize::from(answer.length.is_some());
    let response = passed(answer, PullBody::Nothing).ok().expect("what crosses is a head");
    assert_eq!(response.headers().len(), count);
}

fuzz_target!(|said: &[u8]| {
    let Some(parts) = run(answered(said)) else { return };
    let start = PulldStart {
        registry_origin: "https://registry.test".into(),
        relay_origin: "https://relay.test".into(),
        trust_anchors: Vec::new(),
    };
    let registry = Registry::new(start).expect("both are origins");
    for to_head in [false, true] {
        crosses(&parts, to_head, &registry);
    }
});
