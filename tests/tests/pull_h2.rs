//! A registry that speaks HTTP/2 alone: the same pulls pass, over few connections (PULL).

use coreflow_tests::pull_bed::{DIGEST, MANIFEST, PullBed};
use coreflow_tests::puller::pull;
use coreflow_tests::registry::H2Answer;
use tokio::task::JoinSet;

/// A relay in front of a registry that speaks nothing but HTTP/2. The relay's own session names no protocol, and
/// its identity was bought before.
async fn bed() -> PullBed {
    let bed = PullBed::open().await;
    bed.cloudly.wait_accepted(1).await.expect("the relay is accepted");
    bed.cloudly.go_away().await;
    bed.registry.wait_open_connections(0).await.expect("kept connections end");
    bed.cloudly.change(|settings| settings.alpn = &["h2"]);
    bed.cloudly.come_back().await.expect("the port is free again");
    bed
}

/// PULL-01, PULL-10, PULL-15, PULL-20, PULL-21, PULL-22, PULL-25: what holds over HTTP/1.1 holds over HTTP/2.
#[tokio::test]
async fn pulls_pass_over_http_2() {
    let bed = bed().await;
    let challenge = format!(r#"Bearer realm="{}/v2/token",service="s""#, bed.cloudly.url());
    bed.registry.over_h2(move |asked| match (asked.method.as_str(), asked.target.as_str()) {
        ("HEAD", _) => H2Answer::new(200).header("content-length", "1234").header("etag", "\"x\""),
        (_, "/v2/") => H2Answer::new(401).header("www-authenticate", &challenge),
        (_, "/v2/gzip") => {
            H2Answer::new(200).header("content-encoding", "gzip").header("content-length", "4").body("gzip")
        }
        (_, "/v2/none") => H2Answer::new(200).body("without a length"),
        (_, _) => H2Answer::new(206)
            .header("content-range", "bytes 1-4/9")
            .header("docker-content-digest", DIGEST)
            .header("set-cookie", "s=1")
            .header("content-length", "4")
            .body("part"),
    });
    let headers =
        [("Range", "bytes=1-4"), ("Accept", "a/b"), ("Accept", "c/d"), ("Authorization", "Bearer tok")];
    for answer in bed.over_both("GET", "/v2/a/blobs/x?ns=a%2Fb", &headers).await {
        assert_eq!((answer.status, answer.text().as_str(), answer.complete), (206, "part", true));
        assert_eq!(
            (answer.get("content-range"), answer.get("content-length")),
            (Some("bytes 1-4/9"), Some("4"))
        );
        assert_eq!((answer.get("docker-content-digest"), answer.get("set-cookie")), (Some(DIGEST), None));
        let asked = bed.registry.last();
        assert_eq!((asked.version.as_str(), asked.target.as_str()), ("HTTP/2.0", "/v2/a/blobs/x?ns=a%2Fb"));
        assert_eq!(asked.get(":authority"), Some(&bed.cloudly.url()["https://".len()..]));
        assert_eq!((asked.all("accept"), asked.all("range")), (vec!["a/b", "c/d"], vec!["bytes=1-4"]));
        assert_eq!(
            (asked.all("accept-encoding"), asked.get("authorization")),
            (vec!["identity"], Some("Bearer tok"))
        );
    }
    for answer in bed.over_both("HEAD", MANIFEST, &[]).await {
        assert_eq!(
            (answer.status, answer.get("content-length"), answer.get("etag")),
            (200, Some("1234"), Some("\"x\""))
        );
    }
    for answer in bed.over_both("GET", "/v2/", &[]).await {
        let expected = format!(r#"Bearer realm="{}/v2/token",service="s""#, bed.setup.origin());
        assert_eq!((answer.status, answer.all("www-authenticate")), (401, vec![expected.as_str()]));
    }
    for answer in bed.over_both("GET", "/v2/gzip", &[]).await {
        assert_eq!((answer.text().as_str(), answer.get("content-length")), ("gzip", None));
    }
    for answer in bed.over_both("GET", "/v2/none", &[]).await {
        assert_eq!((answer.text().as_str(), answer.complete), ("without a length", true));
    }
}

/// PULL-18, PULL-21: a stream that the registry resets in the middle is a cut body for the node.
#[tokio::test]
async fn a_reset_stream_never_looks_whole() {
    let bed = bed().await;
    for (size, stated) in [(10, true), (10, false), (300_000, true), (300_000, false)] {
        bed.registry.over_h2(move |_| {
            let answer = H2Answer::new(200).body("y".repeat(size)).broken();
            if stated { answer.header("content-length", &(2 * size).to_string()) } else { answer }
        });
        for answer in bed.over_both("GET", MANIFEST, &[]).await {
            let cut = answer.status == 200 && !answer.complete;
            assert!(cut || answer.status == 502, "{size} of {stated}: {answer:?}");
        }
    }
    bed.registry.over_h2(|_| H2Answer::new(200).body("whole"));
    assert_eq!(bed.get(MANIFEST, &[]).await.text(), "whole");
}

/// PULL-05: many pulls share few connections, and each gets its own answer.
#[tokio::test]
async fn pulls_share_a_connection() {
    let bed = bed().await;
    bed.registry.over_h2(|asked| {
        let token = asked.get("authorization").unwrap_or_default();
        H2Answer::new(200).body(format!("{} for {token};", asked.target).repeat(2000))
    });
    let mut nodes = JoinSet::new();
    for number in 0..32 {
        let target = if number % 2 == 0 { bed.h1() } else { bed.h2() };
        nodes.spawn(async move {
            let (path, token) = (format!("/v2/{number}"), format!("Bearer {number}"));
            let answer = pull(&target, "GET", &path, &[("Authorization", &token)]).await;
            assert!(answer.complete && answer.text() == format!("{path} for {token};").repeat(2000));
        });
    }
    while let Some(ended) = nodes.join_next().await {
        ended.unwrap();
    }
    assert!(bed.registry.connections() <= 6, "{} connections", bed.registry.connections());
}
