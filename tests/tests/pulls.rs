//! What passes of a pull, in either direction, and what does not: each case of public reports against other pull
//! proxies, on the real binaries before a scripted registry (PULL). Refusals are in `pull_refusals.rs`, bodies in
//! `pull_bodies.rs`, failures in `pull_failures.rs`, secrets in `pull_secrets.rs`, HTTP/2 to the registry in
//! `pull_h2.rs`.

use coreflow_tests::pull_bed::{DIGEST, MANIFEST, PullBed};
use coreflow_tests::puller::{H2Pull, Puller, pull};
use coreflow_tests::registry::{head, reply};
use coreflow_tests::waiting::{BOUND, within};
use tokio::net::TcpListener;

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_MANIFEST_TYPE: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST_TYPE: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

fn blob() -> String {
    format!("/v2/a/b/blobs/{DIGEST}")
}

/// PULL-01, PULL-02, PULL-10, PULL-12, PULL-13: the realm that has the registry's origin gets the relay's, in
/// whatever order and case it is written; the rest of the challenge, a service that is that very origin, and
/// every foreign realm stay as they are, byte for byte.
#[tokio::test]
async fn only_the_realm_of_the_registrys_origin_is_rewritten() {
    let bed = PullBed::open().await;
    let (up, relay) = (bed.cloudly.url(), bed.setup.origin());
    let scopes: Vec<String> =
        (0..300).map(|number| format!("repository:team/name-{number:04}:pull")).collect();
    let long = format!(r#""s",scope="{}""#, scopes.join(" "));
    assert!(long.len() > 8000);
    let own = [
        (
            format!(
                r#"Bearer realm="{up}/v2/token?x=1&y=%2F",service="reg.test",scope="repository:a/b:pull,push""#
            ),
            format!(
                r#"Bearer realm="{relay}/v2/token?x=1&y=%2F",service="reg.test",scope="repository:a/b:pull,push""#
            ),
        ),
        (
            format!(r#"Bearer realm="{up}/v2/token",service="{up}""#),
            format!(r#"Bearer realm="{relay}/v2/token",service="{up}""#),
        ),
        (
            format!(r#"bearer service="reg.test", Realm="{up}/v2/token""#),
            format!(r#"bearer service="reg.test", Realm="{relay}/v2/token""#),
        ),
        (
            format!(r#"Bearer realm="{}/v2/token",service="s""#, up.to_uppercase()),
            format!(r#"Bearer realm="{relay}/v2/token",service="s""#),
        ),
        (
            format!(r#"Bearer realm="{up}/v2/token",service={long}"#),
            format!(r#"Bearer realm="{relay}/v2/token",service={long}"#),
        ),
    ];
    let foreign = [
        r#"Bearer realm="https://auth.third.test/token",service="reg.test",scope="repository:a/b:pull""#
            .to_owned(),
        format!(r#"Bearer realm="https://auth.third.test/token?to={up}/v2/token",service="s""#),
        format!(r#"Bearer realm="{up}@auth.third.test/v2/token",service="s""#),
        format!(r#"Bearer realm="{up}.third.test/v2/token",service="s""#),
        format!(r#"Bearer realm="{}/v2/token",service="s""#, up.replace("https:", "http:")),
        format!(r#"Bearer service="realm={up}/v2/token""#),
        r#"Basic realm="plain""#.to_owned(),
    ];
    let cases = own.into_iter().chain(foreign.into_iter().map(|same| (same.clone(), same)));
    for (written, expected) in cases {
        bed.registry.answer(reply("401 Unauthorized", &[("WWW-Authenticate", &written)], b"{}"));
        for answer in bed.over_both("GET", MANIFEST, &[]).await {
            assert_eq!((answer.status, answer.text().as_str()), (401, "{}"));
            assert_eq!(answer.all("www-authenticate"), [expected.as_str()], "{written}");
        }
    }
    // Two lines, Bearer second: both arrive.
    let bearer = format!(r#"Bearer realm="{up}/v2/token",service="s""#);
    let lines = [("WWW-Authenticate", r#"Basic realm="plain""#), ("WWW-Authenticate", &bearer)];
    bed.registry.answer(reply("401 Unauthorized", &lines, b""));
    for answer in bed.over_both("HEAD", MANIFEST, &[]).await {
        let all = answer.all("www-authenticate").join(", ");
        assert_eq!(all, format!(r#"Basic realm="plain", Bearer realm="{relay}/v2/token",service="s""#));
    }
    // The token endpoint that it leads to is the registry's, asked with the query as it is.
    bed.registry.answer(reply("200 OK", &[], b"token"));
    let token = "/v2/token?service=s&scope=repository:a/b:pull&scope=repository:c%2Fd:pull&account=node";
    assert_eq!(bed.get(token, &[("Authorization", "Basic bm9kZTpwdw==")]).await.text(), "token");
    let asked = bed.registry.last();
    assert_eq!((asked.target.as_str(), asked.get("authorization")), (token, Some("Basic bm9kZTpwdw==")));
}

/// PULL-14, PULL-31: a foreign realm is logged once for each origin, and a realm whose path this listener does
/// not serve is rewritten and logged as such. What it leads to is refused.
#[tokio::test]
async fn a_realm_that_leads_elsewhere_is_logged_once() {
    let bed = PullBed::open().await;
    let challenge = |realm: &str| {
        let value = format!(r#"Bearer realm="{realm}",service="s""#);
        reply("401 Unauthorized", &[("WWW-Authenticate", &value)], b"")
    };
    for name in ["one", "two"] {
        for path in ["/token", "/token", "/other/token"] {
            bed.registry.answer(challenge(&format!("https://{name}.third.test{path}")));
            assert_eq!(bed.get(MANIFEST, &[]).await.status, 401);
        }
        bed.wait_lines(&format!("{name}.third.test"), 1).await;
    }
    for _ in 0..2 {
        bed.registry.answer(challenge(&format!("{}/service/token", bed.cloudly.url())));
        let answer = bed.get(MANIFEST, &[]).await;
        let expected = format!(r#"Bearer realm="{}/service/token",service="s""#, bed.setup.origin());
        assert_eq!(answer.all("www-authenticate"), [expected.as_str()]);
    }
    bed.wait_lines("under /v2/", 1).await;
    // The last of them is logged by now, so one too many would be, too.
    let lines: Vec<String> = bed.relay.lines().into_iter().map(|line| line.text).collect();
    let of = |part: &str| lines.iter().filter(|line| line.contains(part)).collect::<Vec<_>>();
    let foreign = of("third.test");
    assert!(foreign[0].contains("https://one.third.test") && foreign[1].contains("https://two.third.test"));
    assert_eq!((foreign.len(), of("under /v2/").len()), (2, 1), "{lines:#?}");
    assert!(of("/token").is_empty(), "{lines:#?}");
    let refused = bed.get("/service/token", &[]).await;
    assert!(refused.refusal().is_some_and(|words| words.starts_with("pull-path-refused: ")), "{refused:?}");
}

/// PULL-11: `Location` and `Link` pass as they are written, whomever they name; the relay follows none, and says
/// once that one names the registry's own origin, where the node has no way to.
#[tokio::test]
async fn a_location_passes_as_written_and_is_not_followed() {
    let bed = PullBed::open().await;
    let store = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let elsewhere = format!("https://{}/blob?sig=a%2Fb&x=%20", store.local_addr().unwrap());
    let own = format!("{}/v2/a/b/blobs/x", bed.cloudly.url());
    for location in [elsewhere.as_str(), "/v2/a/b/blobs/uploads", &own, &own] {
        bed.registry.answer(reply("307 Temporary Redirect", &[("Location", location)], b""));
        for answer in bed.over_both("GET", &blob(), &[("Authorization", "Bearer tok")]).await {
            assert_eq!((answer.status, answer.all("location")), (307, vec![location]));
        }
    }
    let link = format!("<{}/v2/a/b/tags/list?last=v%2B1&n=2>; rel=\"next\"", bed.cloudly.url());
    for link in [r#"</v2/a/b/tags/list?last=v%2B1&n=2>; rel="next""#, &link] {
        bed.registry.answer(reply("200 OK", &[("Link", link)], b"{}"));
        for answer in bed.over_both("GET", "/v2/a/b/tags/list?n=2&last=v%2B0", &[]).await {
            assert_eq!((answer.status, answer.all("link")), (200, vec![link]));
        }
        assert_eq!(bed.registry.last().target, "/v2/a/b/tags/list?n=2&last=v%2B0");
    }
    bed.wait_lines("location", 1).await;
    bed.wait_lines("link", 1).await;
    assert_eq!((bed.lines("location"), bed.lines("link")), (1, 1));
    let dialled = tokio::time::timeout(std::time::Duration::from_millis(200), store.accept()).await;
    assert!(dialled.is_err(), "the relay went where only the node may go");
}

/// PULL-20, PULL-25: every line of `Accept` reaches the registry in its order, and the registry is asked for
/// `identity` whatever the node said of encodings.
#[tokio::test]
async fn the_registry_is_asked_for_what_the_node_takes_unencoded() {
    let bed = PullBed::open().await;
    let types = [MANIFEST_TYPE, DOCKER_MANIFEST_TYPE, DOCKER_LIST_TYPE, INDEX_TYPE];
    let mut headers = types.map(|of| ("Accept", of)).to_vec();
    headers.push(("Accept-Encoding", "zstd;q=1.0, gzip;q=0.8, deflate;q=0.5"));
    for method in ["GET", "HEAD"] {
        for answer in bed.over_both(method, MANIFEST, &headers).await {
            assert_eq!(answer.status, 200);
        }
        let asked = bed.registry.asked();
        for asked in &asked[asked.len() - 2..] {
            let lines = asked.all("accept").join(", ");
            let got: Vec<&str> = lines.split(", ").collect();
            assert_eq!((asked.method.as_str(), got), (method, types.to_vec()));
            assert_eq!(asked.all("accept-encoding"), ["identity"]);
        }
    }
    bed.get(MANIFEST, &[]).await;
    assert_eq!(bed.registry.last().all("accept-encoding"), ["identity"]);
    assert!(bed.registry.last().all("accept").is_empty(), "nothing is made up");
}

/// PULL-19, PULL-21, PULL-22: an answer keeps its length; one that the registry encoded all the same passes with
/// its encoding and its very bytes, and without a length.
#[tokio::test]
async fn a_body_keeps_its_bytes_and_its_length_unless_it_is_encoded() {
    let bed = PullBed::open().await;
    for (encoding, length) in [(None, Some("20000")), (Some("gzip"), None), (Some("identity"), Some("20000"))]
    {
        // What is in it is not looked at: that it is no gzip shows that nothing decodes it.
        let body: Vec<u8> = (0..20_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let mut headers = vec![("Content-Type", "application/octet-stream")];
        headers.extend(encoding.map(|encoding| ("Content-Encoding", encoding)));
        bed.registry.answer(reply("200 OK", &headers, &body));
        for answer in bed.over_both("GET", &blob(), &[("Accept-Encoding", "gzip")]).await {
            assert_eq!((answer.status, answer.complete), (200, true));
            assert_eq!(answer.get("content-length"), length, "{encoding:?}");
            if encoding != Some("identity") {
                assert_eq!(answer.get("content-encoding"), encoding);
            }
            assert!(answer.body == body, "the body of an answer with encoding {encoding:?} differs");
        }
    }
}

/// PULL-15, PULL-21: the answer to HEAD has the length, type, digest and tag that the registry stated, and none
/// that it did not; the connection goes on.
#[tokio::test]
async fn head_states_what_the_registry_stated() {
    let bed = PullBed::open().await;
    let stated = [
        ("Content-Type", MANIFEST_TYPE),
        ("Docker-Content-Digest", DIGEST),
        ("Docker-Distribution-Api-Version", "registry/2.0"),
        ("ETag", "\"tag\""),
        ("Content-Length", "1234"),
    ];
    bed.registry.script(move |exchange| async move {
        let answer = match (exchange.asked.method.as_str(), exchange.asked.target.as_str()) {
            ("HEAD", MANIFEST) => head("200 OK", &stated),
            ("HEAD", _) => {
                head("200 OK", &[("Docker-Content-Digest", DIGEST), ("Transfer-Encoding", "chunked")])
            }
            _ => reply("200 OK", &[], b"ok"),
        };
        exchange.answer(answer).await
    });
    let mut puller = Puller::dial(&bed.h1()).await;
    for _ in 0..2 {
        puller.ask("HEAD", MANIFEST, &[]).await;
        let answer = puller.answer("HEAD").await;
        assert_eq!(answer.status, 200);
        for (name, value) in stated {
            assert_eq!(answer.all(name), [value], "{name}");
        }
        puller.ask("HEAD", &blob(), &[]).await;
        let answer = puller.answer("HEAD").await;
        assert_eq!((answer.status, answer.get("content-length")), (200, None), "{answer:?}");
        assert_eq!(answer.get("docker-content-digest"), Some(DIGEST));
        puller.ask("GET", "/v2/", &[]).await;
        assert_eq!(puller.answer("GET").await.text(), "ok");
    }
    let over_h2 = pull(&bed.h2(), "HEAD", MANIFEST, &[]).await;
    assert_eq!((over_h2.get("content-length"), over_h2.get("etag")), (Some("1234"), Some("\"tag\"")));
    let over_h2 = pull(&bed.h2(), "HEAD", &blob(), &[]).await;
    assert_eq!((over_h2.status, over_h2.get("content-length")), (200, None));
    assert!(bed.registry.asked().iter().any(|asked| asked.method == "HEAD"));
}

/// PULL-15, PULL-21, PULL-25: ranges and conditions travel as written, and 206, 416 and 304 come back with what
/// makes them usable; the connection goes on after a 304.
#[tokio::test]
async fn ranges_and_conditions_travel_both_ways() {
    let bed = PullBed::open().await;
    bed.registry.script(|exchange| async move {
        let range = [("Content-Range", "bytes 100-109/1000"), ("Accept-Ranges", "bytes")];
        let answer = match (exchange.asked.get("range"), exchange.asked.get("if-none-match")) {
            (Some("bytes=100-"), _) => reply("206 Partial Content", &range, b"0123456789"),
            (Some(_), _) => reply("416 Range Not Satisfiable", &[("Content-Range", "bytes */1000")], b""),
            (None, Some(_)) => head("304 Not Modified", &[("ETag", "\"x\"")]),
            (None, None) => reply("200 OK", &[], b"n"),
        };
        exchange.answer(answer).await
    });
    for answer in bed.over_both("GET", &blob(), &[("Range", "bytes=100-"), ("If-Range", "\"x\"")]).await {
        assert_eq!((answer.status, answer.get("content-range")), (206, Some("bytes 100-109/1000")));
        assert_eq!((answer.text().as_str(), answer.get("accept-ranges")), ("0123456789", Some("bytes")));
        assert_eq!(answer.get("content-length"), Some("10"));
    }
    assert_eq!(bed.registry.last().all("if-range"), ["\"x\""]);
    for answer in bed.over_both("GET", &blob(), &[("Range", "bytes=5000-")]).await {
        assert_eq!((answer.status, answer.get("content-range")), (416, Some("bytes */1000")));
    }
    let mut puller = Puller::dial(&bed.h1()).await;
    puller.ask("GET", MANIFEST, &[("If-None-Match", "\"x\"")]).await;
    let answer = puller.answer("GET").await;
    assert_eq!((answer.status, answer.get("etag")), (304, Some("\"x\"")));
    puller.ask("GET", "/v2/", &[]).await;
    assert_eq!(puller.answer("GET").await.text(), "n");
    let over_h2 = pull(&bed.h2(), "GET", MANIFEST, &[("If-None-Match", "\"x\"")]).await;
    assert_eq!((over_h2.status, over_h2.complete, over_h2.body.len()), (304, true, 0));
}

/// PULL-01, PULL-07, PULL-08: what the registry decides is passed on, for every status with its body and its
/// `Retry-After`; the relay neither asks again, nor keeps an answer, nor judges by itself.
#[tokio::test]
async fn the_registrys_decision_passes_as_it_is() {
    let bed = PullBed::open().await;
    let mut count = bed.registry.count();
    for (status, code) in [
        ("401 Unauthorized", "UNAUTHORIZED"),
        ("403 Forbidden", "DENIED"),
        ("404 Not Found", "MANIFEST_UNKNOWN"),
        ("429 Too Many Requests", "TOOMANYREQUESTS"),
        ("500 Internal Server Error", "UNKNOWN"),
        ("503 Service Unavailable", "UNAVAILABLE"),
    ] {
        let body = format!(r#"{{"errors":[{{"code":"{code}"}}]}}"#);
        let headers = [("Retry-After", "17"), ("Content-Type", "application/json")];
        bed.registry.answer(reply(status, &headers, body.as_bytes()));
        for answer in bed.over_both("GET", MANIFEST, &[]).await {
            assert_eq!((answer.status.to_string().as_str(), answer.text()), (&status[..3], body.clone()));
            assert_eq!(
                (answer.get("retry-after"), answer.get("content-type")),
                (Some("17"), Some("application/json"))
            );
            count += 1;
        }
        assert_eq!(bed.registry.count(), count, "asked once for each pull");
    }
    for body in ["first", "second"] {
        let kept = [("Cache-Control", "max-age=3600"), ("ETag", "\"same\"")];
        bed.registry.answer(reply("200 OK", &kept, body.as_bytes()));
        assert_eq!(bed.get(MANIFEST, &[]).await.text(), body);
    }
    assert_eq!(bed.registry.count(), count + 2);
}

/// PULL-01, PULL-02: a query chooses nothing here and travels byte for byte: the `ns` of containerd, a listing's
/// page, a referrer's type.
#[tokio::test]
async fn a_query_travels_as_written() {
    let bed = PullBed::open().await;
    bed.registry.answer(reply("404 Not Found", &[], b"{}"));
    for path in [
        format!("{MANIFEST}?ns=other.registry.test%3A5000"),
        format!("/v2/a/b/referrers/{DIGEST}?artifactType=application%2Fx"),
        "/v2/a/b/tags/list?last=%2Fx%20y&n=%2e%2e/".to_owned(),
        "/v2/_catalog?".to_owned(),
        "/v2/?a=;&b=\\".to_owned(),
    ] {
        for target in [bed.h1(), bed.h2()] {
            if path.contains('\\') && target.tls.alpn_protocols[0] == b"h2" {
                // The client library itself makes no such target.
                continue;
            }
            let answer = pull(&target, "GET", &path, &[]).await;
            assert_eq!((answer.status, bed.registry.last().target.as_str()), (404, path.as_str()));
        }
    }
}

/// PULL-05, PULL-06, PULL-25: the registry sees its own `Host`, the node's own credential and nothing of the
/// node's that is no part of a pull; without a credential it sees none. Nothing foreign comes back.
#[tokio::test]
async fn only_what_a_pull_needs_passes() {
    let bed = PullBed::open().await;
    let foreign = [("Set-Cookie", "s=1"), ("Keep-Alive", "timeout=5"), ("Server", "x"), ("X-Own", "1")];
    let headers: Vec<_> = foreign.into_iter().chain([("Docker-Content-Digest", DIGEST)]).collect();
    bed.registry.answer(reply("200 OK", &headers, b"x"));
    let own = [
        ("Cookie", "a=b"),
        ("X-Forwarded-For", "192.0.2.9"),
        ("X-Forwarded-Host", "evil.test"),
        ("Forwarded", "host=evil.test"),
        ("X-Hop", "1"),
        ("Proxy-Authorization", "Basic eA=="),
        ("Via", "1.1 evil.test"),
        ("Origin", "https://evil.test"),
    ];
    let sent: Vec<_> =
        own.into_iter().chain([("Authorization", "Bearer tok"), ("User-Agent", "c/1")]).collect();
    let mut of_h1 = sent.clone();
    of_h1.extend([("Connection", "keep-alive, X-Hop"), ("TE", "trailers"), ("Host", "evil.test")]);
    let answers =
        [pull(&bed.h1(), "GET", MANIFEST, &of_h1).await, pull(&bed.h2(), "GET", MANIFEST, &sent).await];
    let asked = bed.registry.asked();
    for (answer, asked) in answers.iter().zip(&asked[asked.len() - 2..]) {
        assert_eq!(asked.all("host"), [&bed.cloudly.url()["https://".len()..]]);
        assert_eq!(asked.all("authorization"), ["Bearer tok"]);
        let mut names = asked.names();
        names.retain(|name| {
            !["host", "authorization", "accept-encoding", "user-agent"].contains(&name.as_str())
        });
        assert_eq!(names, [] as [&str; 0]);
        assert_eq!((answer.status, answer.get("docker-content-digest")), (200, Some(DIGEST)));
        for (name, _) in foreign.iter().filter(|(name, _)| *name != "Keep-Alive") {
            assert_eq!(answer.get(name), None, "{name} came back");
        }
    }
    bed.get(MANIFEST, &[]).await;
    assert_eq!(bed.registry.last().get("authorization"), None, "the relay has no credential of its own");
    // What the node calls the relay is no origin.
    let written = format!(r#"Bearer realm="{}/v2/token",service="s""#, bed.cloudly.url());
    bed.registry.answer(reply("401 Unauthorized", &[("WWW-Authenticate", &written)], b""));
    let answer = bed.get(MANIFEST, &[("Host", "evil.test")]).await;
    let expected = format!(r#"Bearer realm="{}/v2/token",service="s""#, bed.setup.origin());
    assert_eq!(answer.all("www-authenticate"), [expected.as_str()]);
}

/// PULL-18, PULL-21: an answer without a length passes whole, whether its chunks or its connection end it; and
/// neither an expectation of the node nor an interim answer of the registry is in the way.
#[tokio::test]
async fn every_framing_of_an_answer_passes() {
    let bed = PullBed::open().await;
    let body = "z".repeat(70_000);
    bed.registry
        .answer_and_close([head("200 OK", &[("Connection", "close")]), body.clone().into_bytes()].concat());
    for answer in bed.over_both("GET", &blob(), &[]).await {
        assert!((answer.status, answer.complete) == (200, true) && answer.text() == body, "{answer:?}");
    }
    let chunked = head("200 OK", &[("Transfer-Encoding", "chunked")]);
    bed.registry.answer([chunked, b"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n".to_vec()].concat());
    for answer in bed.over_both("GET", &blob(), &[]).await {
        assert_eq!((answer.status, answer.complete, answer.text().as_str()), (200, true, "abcdefg"));
    }
    for interim in ["HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n"] {
        bed.registry.answer([interim.as_bytes().to_vec(), reply("200 OK", &[], b"x")].concat());
        for answer in bed.over_both("GET", &blob(), &[]).await {
            assert_eq!((answer.status, answer.text().as_str()), (200, "x"), "{interim}");
        }
    }
    bed.registry.answer(reply("200 OK", &[], b"x"));
    let expecting = bed.get(&blob(), &[("Expect", "100-continue")]).await;
    assert_eq!((expecting.status, expecting.text().as_str()), (200, "x"));
    assert_eq!(bed.registry.last().get("expect"), None);
    bed.registry.answer(head("204 No Content", &[]));
    assert_eq!(bed.get("/v2/", &[]).await.status, 204);
}

/// PULL-18: the first part of a body reaches the node before the registry sends the second, and a body of many
/// parts arrives in order.
#[tokio::test]
async fn a_body_arrives_as_it_comes() {
    let bed = PullBed::open().await;
    for target in [bed.h1(), bed.h2()] {
        let go = std::sync::Arc::new(tokio::sync::Notify::new());
        let gone_on = go.clone();
        bed.registry.script(move |mut exchange| {
            let go = gone_on.clone();
            async move {
                exchange.send(head("200 OK", &[("Content-Length", "20")])).await.ok()?;
                exchange.send("0123456789").await.ok()?;
                go.notified().await;
                exchange.answer("abcdefghij").await
            }
        });
        if target.tls.alpn_protocols[0] == b"h2" {
            let mut pull = H2Pull::begin(&target, "GET", &blob(), &[]).await;
            while pull.pulled.body.len() < 10 {
                let part = within(BOUND, "first part of a body over HTTP/2", pull.more()).await.unwrap();
                assert!(part, "nothing arrives before the rest is sent");
            }
            assert_eq!(pull.pulled.text(), "0123456789");
            go.notify_one();
            let pulled = within(BOUND, "rest of a body over HTTP/2", pull.whole()).await.unwrap();
            assert_eq!(pulled.text(), "0123456789abcdefghij");
            continue;
        }
        let mut puller = Puller::dial(&target).await;
        puller.ask("GET", &blob(), &[]).await;
        let began = within(BOUND, "head of an answer", puller.head()).await.unwrap();
        assert!(puller.wait_bytes(10).await, "nothing arrives before the rest is sent");
        assert_eq!(puller.pending(), b"0123456789");
        go.notify_one();
        assert_eq!(puller.body("GET", began).await.text(), "0123456789abcdefghij");
    }
}
