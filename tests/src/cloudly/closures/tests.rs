//! Scripts of the closures' machine.

use super::*;

fn request(stream_id: &str, bytes: &[u8]) -> Value {
    json!({
        "backupId": "b", "serviceId": "s", "nodeId": "n", "receipt": "receipt-1",
        "stream": {
            "_isVirtualStream": true, "protocol": "virtual-stream-v1", "streamId": stream_id,
            "creatorDirection": "send", "contentType": "application/octet-stream",
            "integrity": {"algorithm": "sha256", "byteLength": bytes.len(),
                "digest": digest(bytes)},
            "transport": {"kind": "binary-frames-v1"},
        },
    })
}

fn key() -> Whose {
    ("b".to_owned(), "s".to_owned())
}

fn chunk(stream: StreamName, offset: usize, bytes: &[u8]) -> Frame {
    Frame { stream, body: FrameBody::Chunk { offset: offset as u64, bytes: bytes.to_vec() } }
}

fn end(stream: StreamName, bytes: &[u8]) -> Frame {
    Frame { stream, body: FrameBody::End { length: bytes.len() as u64, digest: sha256(bytes) } }
}

/// BAK-14: leave to send is no record; the closure that was accepted is, and stays one.
#[test]
fn the_record_is_of_the_closure_that_was_accepted() {
    let (mut closures, bytes) = (Closures::default(), b"closure".to_vec());
    let stream = StreamName::of("1");
    closures.request(key());
    closures.begin_backup(1, &request("1", &bytes), 0).unwrap();
    assert_eq!(closures.received(1, chunk(stream, 0, &bytes), 0), []);
    assert_eq!(closures.replications[&key()], Replication::Requested);
    let receipt = FrameBody::Receipt { accepted: true, text: "receipt-1".to_owned() };
    assert_eq!(closures.received(1, end(stream, &bytes), 0), [Frame { stream, body: receipt }]);
    closures.settle(&key());
    let digest = digest(&bytes);
    let accepted = Replication::Accepted { byte_length: 7, digest, receipt: "receipt-1".to_owned() };
    assert_eq!(closures.replications[&key()], accepted);
    closures.begin_backup(1, &request("2", &bytes), 0).unwrap();
    closures.connection_ended(1);
    assert_eq!(closures.replications[&key()], accepted);
}

/// BAK-14: what never came, broke off, was changed or was given up is a failed replication, and nothing is stored.
#[test]
fn a_closure_that_never_arrived_is_a_failed_replication() {
    let stream = StreamName::of("1");
    let failed = |act: &dyn Fn(&mut Closures)| {
        let mut closures = Closures::default();
        closures.request(key());
        closures.begin_backup(1, &request("1", b"closure"), 0).unwrap();
        act(&mut closures);
        closures.settle(&key());
        assert!(closures.stored.is_empty() && closures.incoming.is_empty());
        match closures.replications.remove(&key()) {
            Some(Replication::Failed(reason)) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(failed(&|_| {}), "closure-never-ended");
    assert_eq!(failed(&|closures| closures.connection_ended(1)), "connection-ended");
    let send = |frames: Vec<Frame>| {
        failed(&move |closures| {
            for frame in &frames {
                closures.received(1, frame.clone(), 0);
            }
        })
    };
    let abort = FrameBody::Abort("closure-stalled: node".to_owned());
    assert_eq!(send(vec![Frame { stream, body: abort }]), "aborted: closure-stalled: node");
    assert_eq!(send(vec![chunk(stream, 1, b"losure")]), "closure-offset-mismatch");
    assert_eq!(send(vec![chunk(stream, 0, b"closures")]), "closure-length-mismatch");
    assert_eq!(send(vec![chunk(stream, 0, b"clo"), end(stream, b"closure")]), "closure-length-mismatch");
    assert_eq!(send(vec![chunk(stream, 0, b"CLOSURE"), end(stream, b"CLOSURE")]), "closure-digest-mismatch");
    assert_eq!(send(vec![chunk(stream, 0, b"CLOSURE"), end(stream, b"closure")]), "closure-digest-mismatch");
    let mut unasked = Closures::default();
    unasked.request(key());
    unasked.settle(&key());
    assert_eq!(unasked.replications[&key()], Replication::Failed("closure-never-arrived".to_owned()));
}

/// Either side is ahead by a window at most: credit comes when half is used up, and is not exceeded.
#[test]
fn a_sender_stays_within_its_window() {
    let bytes = vec![5; 2 * usize::try_from(WINDOW).unwrap() + 1];
    let (mut closures, stream) = (Closures::default(), StreamName::of("1"));
    let body = request("1", &bytes);
    closures.begin_backup(1, &body, 0).unwrap();
    assert_eq!(closures.credit_of(&body), Some(Frame { stream, body: FrameBody::Credit(WINDOW) }));
    let mut credits = Vec::new();
    for (place, part) in bytes.chunks(CHUNK).enumerate() {
        for frame in closures.received(1, chunk(stream, place * CHUNK, part), 0) {
            match frame.body {
                FrameBody::Credit(upto) => credits.push((place + 1, upto)),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(credits, [(8, WINDOW * 3 / 2), (16, WINDOW * 2), (24, WINDOW * 5 / 2), (32, WINDOW * 3)]);
    closures.received(1, end(stream, &bytes), 0);

    let offered =
        closures.begin_restore(2, &json!({"backupId": "b", "serviceId": "s", "nodeId": "n"}), 0).unwrap();
    let stream = StreamName::of(offered["stream"]["streamId"].as_str().unwrap());
    let credit = |upto| Frame { stream, body: FrameBody::Credit(upto) };
    assert_eq!(closures.received(2, credit(u64::MAX), 0).len(), 16, "a window, whatever is allowed");
    assert_eq!(closures.received(2, credit(WINDOW), 0), []);
    let rest = closures.received(2, credit(WINDOW * 2 + 1), 0);
    assert_eq!(rest.len(), 16);
    let last = closures.received(2, credit(WINDOW * 2 + 1), 0);
    assert_eq!(last, [chunk(stream, bytes.len() - 1, &[5]), end(stream, &bytes)]);
    let foreign = closures.received(3, credit(0), 0);
    assert!(matches!(foreign[..], [Frame { body: FrameBody::Abort(_), .. }]), "another connection's");
}

/// One byte beyond the credit ends the stream.
#[test]
fn exceeded_credit_ends_a_stream() {
    let bytes = vec![5; 2 * usize::try_from(WINDOW).unwrap()];
    let (mut closures, stream) = (Closures::default(), StreamName::of("1"));
    closures.begin_backup(1, &request("1", &bytes), 0).unwrap();
    closures.incoming.get_mut(&stream).unwrap().credit = 3;
    assert_eq!(closures.received(1, chunk(stream, 0, &bytes[..3]), 0).len(), 1, "credit is due");
    closures.incoming.get_mut(&stream).unwrap().credit = 3;
    let abort = FrameBody::Abort("closure-credit-exceeded".to_owned());
    assert_eq!(closures.received(1, chunk(stream, 3, &[5]), 0), [Frame { stream, body: abort }]);
    assert!(closures.incoming.is_empty());
}

/// A descriptor is read exactly.
#[test]
fn a_descriptor_of_another_form_is_refused() {
    for (member, value) in [
        ("creatorDirection", json!("receive")),
        ("transport", json!({"kind": "base64"})),
        ("protocol", json!("virtual-stream-v2")),
    ] {
        let mut body = request("1", b"x");
        body["stream"][member] = value;
        let refused = Closures::default().begin_backup(1, &body, 0).unwrap_err();
        assert_eq!(refused.text, format!("closure-invalid: {member}"));
    }
    let mut large = request("1", b"x");
    large["stream"]["integrity"]["byteLength"] = json!(LARGEST + 1);
    assert_eq!(Closures::default().begin_backup(1, &large, 0).unwrap_err().text, "closure-too-large");
}

/// A transfer that got on by no byte for 30 s is given up, and names whose turn it was; a byte is what counts, not a frame.
#[test]
fn a_closure_without_a_byte_is_given_up_by_the_silent_side() {
    let stream = StreamName::of("1");
    let (node, cloudly) = ("closure-stalled: node", "closure-stalled: cloudly");
    let abort = |stream, silent: &str| vec![(1, Frame { stream, body: FrameBody::Abort(silent.to_owned()) })];
    for (most, sent, last, silent) in [
        (None, 0, 0, node),
        (None, 3, 20_000, node),
        (None, 7, 20_000, node),
        (Some(3), 2, 20_000, node),
        (Some(3), 3, 20_000, cloudly),
        (Some(0), 0, 0, cloudly),
    ] {
        let mut closures = Closures::default();
        closures.request(key());
        assert_eq!(closures.take_up_to(most), []);
        closures.begin_backup(1, &request("1", b"closure"), 0).unwrap();
        if sent > 0 {
            closures.received(1, chunk(stream, 0, &b"closure"[..sent]), last);
        }
        assert_eq!(closures.end_stalled(last + PROGRESS_TIMEOUT_MS - 1), []);
        assert_eq!(
            closures.end_stalled(last + PROGRESS_TIMEOUT_MS),
            abort(stream, silent),
            "{most:?} {sent}"
        );
        assert_eq!(closures.replications[&key()], Replication::Failed(silent.to_owned()));
        assert_eq!(closures.end_stalled(u64::MAX), [], "it is over");
    }
    for (most, upto, last, silent) in [
        (None, 0, 0, node),
        (None, 3, 20_000, node),
        (None, 7, 20_000, node),
        (Some(3), 3, 20_000, node),
        (Some(3), 4, 20_000, cloudly),
        (Some(0), 4, 0, cloudly),
    ] {
        let mut closures = Closures { given_most: most, ..Closures::default() };
        closures.stored.insert(key(), Stored { bytes: b"closure".to_vec(), receipt: "receipt-1".to_owned() });
        let wanted = json!({"backupId": "b", "serviceId": "s", "nodeId": "n"});
        let offered = closures.begin_restore(1, &wanted, 0).unwrap();
        let stream = StreamName::of(offered["stream"]["streamId"].as_str().unwrap());
        let credit = |upto| Frame { stream, body: FrameBody::Credit(upto) };
        closures.received(1, credit(upto), 20_000);
        closures.received(1, credit(upto), 25_000);
        assert_eq!(closures.end_stalled(last + PROGRESS_TIMEOUT_MS - 1), []);
        assert_eq!(
            closures.end_stalled(last + PROGRESS_TIMEOUT_MS),
            abort(stream, silent),
            "{most:?} {upto}"
        );
        assert_eq!(closures.restored[&key()], (false, silent.to_owned()));
    }
}

/// A slow Cloudly gives credit as far as its bound, and the rest once that is moved on; what it sends itself ends at a bound
/// of its own, and goes on from there.
#[test]
fn a_bound_holds_a_closure_back() {
    let bytes = b"closure".to_vec();
    let (mut closures, stream, body) = (Closures::default(), StreamName::of("1"), request("1", &bytes));
    let credit = |stream, upto| Frame { stream, body: FrameBody::Credit(upto) };
    closures.take_up_to(Some(3));
    closures.begin_backup(1, &body, 0).unwrap();
    assert_eq!(closures.credit_of(&body), Some(credit(stream, 3)));
    assert_eq!(closures.received(1, chunk(stream, 0, b"clo"), 0), [], "no further");
    assert_eq!(closures.take_up_to(Some(2)), [], "what was given is not taken back");
    assert_eq!(closures.take_up_to(Some(5)), [(1, credit(stream, 5))]);
    assert_eq!(closures.received(1, chunk(stream, 3, b"su"), 0), []);
    assert_eq!(closures.take_up_to(None), [(1, credit(stream, 5 + WINDOW))]);
    closures.received(1, chunk(stream, 5, b"re"), 0);
    let receipt = FrameBody::Receipt { accepted: true, text: "receipt-1".to_owned() };
    assert_eq!(closures.received(1, end(stream, &bytes), 0), [Frame { stream, body: receipt }]);

    closures.given_most = Some(4);
    let wanted = json!({"backupId": "b", "serviceId": "s", "nodeId": "n"});
    let offered = closures.begin_restore(2, &wanted, 0).unwrap();
    let stream = StreamName::of(offered["stream"]["streamId"].as_str().unwrap());
    assert_eq!(closures.received(2, credit(stream, 7), 0), [chunk(stream, 0, b"clos")]);
    assert_eq!(closures.received(2, credit(stream, 7), 0), []);
    closures.given_most = None;
    let left = [chunk(stream, 4, b"ure"), end(stream, &bytes)];
    assert_eq!(closures.received(2, credit(stream, 7), 0), left);
}
