//! A registry that fails: the node gets 502 and the class, nobody gets the message, and a connection that died
//! while it waited costs no pull (PULL).

use std::time::{Duration, Instant};

use coreflow_tests::authority::Authority;
use coreflow_tests::cloudly::Front;
use coreflow_tests::pull_bed::{MANIFEST, PullBed};
use coreflow_tests::puller::{Pulled, pull};
use coreflow_tests::registry::{head, reply};
use coreflow_tests::waiting::{poll, within};

/// Over the relay's longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(50);
const TOKEN: &str = "Bearer very-secret-pull-token-0123456789";

/// The answer is the class and says nothing of what was asked, of whom, and with what.
#[track_caller]
fn assert_failed(bed: &PullBed, answer: &Pulled, class: &str) {
    let words = answer.refusal();
    assert_eq!(
        (answer.status, words),
        (502, Some(format!("pull-registry-unreachable: {class}"))),
        "{answer:?}"
    );
    let said = format!("{:?} {}", answer.headers, answer.text());
    for secret in ["very-secret", MANIFEST, &bed.cloudly.port().to_string(), "localhost", "127.0.0.1"] {
        assert!(!said.contains(secret), "{secret} is in {said}");
    }
}

/// PULL-26, PULL-27: no connection, a certificate that nobody vouches for, an answer that is none, an end before
/// an answer: 502 within seconds, the class alone, and the token goes to no stranger. Then it serves again.
#[tokio::test]
async fn a_registry_that_fails_is_named_by_class() {
    let bed = PullBed::open().await;
    let ask = async || {
        let begin = Instant::now();
        let answers = bed.over_both("GET", MANIFEST, &[("Authorization", TOKEN)]).await;
        assert!(begin.elapsed() < Duration::from_secs(10), "two answers took {:?}", begin.elapsed());
        answers
    };
    let garbage = ["SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200 OK\r\n bad\r\n\r\n"];
    for garbage in garbage {
        bed.registry.answer_and_close(garbage);
        for answer in ask().await {
            assert_failed(&bed, &answer, "protocol");
        }
    }
    bed.registry.script(|exchange| async move { exchange.close().await });
    let count = bed.registry.count();
    for answer in ask().await {
        assert_failed(&bed, &answer, "closed");
    }
    assert!(bed.registry.count() <= count + 4, "asked once more at most: {}", bed.registry.count() - count);
    bed.registry.answer(reply("200 OK", &[], b"x"));
    ask().await.iter().for_each(|answer| assert_eq!(answer.text(), "x"));

    bed.cloudly.go_away().await;
    bed.registry.wait_open_connections(0).await.unwrap();
    for answer in ask().await {
        assert_failed(&bed, &answer, "connect");
    }
    let count = bed.registry.count();
    let foreign = Authority::new().issue(&["localhost"]);
    bed.cloudly.change(|settings| settings.own_certificate = Some(foreign));
    bed.cloudly.come_back().await.unwrap();
    for answer in ask().await {
        assert_failed(&bed, &answer, "tls");
    }
    assert_eq!(bed.registry.count(), count, "the token went to a stranger");

    bed.cloudly.change(|settings| settings.own_certificate = None);
    ask().await.iter().for_each(|answer| assert_eq!(answer.text(), "x"));
    let lines = bed.relay.lines();
    let said: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    for secret in ["very-secret", MANIFEST, "SSH-2.0"] {
        assert!(said.iter().all(|line| !line.contains(secret)), "{secret} is in {said:#?}");
    }
}

/// PULL-26: who takes a connection and then says nothing, before TLS or after it, is given up on by
/// class within the relay's patience, and no other pull has to wait for that.
#[tokio::test]
async fn a_registry_that_is_silent_is_a_timeout() {
    let bed = PullBed::open().await;
    bed.registry.script(|mut exchange| async move {
        if exchange.asked.target == "/v2/silent" {
            exchange.left().await;
            return None;
        }
        exchange.send(reply("200 OK", &[("Connection", "close")], b"x")).await.ok()?;
        exchange.close().await
    });
    let (h1, h2) = (bed.h1(), bed.h2());
    let count = bed.registry.count();
    let others = async {
        bed.registry.wait_asked(count + 2).await.unwrap();
        for _ in 0..10 {
            assert_eq!(bed.get(MANIFEST, &[]).await.text(), "x");
        }
        // No connection is kept, so the next pull needs a new one.
        bed.cloudly.change(|settings| settings.front = Front::Silent);
        bed.get(MANIFEST, &[]).await
    };
    let silent = async {
        tokio::join!(
            pull(&h1, "GET", "/v2/silent", &[("Authorization", TOKEN)]),
            pull(&h2, "GET", "/v2/silent", &[("Authorization", TOKEN)]),
            others
        )
    };
    let (one, two, three) = within(PATIENCE, "end of pulls of a silent registry", silent).await.unwrap();
    for answer in [one, two, three] {
        assert_failed(&bed, &answer, "timeout");
    }
}

/// PULL-01: a registry that closes kept connections without a word, at once or while they wait, costs no pull.
#[tokio::test]
async fn a_connection_that_died_while_it_waited_costs_no_pull() {
    let bed = PullBed::open().await;
    bed.registry.answer_and_close(reply("200 OK", &[], b"x"));
    for number in 0..40 {
        assert_eq!(bed.get(MANIFEST, &[]).await.status, 200, "pull {number}");
    }
    for cut in [true, false] {
        bed.registry.script(move |mut exchange| async move {
            exchange.send(reply("200 OK", &[], b"x")).await.ok()?;
            tokio::time::sleep(Duration::from_millis(50)).await;
            if cut { exchange.cut() } else { exchange.close().await }
        });
        for number in 0..24 {
            let answer = bed.get(MANIFEST, &[]).await;
            assert_eq!(answer.status, 200, "pull {number}, cut {cut}");
            // Sooner and sooner before, at and after the close.
            tokio::time::sleep(Duration::from_millis(38 + number)).await;
        }
    }
}

/// PULL-01: a kept connection that ends as it is used again is tried once more on a fresh one; an answer that has
/// begun is not asked for twice.
#[tokio::test]
async fn a_pull_is_asked_once_more_at_most() {
    let bed = PullBed::open().await;
    // The first request of a connection is answered, the second one cut.
    bed.registry.script(|mut exchange| async move {
        if exchange.asked.target == "/v2/first" {
            return exchange.answer(reply("200 OK", &[], b"x")).await;
        }
        if exchange.asked.target == "/v2/half" {
            exchange.send(head("200 OK", &[("Content-Length", "500000")])).await.ok()?;
            exchange.send(vec![b'y'; 100_000]).await.ok()?;
        }
        exchange.cut()
    });
    let mut before = bed.registry.connections();
    for _ in 0..5 {
        assert_eq!(bed.get("/v2/first", &[]).await.status, 200);
        let count = bed.registry.count();
        let answer = bed.get("/v2/cut", &[]).await;
        assert_eq!(answer.refusal().as_deref(), Some("pull-registry-unreachable: closed"));
        let asked = bed.registry.asked();
        assert_eq!(asked.len(), count + 2, "once on the kept connection, once on a fresh one: {asked:?}");
        assert_ne!(asked[count].connection, asked[count + 1].connection);
        assert!(asked[count + 1].connection > before);
        before = bed.registry.connections();
    }
    let count = bed.registry.count();
    assert_eq!(bed.get("/v2/first", &[]).await.status, 200);
    let answer = bed.get("/v2/half", &[]).await;
    assert!(answer.status == 200 && !answer.complete, "{answer:?}");
    assert_eq!(bed.registry.count(), count + 2);
}

/// PULL-01, PULL-02: a Cloudly that went away and came back is pulled from again, without a word to the relay, and
/// kept connections are few.
#[tokio::test]
async fn kept_connections_are_used_again() {
    let bed = PullBed::open().await;
    let before = bed.registry.connections();
    for _ in 0..50 {
        assert_eq!(bed.get(MANIFEST, &[]).await.status, 200);
    }
    let opened = bed.registry.connections() - before;
    assert!(opened <= 3, "fifty pulls in a row opened {opened} connections");
    bed.cloudly.go_away().await;
    bed.registry.wait_open_connections(0).await.unwrap();
    assert_eq!(bed.get(MANIFEST, &[]).await.status, 502);
    bed.cloudly.come_back().await.unwrap();
    assert_eq!(bed.get(MANIFEST, &[]).await.status, 200);
    // The session comes back by itself; pulls did not wait for it.
    poll(PATIENCE, "session of the relay", || (bed.cloudly.acceptances() > 1).then_some(())).await.unwrap();
}
