//! The bodies of pulls: as fast as the slower of two, cut where they are cut, and nobody's but their own (PULL).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coreflow_tests::bench::cost::memory;
use coreflow_tests::pull_bed::{DIGEST, PullBed};
use coreflow_tests::puller::{H2Pull, Puller, pull};
use coreflow_tests::registry::{Registry, head, reply};
use coreflow_tests::soak::census;
use coreflow_tests::waiting::{BOUND, poll, within};
use tokio::sync::watch;
use tokio::task::JoinSet;

const MIB: u64 = 1 << 20;
/// More than what the sockets on the way of one pull may hold.
const HELD: u64 = 32 * MIB;

fn blob() -> String {
    format!("/v2/a/b/blobs/{DIGEST}")
}

/// The registry answers every blob with `length` bytes, and what it got rid of is counted.
fn pour(registry: &Registry, length: u64) -> Arc<AtomicU64> {
    let counted = Arc::new(AtomicU64::new(0));
    let poured = counted.clone();
    registry.script(move |mut exchange| {
        let counted = poured.clone();
        async move {
            let stated = length.to_string();
            exchange.send(head("200 OK", &[("Content-Length", &stated)])).await.ok()?;
            let part = vec![b'q'; 64 << 10];
            for _ in 0..length / part.len() as u64 {
                exchange.send(&part).await.ok()?;
                counted.fetch_add(part.len() as u64, Ordering::SeqCst);
            }
            Some(exchange)
        }
    });
    counted
}

/// Waits until the count has stood still for a second.
async fn standing(counted: &AtomicU64) -> u64 {
    let still = async {
        loop {
            let before = counted.load(Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            if before > 0 && counted.load(Ordering::SeqCst) == before {
                return before;
            }
        }
    };
    within(BOUND, "registry that is held back", still).await.expect("it is held back")
}

/// PULL-18, PULL-21: a body that ends early never looks whole, whichever way the registry ends it and frames it,
/// be it small or large; and the relay goes on.
#[tokio::test]
async fn a_cut_body_never_looks_whole() {
    let bed = PullBed::open().await;
    for size in [10, 500_000] {
        for framing in ["length", "chunked", "close"] {
            for in_order in [true, false] {
                if framing == "close" && in_order {
                    // That is how such a body ends.
                    continue;
                }
                bed.registry.script(move |mut exchange| async move {
                    let length = (2 * size).to_string();
                    let headers = match framing {
                        "length" => vec![("Content-Length", length.as_str())],
                        "chunked" => vec![("Transfer-Encoding", "chunked")],
                        _ => vec![("Connection", "close")],
                    };
                    exchange.send(head("200 OK", &headers)).await.ok()?;
                    let body = "y".repeat(size);
                    let body = if framing == "chunked" { format!("{size:x}\r\n{body}\r\n") } else { body };
                    exchange.send(body).await.ok()?;
                    if in_order { exchange.close().await } else { exchange.cut() }
                });
                let path = blob();
                let asked = bed.over_both("GET", &path, &[]);
                let answers = within(BOUND, "two answers that are cut", asked).await;
                for answer in answers.expect("a cut is passed on at once") {
                    let cut = answer.status == 200 && !answer.complete && answer.body.len() <= size;
                    let named = answer.refusal().is_some_and(|words| words.ends_with(": closed"));
                    assert!(cut || answer.status == 502 && named, "{size} {framing} {in_order}: {answer:?}");
                }
            }
        }
    }
    bed.registry.answer(reply("200 OK", &[], b"whole"));
    for answer in bed.over_both("GET", &blob(), &[]).await {
        assert_eq!((answer.text().as_str(), answer.complete), ("whole", true));
    }
}

/// PULL-18, PULL-30: nodes that read nothing hold the registry back after a bounded amount, the memory of the
/// relay's processes stays as it is, and others are served; once a node reads on, so does the relay.
#[tokio::test]
async fn a_slow_node_holds_the_registry_back() {
    let bed = PullBed::open().await;
    pull(&bed.h2(), "GET", "/v2/", &[]).await;
    let before = memory(&bed.processes()).unwrap();
    let counted = pour(&bed.registry, 1024 * MIB);
    let mut slow = Vec::new();
    for _ in 0..6 {
        let mut puller = Puller::dial(&bed.h1()).await;
        puller.ask("GET", &blob(), &[]).await;
        assert_eq!(puller.head().await.status, 200);
        slow.push(puller);
    }
    let mut over_h2 = Vec::new();
    for _ in 0..6 {
        over_h2.push(H2Pull::begin(&bed.h2(), "GET", &blob(), &[]).await);
    }
    let taken = standing(&counted).await;
    assert!(taken < 12 * HELD, "the relay took {taken} bytes for nodes that read nothing");
    let grown = memory(&bed.processes()).unwrap().saturating_sub(before);
    assert!(grown < 24 * MIB, "its processes grew by {grown} bytes for twelve nodes that read nothing");
    bed.registry.answer(reply("200 OK", &[], b"quick"));
    for answer in bed.over_both("GET", &blob(), &[]).await {
        assert_eq!(answer.text(), "quick");
    }
    let enough = usize::try_from(2 * HELD).unwrap();
    assert!(slow[0].wait_bytes(enough).await && counted.load(Ordering::SeqCst) > taken, "it reads on");
    let taken = standing(&counted).await;
    while over_h2[0].pulled.body.len() < enough {
        assert!(over_h2[0].more().await);
    }
    assert!(counted.load(Ordering::SeqCst) > taken, "it reads on over HTTP/2");
}

/// PULL-18: what the relay holds at most does not depend on a layer's size.
#[tokio::test]
async fn memory_does_not_grow_with_the_layer() {
    let bed = PullBed::open().await;
    let mut peaks = Vec::new();
    for size in [8 * MIB, 256 * MIB] {
        pour(&bed.registry, size);
        let pulling = async {
            let mut puller = Puller::dial(&bed.h1()).await;
            puller.ask("GET", &blob(), &[]).await;
            let stated = puller.head().await;
            assert_eq!(stated.get("content-length"), Some(size.to_string().as_str()));
            let mut arrived = 0;
            while arrived < size {
                arrived += puller.pass_over().await.expect("the body arrives");
            }
            arrived
        };
        let processes = bed.processes();
        let watching = async {
            let mut peak = 0;
            loop {
                peak = memory(&processes).unwrap().max(peak);
                peaks.truncate(usize::from(size > 8 * MIB));
                peaks.push(peak);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let arrived = tokio::select! {
            arrived = within(Duration::from_secs(120), "large layer", pulling) => arrived.unwrap(),
            () = watching => 0,
        };
        assert_eq!(arrived, size);
    }
    assert!(peaks[1] < peaks[0] + 8 * MIB, "peaks in bytes: {peaks:?}");
}

/// PULL-18, PULL-30: a node that leaves in the middle ends the exchange with the registry, and nothing of it
/// stays behind.
#[tokio::test]
async fn a_node_that_leaves_ends_the_exchange() {
    let bed = PullBed::open().await;
    let descriptors = || {
        let counts = census::take(bed.relay.pid()).into_iter();
        let own = |held: census::Holding| held.descriptors.expect("they are shown to root: run it as root");
        counts.map(|(name, held)| (name, own(held))).collect::<Vec<_>>()
    };
    bed.over_both("GET", &blob(), &[]).await;
    let before = descriptors();
    for _ in 0..3 {
        let idle = bed.registry.open_connections();
        pour(&bed.registry, 1024 * MIB);
        let mut nodes = Vec::new();
        let mut over_h2 = Vec::new();
        for _ in 0..4 {
            let mut puller = Puller::dial(&bed.h1()).await;
            puller.ask("GET", &blob(), &[]).await;
            assert!(puller.wait_bytes(100_000).await);
            nodes.push(puller);
            over_h2.push(H2Pull::begin(&bed.h2(), "GET", &blob(), &[]).await);
            assert!(over_h2.last_mut().unwrap().more().await);
        }
        assert!(bed.registry.open_connections() >= 8);
        // What was open before they came may be of use yet.
        drop((nodes, over_h2));
        poll(BOUND, "end of the exchanges", || (bed.registry.open_connections() <= idle).then_some(()))
            .await
            .unwrap();
        bed.registry.answer(reply("200 OK", &[], b"next"));
        for answer in bed.over_both("GET", &blob(), &[]).await {
            assert_eq!(answer.text(), "next");
        }
    }
    let back = || {
        let now = descriptors();
        now.iter().zip(&before).all(|((_, now), (_, then))| *now <= then + 2).then_some(())
    };
    let after = poll(BOUND, "descriptors as before", back).await;
    assert!(after.is_ok(), "descriptors were {before:?} and are {:?}", descriptors());
}

/// PULL-05, PULL-28: of many nodes at once each gets what its own token asked for, over either protocol.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_what_another_asked_for() {
    let bed = PullBed::open().await;
    bed.registry.script(|mut exchange| async move {
        let token = exchange.asked.get("authorization").unwrap_or_default().to_owned();
        let body = format!("{} for {token};", exchange.asked.target).repeat(3000);
        let challenge = format!("Bearer realm=\"https://third.test\",service=\"{token}\"");
        let length = body.len().to_string();
        let headers = [("Content-Length", length.as_str()), ("WWW-Authenticate", challenge.as_str())];
        exchange.send(head("200 OK", &headers)).await.ok()?;
        let (first, second) = body.split_at(body.len() / 3);
        exchange.send(first).await.ok()?;
        tokio::task::yield_now().await;
        exchange.answer(second).await
    });
    let mut nodes = JoinSet::new();
    for number in 0..32 {
        let target = if number % 2 == 0 { bed.h1() } else { bed.h2() };
        nodes.spawn(async move {
            let token = format!("Bearer token-of-node-{number:02}");
            for turn in 0..6 {
                let path = format!("/v2/node-{number}/blobs/{turn}");
                let answer = pull(&target, "GET", &path, &[("Authorization", &token)]).await;
                assert!(answer.complete && answer.text() == format!("{path} for {token};").repeat(3000));
                let challenge = format!("Bearer realm=\"https://third.test\",service=\"{token}\"");
                assert_eq!(answer.all("www-authenticate"), [challenge.as_str()]);
            }
        });
    }
    while let Some(ended) = within(BOUND * 3, "32 nodes", nodes.join_next()).await.unwrap() {
        ended.unwrap();
    }
    assert_eq!(bed.lines("third.test"), 1);
}

/// PULL-29: a pulld that is killed in the middle of bodies cuts these and nothing else: the node's session and
/// the other processes stay; pulls are refused by name until it is back, and served then.
#[tokio::test]
async fn the_loss_of_pulld_ends_pulls_and_nothing_else() {
    let bed = PullBed::open().await;
    let node = coreflow_tests::pallet::PalletNode::start(coreflow_tests::pallet::Setup::new(
        bed.setup.target(),
        "node-1",
    ));
    node.wait_registered(1).await.unwrap();
    let before = bed.relay.workers();
    pour(&bed.registry, 1024 * MIB);
    let mut puller = Puller::dial(&bed.h1()).await;
    puller.ask("GET", &blob(), &[]).await;
    let began = puller.head().await;
    assert!(puller.wait_bytes(100_000).await);
    let mut over_h2 = H2Pull::begin(&bed.h2(), "GET", &blob(), &[]).await;
    assert!(over_h2.more().await);
    let mut idle = Puller::dial(&bed.h1()).await;

    // What is asked from now on is answered with little.
    bed.registry.answer(reply("200 OK", &[], b"again"));
    let mut killed = bed.relay.kill_worker("pulld");
    let (cut, cut_over_h2) = tokio::join!(
        within(BOUND, "end of a pull", puller.body("GET", began)),
        within(BOUND, "end of a pull over HTTP/2", over_h2.whole())
    );
    for cut in [cut.unwrap(), cut_over_h2.unwrap()] {
        assert!(cut.status == 200 && !cut.complete, "{} bytes look whole", cut.body.len());
    }
    // The delay of a restart doubles, so that the last one leaves seconds without a pulld.
    for _ in 0..3 {
        bed.relay.wait_worker("pulld", killed).await.unwrap();
        killed = bed.relay.kill_worker("pulld");
    }
    idle.ask("GET", &blob(), &[]).await;
    for refused in [idle.answer("GET").await, pull(&bed.h2(), "GET", &blob(), &[]).await] {
        let words = refused.refusal().unwrap_or_default();
        assert!(words.starts_with("pull-worker-unavailable: "), "{refused:?}");
        assert_eq!((refused.status, refused.all("retry-after")), (503, vec!["1"]));
    }
    bed.relay.wait_worker("pulld", killed).await.unwrap();
    bed.wait_served().await;
    for answer in bed.over_both("GET", &blob(), &[]).await {
        assert_eq!(answer.text(), "again");
    }
    let after = bed.relay.workers();
    assert_eq!(after["relayd"], before["relayd"]);
    assert_ne!(after["pulld"], before["pulld"]);
    assert_eq!((node.closes().len(), node.registrations().len()), (0, 1));
    let body = format!(r#"{{"session":{}}}"#, node.binding().unwrap());
    node.request("getRuntimeRegistryCredential", &body).await.unwrap().outcome().unwrap();
}

/// OPS-02, PULL-18: a restart of pulld by command lets a pull that is under way end whole, and begins no other; the
/// next pulld serves.
#[tokio::test]
async fn a_restart_of_pulld_lets_a_pull_under_way_end() {
    const HALF: usize = 100_000;
    let bed = PullBed::open_with(|setup, _| *setup = setup.clone().controlled()).await;
    let (go_on, told) = watch::channel(false);
    bed.registry.script(move |mut exchange| {
        let mut told = told.clone();
        async move {
            let stated = (2 * HALF).to_string();
            exchange.send(head("200 OK", &[("Content-Length", &stated)])).await.ok()?;
            exchange.send(&vec![b'q'; HALF]).await.ok()?;
            told.wait_for(|told| *told).await.ok()?;
            exchange.send(&vec![b'q'; HALF]).await.ok()?;
            Some(exchange)
        }
    });
    let mut puller = Puller::dial(&bed.h1()).await;
    puller.ask("GET", &blob(), &[]).await;
    let began = puller.head().await;
    assert!(puller.wait_bytes(HALF / 2).await);

    let former = bed.relay.workers()["pulld"];
    let (said, whole) = tokio::join!(bed.relay.ctl(&["restart", "pulld"]), async {
        bed.relay.wait_line("the worker is restarted, by command").await.unwrap();
        go_on.send_replace(true);
        within(BOUND, "end of a pull", puller.body("GET", began)).await.unwrap()
    });
    assert_eq!((whole.status, whole.complete, whole.body.len()), (200, true, 2 * HALF));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_ne!(bed.relay.workers()["pulld"], former);
    assert_eq!(bed.lines("pulls do not end in time"), 0);
    bed.registry.answer(reply("200 OK", &[], b"again"));
    bed.wait_served().await;
    assert_eq!(bed.get(&blob(), &[]).await.text(), "again");
}
