//! What of a request is no pull, or more than one needs: refused by name, and the registry hears nothing of it
//! (PULL).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use coreflow_tests::pull_bed::{DIGEST, MANIFEST, PullBed};
use coreflow_tests::puller::{H2Node, H2Pull, Pulled, Puller, pull, pull_with_body};
use coreflow_tests::registry::{head, reply};
use coreflow_tests::stranger::Stranger;
use coreflow_tests::waiting::{BOUND, within};
use futures_util::future::select;
use futures_util::stream;
use http::uri::PathAndQuery;
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::sync::Notify;

#[track_caller]
fn assert_refused(answer: &Pulled, status: u16, name: &str, of: &str) {
    let words = answer.refusal().unwrap_or_default();
    assert!(answer.status == status && words.starts_with(&format!("{name}: ")), "{of}: {answer:?}");
}

/// PULL-17, PULL-25: no spelling of a path reaches the registry outside `/v2/`: dot segments in every disguise,
/// other roots, and a proxy's form of a request are refused by name or as no request at all.
#[tokio::test]
async fn no_path_leads_out_of_v2() {
    let bed = PullBed::open().await;
    let count = bed.registry.count();
    for path in [
        "/v2/../admin",
        "/v2/a/../../admin",
        "/v2/a/..",
        "/v2/.",
        "/v2/./../admin",
        "/v2/./a",
        "/v2/%2e%2e/admin",
        "/v2/%2E%2E%2Fadmin",
        "/v2/..%2fadmin",
        "/v2/a/..%5c..%5cadmin",
        "/v2/a/..\\..\\admin",
        "/v2/..;/admin",
        "/v2/a;b/admin",
        "/v2/%252e%252e/admin",
        "/v2/a%2Fb/manifests/v1",
        "/v2/a/b/manifests/v1%2B2",
        "/v2/a%00b",
        "//v2/../admin",
        "//v2/a",
        "/V2/../admin",
        "/V2/a",
        "/v2x/admin",
        "/v2",
        "/v2?a=/v2/",
        "/metrics",
        "/v1/_ping",
        "/token",
        "/v2.0/",
        "/api/v2/",
        "/x?/v2/",
    ] {
        let answer = bed.get(path, &[("Authorization", "Bearer tok")]).await;
        // A backslash is in no target, so the parser of requests may refuse it first.
        if !(path.contains('\\') && answer.status == 400) {
            assert_refused(&answer, 404, "pull-path-refused", path);
            assert!(answer.text().contains("/v2/"), "it says what is served: {answer:?}");
        }
        if path.parse::<PathAndQuery>().is_ok() && !path.starts_with("//") {
            let over_h2 = pull(&bed.h2(), "GET", path, &[("Authorization", "Bearer tok")]).await;
            assert_refused(&over_h2, 404, "pull-path-refused", path);
        }
    }
    for target in ["https://evil.test/admin", "http://evil.test/v2/../admin", "*", "evil.test:443", "v2/a"] {
        for method in ["GET", "CONNECT"] {
            let mut puller = Puller::dial(&bed.h1()).await;
            puller.ask(method, target, &[]).await;
            let answer = puller.answer(method).await;
            assert!((400..500).contains(&answer.status), "{method} {target}: {answer:?}");
        }
    }
    assert_eq!(bed.registry.count(), count, "{:?}", bed.registry.asked());
    // The proxy's form of a sound request names no other registry, if it is served at all.
    let answer = bed.get("https://evil.test/v2/a/manifests/v1", &[]).await;
    for asked in &bed.registry.asked()[count..] {
        assert_eq!((answer.status, asked.target.as_str()), (200, "/v2/a/manifests/v1"));
        assert_eq!(asked.all("host"), [&bed.cloudly.url()["https://".len()..]]);
    }
}

/// PULL-15, PULL-16: every method but GET and HEAD is refused with 405, after which a container client asks for
/// its token by GET, and the registry hears nothing.
#[tokio::test]
async fn other_methods_are_refused_with_405() {
    let bed = PullBed::open().await;
    let count = bed.registry.count();
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"] {
        for path in ["/v2/token", "/v2/a/b/blobs/uploads/"] {
            let mut puller = Puller::dial(&bed.h1()).await;
            puller
                .send(&format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na=b"))
                .await;
            for answer in [puller.answer(method).await, pull(&bed.h2(), method, path, &[]).await] {
                assert_refused(&answer, 405, "pull-method-refused", method);
                assert_eq!(answer.all("allow"), ["GET, HEAD"]);
            }
        }
    }
    assert_eq!(bed.registry.count(), count);
    for answer in bed.over_both("GET", "/v2/token", &[]).await {
        assert_eq!(answer.status, 200);
    }
    assert_eq!(bed.registry.count(), count + 2);
}

/// PULL-23: a token of twelve kilobytes passes whole; more than the bound of a head is refused by name, in bytes
/// and in number, and the relay goes on.
#[tokio::test]
async fn a_head_beyond_its_bounds_is_refused() {
    let bed = PullBed::open().await;
    let token = |length: usize| format!("Bearer {}", "t".repeat(length));
    let large = token(12_000);
    for answer in bed.over_both("GET", MANIFEST, &[("Authorization", &large)]).await {
        assert_eq!(answer.status, 200);
        assert_eq!(bed.registry.last().all("authorization"), [large.as_str()]);
    }
    let count = bed.registry.count();
    let beyond = token(40_000);
    let answer = bed.get(MANIFEST, &[("Authorization", &beyond)]).await;
    assert_refused(&answer, 431, "pull-headers-refused", "40 kB of token");
    let many = vec![("Accept", "application/x"); 70];
    let answer = bed.get(MANIFEST, &many).await;
    assert_refused(&answer, 431, "pull-headers-refused", "70 lines");
    let path = format!("/v2/{}", "a".repeat(40_000));
    let answer = bed.get(&path, &[]).await;
    assert!([414, 431].contains(&answer.status), "{answer:?}");
    // Far beyond it there may be nobody left to answer by name, but nobody falls over either.
    let answer = bed.get(MANIFEST, &[("Authorization", &token(262_144))]).await;
    assert!([0, 400, 413, 431].contains(&answer.status), "{answer:?}");
    let over_h2 = pull(&bed.h2(), "GET", MANIFEST, &[("Authorization", &token(40_000))]).await;
    assert_refused(&over_h2, 431, "pull-headers-refused", "40 kB of token over HTTP/2");
    assert_eq!(bed.registry.count(), count);
    for answer in bed.over_both("GET", MANIFEST, &[]).await {
        assert_eq!(answer.status, 200);
    }
}

/// PULL-24: an answer's head beyond the bounds is the registry's failure, named by its class.
#[tokio::test]
async fn an_answers_head_beyond_its_bounds_is_a_failure() {
    let bed = PullBed::open().await;
    let (long, lines) = ("e".repeat(300_000), vec![("Warning", "x"); 300]);
    for headers in [vec![("ETag", long.as_str())], lines] {
        bed.registry.answer(reply("200 OK", &headers, b"x"));
        for answer in bed.over_both("GET", MANIFEST, &[]).await {
            assert_refused(&answer, 502, "pull-registry-unreachable", "a head too long");
            assert_eq!(answer.refusal().as_deref(), Some("pull-registry-unreachable: protocol"));
        }
    }
    bed.registry.answer(reply("200 OK", &[("ETag", "\"x\"")], b"x"));
    assert_eq!(bed.get(MANIFEST, &[]).await.text(), "x");
}

/// PULL-25: a body under a GET never becomes a request at the registry, by whichever of two lengths it is read,
/// and no header of its framing travels.
#[tokio::test]
async fn a_body_is_no_request() {
    let bed = PullBed::open().await;
    let inner = "GET /v2/smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    let length = format!("Content-Length: {}\r\n", inner.len());
    let mut served = Vec::new();
    for (framing, body, pipelined) in [
        (length.clone(), inner.to_owned(), false),
        (format!("{length}Content-Length: 0\r\n"), inner.to_owned(), false),
        (format!("Content-Length: 0\r\n{length}"), inner.to_owned(), false),
        ("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n".to_owned(), format!("0\r\n\r\n{inner}"), true),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n".to_owned(),
            format!("0\r\n\r\n{inner}"),
            true,
        ),
        ("Transfer-Encoding:\u{b}chunked\r\n".to_owned(), format!("0\r\n\r\n{inner}"), false),
    ] {
        let count = bed.registry.count();
        let mut puller = Puller::dial(&bed.h1()).await;
        // The last request of the connection says when the others have been served.
        let last = "GET /v2/last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        puller.send(&format!("GET /v2/outer HTTP/1.1\r\nHost: x\r\n{framing}\r\n{body}{last}")).await;
        assert!(puller.ended().await);
        let answers = String::from_utf8_lossy(puller.pending()).matches("HTTP/1.1 200 ").count();
        let asked = bed.registry.asked();
        let targets: Vec<&str> = asked[count..].iter().map(|asked| asked.target.as_str()).collect();
        // After a chunked body the inner text is a request of its own, which is in order.
        let outer: Vec<&str> = targets.iter().filter(|target| **target != "/v2/last").copied().collect();
        let sound =
            outer.is_empty() || outer == ["/v2/outer"] || pipelined && outer == ["/v2/outer", "/v2/smuggled"];
        assert!(sound, "{framing:?}: the registry saw {targets:?}");
        assert_eq!(answers, targets.len(), "{framing:?}: of {targets:?}");
        served.push(answers);
        for asked in &asked[count..] {
            assert_eq!(
                (asked.get("transfer-encoding"), asked.get("content-length")),
                (None, None),
                "{asked:?}"
            );
        }
    }
    assert!(served[0] > 0, "a body that is framed as it should be is no hindrance: {served:?}");
}

/// PULL-16: a refusal reaches a client over HTTP/2 whole and by name, though its body was not asked for: the
/// refusal waits for the end of a short one.
#[tokio::test]
async fn a_refused_method_with_a_body_is_answered_by_name() {
    let bed = PullBed::open().await;
    let count = bed.registry.count();
    for size in [1, 3, 16_000, 60_000] {
        let body = "b".repeat(size);
        for method in ["POST", "PUT", "PATCH"] {
            for target in [bed.h1(), bed.h2()] {
                let answer = pull_with_body(&target, method, "/v2/a/b/blobs/uploads/", &body).await;
                assert_refused(&answer, 405, "pull-method-refused", &format!("{method} of {size}"));
                assert!(answer.complete, "{method} of {size}: {answer:?}");
            }
        }
    }
    // No reset comes before the end of the request, which some clients would take for the answer.
    let taken = Arc::new(AtomicBool::new(false));
    let end = taken.clone();
    let parts = stream::unfold(0, move |part| {
        let end = end.clone();
        async move {
            match part {
                0 => {}
                // The node's own pace.
                1 => tokio::time::sleep(Duration::from_millis(200)).await,
                _ => {
                    end.store(true, Ordering::SeqCst);
                    return None;
                }
            }
            Some((Ok(Frame::data(Bytes::from_static(b"a=b"))), part + 1))
        }
    });
    let stream = Stranger::new(bed.h2(), 1).tls().await.unwrap();
    let mut node = H2Node::over(stream, &bed.setup.host_name, None).await;
    let asked = async { node.ask("POST", "/v2/token", &[], StreamBody::new(parts)).await.whole().await };
    let answer = within(BOUND, "answer to a body in two parts", asked).await.unwrap();
    assert_refused(&answer, 405, "pull-method-refused", "POST in two parts");
    assert!(taken.load(Ordering::SeqCst), "the stream was reset before the request had ended");
    assert_eq!(bed.registry.count(), count);
}

/// PULL-25: a GET with a body of 200 KiB is answered or refused, and nothing of that body is a request at the
/// registry; then the relay goes on.
#[tokio::test]
async fn a_long_body_of_a_pull_is_no_request() {
    let bed = PullBed::open().await;
    let inner = "GET /v2/smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    let body = inner.repeat((200 << 10) / inner.len() + 1);
    for target in [bed.h1(), bed.h2()] {
        let count = bed.registry.count();
        let answer = pull_with_body(&target, "GET", MANIFEST, &body).await;
        assert!(answer.status == 200 || (400..500).contains(&answer.status), "{answer:?}");
        assert!(answer.complete, "{answer:?}");
        assert_eq!(pull(&target, "GET", "/v2/last", &[]).await.status, 200);
        let asked = bed.registry.asked().split_off(count);
        let targets: Vec<&str> = asked.iter().map(|asked| asked.target.as_str()).collect();
        assert!(targets == [MANIFEST, "/v2/last"] || targets == ["/v2/last"], "{targets:?}");
        assert!(asked.iter().all(|asked| asked.get("content-length").is_none()), "{asked:?}");
    }
}

/// An address has a fourth of the exchanges that may be under way, on however few connections: what is beyond is
/// refused by name and not asked of the registry, another address is served meanwhile, and so is this one again
/// once one of its exchanges has ended.
#[tokio::test]
async fn an_address_has_its_share_of_the_exchanges() {
    // Under 256 open files there are eight places of pulls, and as many exchanges.
    let bed = PullBed::open_with(|setup, _| setup.open_files = Some(256)).await;
    let line = bed.relay.wait_line("the listener has places under a limit of 256 open files").await.unwrap();
    assert!(line.text.contains("pulls=8"), "{}", line.text);
    let release = Arc::new(Notify::new());
    let released = release.clone();
    bed.registry.script(move |mut exchange| {
        let released = released.clone();
        async move {
            if !exchange.asked.target.starts_with("/v2/held/") {
                return exchange.answer(reply("200 OK", &[], b"x")).await;
            }
            exchange.send(head("200 OK", &[("Content-Length", "2")])).await.ok()?;
            released.notified().await;
            exchange.answer("xy").await
        }
    });
    let stream = Stranger::new(bed.h2(), 2).tls().await.unwrap();
    let mut node = H2Node::over(stream, &bed.setup.host_name, None).await;
    let mut held = Vec::new();
    for number in 0..2 {
        held.push(node.get(&format!("/v2/held/{number}")).await);
        assert_eq!(held[number].pulled.status, 200);
    }
    let count = bed.registry.count();
    for _ in 0..3 {
        let refused = node.get(MANIFEST).await.whole().await;
        assert_refused(&refused, 503, "pull-connections-full", "a third exchange of an address");
    }
    assert_eq!(bed.registry.count(), count, "the registry heard of what was refused");
    for answer in bed.over_both("GET", MANIFEST, &[]).await {
        assert_eq!((answer.status, answer.text().as_str()), (200, "x"), "another address");
    }
    release.notify_one();
    // Whichever of the two it was.
    let [one, two] = <[H2Pull; 2]>::try_from(held).ok().unwrap();
    let (first, other) = (Box::pin(one.whole()), Box::pin(two.whole()));
    let ended = within(BOUND, "end of one exchange", select(first, other)).await.unwrap();
    let (ended, other) = ended.factor_first();
    assert_eq!((ended.text().as_str(), ended.complete), ("xy", true));
    let again = async { while node.get(MANIFEST).await.whole().await.status != 200 {} };
    within(BOUND, "pull in the place of one that ended", again).await.unwrap();
    release.notify_one();
    assert_eq!(within(BOUND, "end of the other exchange", other).await.unwrap().text(), "xy");
}

/// PULL-11, PULL-25: a line of the registry's that would be two lines to the node is none of an answer.
#[tokio::test]
async fn an_answer_makes_no_second_line() {
    let bed = PullBed::open().await;
    let split = head("200 OK", &[("Content-Length", "0"), ("ETag", "a\rSet-Cookie: b")]);
    bed.registry.answer(split);
    let answer = bed.get(&format!("/v2/a/b/blobs/{DIGEST}"), &[]).await;
    assert_eq!(answer.refusal().as_deref(), Some("pull-registry-unreachable: protocol"), "{answer:?}");
}
