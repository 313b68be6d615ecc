//! What a pull carries that is secret: the node's token, the addresses a registry signs, and the relay's own
//! bearer, which has no part in it (PULL).

use std::collections::BTreeSet;

use coreflow_tests::disclosure::Marks;
use coreflow_tests::free_port::free_port;
use coreflow_tests::memory::search;
use coreflow_tests::pull_bed::{MANIFEST, PullBed};
use coreflow_tests::puller::{H2Pull, Puller, pull};
use coreflow_tests::registry::{head, reply};
use nix::sys::signal::Signal;

/// LOG-04, PULL-06, PULL-26, PULL-27, PULL-28: at the most verbose level no line holds a token, a challenge, a
/// signed address, a body or a path of a pull, whether it passes, fails, is cut or refused; and the relay's bearer
/// is in nothing that the registry was sent.
#[tokio::test]
async fn nothing_of_a_pull_is_written() {
    let mut marks = Marks::default();
    let bearer = marks.secret("bearer");
    let bed = PullBed::open_with(|_, settings| settings.bearer = bearer).await;
    bed.relay.signal(Signal::SIGUSR1);
    bed.relay.wait_line("the log level is TRACE").await.unwrap();
    let mut secret = |name: &str| marks.secret(name).replace(['/', '+', '='], "-");
    let (token, path, query) = (secret("token"), secret("path"), secret("query"));
    let (signature, scope, body) = (secret("Location"), secret("WWW-Authenticate"), secret("body"));
    let (realm, link, warning) = (secret("foreign realm's path"), secret("Link"), secret("other header"));
    for (name, value) in [
        ("token", &token),
        ("path", &path),
        ("query", &query),
        ("Location", &signature),
        ("WWW-Authenticate", &scope),
        ("body", &body),
        ("foreign realm's path", &realm),
        ("Link", &link),
        ("other header", &warning),
    ] {
        marks.add(name, value);
    }
    let up = bed.cloudly.url();
    let own = format!(r#"Bearer realm="{up}/{realm}",service="{scope}",scope="{scope}""#);
    let foreign = format!(r#"Bearer realm="https://auth.third.test/{realm}?x={scope}",service="{scope}""#);
    let broken = format!(r#"Bearer realm="{scope},,,=""#);
    let location = format!("{up}/v2/blob?sig={signature}");
    let listing = format!("<{up}/v2/x?last={link}>; rel=\"next\"");
    let target = format!("/v2/{path}/blobs/{path}?q={query}");
    let authorization = format!("Bearer {token}");
    let headers = [("Authorization", authorization.as_str()), ("User-Agent", &token), ("Cookie", &token)];
    let answers = [
        reply(
            "401 Unauthorized",
            &[("WWW-Authenticate", &own), ("WWW-Authenticate", &foreign)],
            body.as_bytes(),
        ),
        reply("401 Unauthorized", &[("WWW-Authenticate", &broken)], body.as_bytes()),
        reply("307 Temporary Redirect", &[("Location", &location), ("Link", &listing)], b""),
        reply("200 OK", &[("Warning", &warning), ("X-Other", &warning)], body.repeat(2000).as_bytes()),
        reply("500 Oops", &[("Content-Length", "1000000")], body.as_bytes()),
        format!("{body}\r\n\r\n").into_bytes(),
        head(&format!("200 {body}"), &[("Content-Length", &body)]),
        reply("200 OK", &[("ETag", &body.repeat(5000))], b""),
    ];
    let mut said = Vec::new();
    for answer in answers {
        bed.registry.answer_and_close(answer);
        for answer in bed.over_both("GET", &target, &headers).await {
            assert_ne!(answer.status, 0);
            said.extend(answer.refusal());
        }
    }
    for (method, path) in [
        ("POST", target.clone()),
        ("GET", format!("{target}/../x").replace('?', "/")),
        ("GET", format!("/{path}")),
    ] {
        said.extend(
            bed.over_both(method, &path, &headers).await.iter().filter_map(|answer| answer.refusal()),
        );
    }
    let long = format!("Bearer {}", token.repeat(1000));
    said.extend(bed.get(&target, &[("Authorization", &long)]).await.refusal());
    bed.cloudly.go_away().await;
    said.extend(bed.get(&target, &headers).await.refusal());
    let killed = bed.relay.kill_worker("pulld");
    said.extend(bed.get(&target, &headers).await.refusal());
    bed.relay.wait_worker("pulld", killed).await.unwrap();
    bed.cloudly.come_back().await.unwrap();
    bed.registry.answer(reply("200 OK", &[], b"again"));
    bed.wait_served().await;
    assert_eq!(bed.get(&target, &headers).await.text(), "again");

    let written: Vec<String> = bed.relay.lines().into_iter().map(|line| line.text).chain(said).collect();
    for text in &written {
        assert_eq!(marks.found_in(text), BTreeSet::new(), "{text}");
    }
    // The log is verbose, names what it may, and the same search finds what is there.
    assert!(written.iter().any(|line| line.starts_with("DEBUG")), "{written:#?}");
    let third = written.iter().filter(|line| line.contains("https://auth.third.test")).count();
    assert_eq!(third, 1, "{written:#?}");
    assert_eq!(marks.found_in(&format!("Bearer {token}")).len(), 1);
    let mut tokens = 0;
    for asked in bed.registry.asked() {
        let sent = asked.headers.iter().map(|(name, value)| format!("{name}: {value}"));
        for text in sent.chain([asked.target.clone()]) {
            let found = marks.found_in(&text);
            assert!(
                found.iter().all(|(name, _)| name != "bearer"),
                "the relay's bearer went to the registry"
            );
            tokens += usize::from(found.iter().any(|(name, _)| name == "token"));
        }
    }
    assert!(tokens > 10, "the node's own went there");
}

/// PULL-05, PULL-28: a pull's token is in the memory of those it passes through and of no other process.
#[tokio::test]
async fn a_token_is_where_it_passes_and_nowhere_else() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test reads the memory of other users' processes: run it as root"
    );
    let mut marks = Marks::default();
    let token = marks.secret("token");
    // With a hub there is a vpnd.
    let bed = PullBed::open_with(|setup, _| {
        let hub = [("COREFLOW_VPN_BIND_HOSTNAME", "127.0.0.1".to_owned())]
            .into_iter()
            .chain([("COREFLOW_VPN_QUIC_PORT", free_port().to_string())]);
        setup.variables.extend(hub.map(|(name, value)| (name.to_owned(), value)));
    })
    .await;
    let vpnd = bed.relay.wait_worker("vpnd", None).await.unwrap();
    bed.registry.script(|mut exchange| async move {
        exchange.send(head("200 OK", &[("Content-Length", "1000000")])).await.ok()?;
        exchange.send("begun").await.ok()?;
        exchange.left().await;
        None
    });
    let authorization = format!("Bearer {token}");
    let mut held = Puller::dial(&bed.h1()).await;
    held.ask("GET", MANIFEST, &[("Authorization", &authorization)]).await;
    assert_eq!(held.head().await.status, 200);
    let over_h2 = H2Pull::begin(&bed.h2(), "GET", MANIFEST, &[("Authorization", &authorization)]).await;
    assert_eq!(over_h2.pulled.status, 200);
    bed.registry.answer(reply("200 OK", &[], b"x"));
    for _ in 0..5 {
        pull(&bed.h2(), "GET", MANIFEST, &[("Authorization", &authorization)]).await;
    }
    assert_eq!(bed.registry.last().get("authorization"), Some(authorization.as_str()));
    // What each holds for certain: where Cloudly is, which is the supervisor's own setting, and a line of its
    // program.
    let origin = bed.cloudly.url();
    let others =
        [("supervisor", bed.relay.pid(), origin.as_str()), ("vpnd", vpnd, "the link to relayd is greeted")];
    for (name, pid, held) in others {
        let scan = search(pid, token.as_bytes()).unwrap();
        assert!(scan.read > 1 << 20 && scan.found.is_empty(), "{name}: {:?}", scan.found);
        assert!(
            !search(pid, held.as_bytes()).unwrap().found.is_empty(),
            "the search of {name} finds nothing"
        );
    }
    assert_eq!(bed.relay.workers().get("vpnd"), Some(&vpnd), "it was vpnd all along");
    // The same search finds it where it is: in this very process, which is the node.
    assert!(!search(std::process::id(), token.as_bytes()).unwrap().found.is_empty());
}
