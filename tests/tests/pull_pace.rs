//! The pace of pulls: slow is no fault of either side, and thirty seconds without a byte are the end of what
//! stands still, and of nothing else (PULL). These tests wait for those seconds, each for all its cases at once.
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use coreflow_tests::pull_bed::PullBed;
use coreflow_tests::puller::{H2Node, H2Pull, Puller};
use coreflow_tests::registry::{Registry, head};
use coreflow_tests::stranger::Stranger;
use coreflow_tests::waiting::{poll, within};

/// The relay's own: so long nothing may move.
const STANDSTILL: Duration = Duration::from_secs(30);
/// Over that: the kernel's probes of a full window still move bytes, each after twice the time of the one before,
/// so that the last may do so twice the standstill later; and the relay looks some seconds apart.
const STALL: Duration = Duration::from_secs(150);

/// The targets whose exchanges the relay has ended at the registry, each once it has.
#[derive(Clone, Default)]
struct Ended(Arc<Mutex<Vec<String>>>);

impl Ended {
    /// The registry answers without an end: `silent` paths stop after a word, `trickle` ones go on by a byte each
    /// second, and all others as fast as they are taken.
    fn at(registry: &Registry) -> Self {
        let ended = Self::default();
        let noted = ended.clone();
        registry.script(move |mut exchange| {
            let noted = noted.clone();
            async move {
                let target = exchange.asked.target.clone();
                exchange.send(head("200 OK", &[("Content-Length", "1000000000")])).await.ok()?;
                match target.as_str() {
                    "/v2/silent" => {
                        exchange.send("half").await.ok()?;
                        exchange.left().await;
                    }
                    "/v2/trickle" => {
                        while exchange.send("x").await.is_ok() {
                            tokio::time::sleep(Duration::from_secs(1)).await;
                        }
                    }
                    _ => while exchange.send(vec![b'q'; 64 << 10]).await.is_ok() {},
                }
                noted.0.lock().unwrap().push(target);
                None
            }
        });
        ended
    }

    fn has(&self, target: &str) -> bool {
        self.0.lock().unwrap().iter().any(|ended| ended == target)
    }

    async fn wait(&self, target: &str) {
        let what = format!("end of {target} at the registry");
        poll(STALL, &what, || self.has(target).then_some(())).await.unwrap();
    }
}

/// PULL-18, PULL-30: thirty seconds without a byte end a pull, whether the registry is silent or the node does not
/// read; a registry that trickles and a node that reads slowly but steadily are bounded by nothing.
#[tokio::test]
async fn a_pull_may_be_slow_and_may_not_stand_still() {
    const PART: u64 = 64 << 10;
    let bed = PullBed::open().await;
    let ended = Ended::at(&bed.registry);
    let silent = async {
        let answer = bed.get("/v2/silent", &[]).await;
        assert!(answer.status == 200 && !answer.complete && answer.text() == "half", "{answer:?}");
        ended.wait("/v2/silent").await;
    };
    let unread = async {
        let mut puller = Puller::dial(&bed.h1()).await;
        puller.ask("GET", "/v2/unread", &[]).await;
        assert_eq!(puller.head().await.status, 200);
        ended.wait("/v2/unread").await;
        assert!(puller.ended().await);
    };
    let steady = async {
        let mut puller = Puller::dial(&bed.h1()).await;
        puller.ask("GET", "/v2/steady", &[]).await;
        assert_eq!(puller.head().await.status, 200);
        for _ in 0..8 {
            // The node's own pace.
            tokio::time::sleep(Duration::from_secs(5)).await;
            let mut arrived = 0;
            while arrived < PART {
                arrived += puller.pass_over().await.expect("a slow node is not cut");
            }
        }
        // What a cut left in the sockets would be read for minutes; at the registry a cut shows at once.
        assert!(!ended.has("/v2/steady"), "a slow node's pull was ended");
    };
    let mut trickle = Puller::dial(&bed.h1()).await;
    trickle.ask("GET", "/v2/trickle", &[]).await;
    assert_eq!(trickle.head().await.status, 200);
    let all = async { tokio::join!(silent, unread, steady) };
    within(STALL + STANDSTILL, "ends of pulls that stand still", all).await.unwrap();
    let arrived = trickle.pending().len();
    assert!(trickle.wait_bytes(arrived + 35).await, "a slow pull goes on");
}

/// Reads until `count` bytes more are there; false if the body ends before.
async fn read_on(pull: &mut H2Pull, count: usize) -> bool {
    let enough = pull.pulled.body.len() + count;
    while pull.pulled.body.len() < enough {
        if !pull.more().await {
            return false;
        }
    }
    true
}

/// PULL-18, PULL-30: of the pulls that share one connection of HTTP/2, each whose node opens no window, from its
/// first byte on or after 16 KiB, is reset after thirty seconds, while one that is read goes on, and the connection
/// serves the next.
#[tokio::test]
async fn a_stream_that_stands_still_is_reset_and_no_other_is() {
    const WINDOW: u32 = 16 << 10;
    let bed = PullBed::open().await;
    let ended = Ended::at(&bed.registry);
    let dial = async |window| {
        let stream = Stranger::new(bed.h2(), 2).tls().await.unwrap();
        H2Node::over(stream, &bed.setup.host_name, Some(window)).await
    };
    let (mut closed, mut open) = (dial(0).await, dial(WINDOW).await);
    let begin = Instant::now();
    let mut still = Vec::new();
    for number in 0..3 {
        let targets = [format!("/v2/no-window/{number}"), format!("/v2/unread/{number}")];
        for (node, target) in [&mut closed, &mut open].into_iter().zip(targets) {
            let pull = node.get(&target).await;
            assert_eq!(pull.pulled.status, 200);
            still.push((target, pull));
        }
    }
    let mut read = open.get("/v2/read").await;
    let reading = async {
        while read_on(&mut read, 1000).await {
            // The node's own pace.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let resets = async {
        for (target, _) in &still {
            ended.wait(target).await;
        }
    };
    tokio::select! {
        () = resets => {}
        () = reading => panic!("the pull that is read ended"),
    }
    assert!(begin.elapsed() >= STANDSTILL, "after {:?} already", begin.elapsed());
    for (target, pull) in still {
        let pulled = within(STALL, "reset of a stream", pull.whole()).await.unwrap();
        assert!(pulled.body.len() <= WINDOW as usize, "{target}: {pulled:?}");
    }
    assert!(!ended.has("/v2/read"), "the pull that is read was ended");
    let going_on = read_on(&mut read, 100 << 10);
    assert!(within(STALL, "more of the pull that is read", going_on).await.unwrap(), "it was cut");
    let mut next = open.get("/v2/next").await;
    assert!(read_on(&mut next, 1000).await, "the connection serves no more");
}
