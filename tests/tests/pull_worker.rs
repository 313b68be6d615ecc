//! Pulld is ready for pulls before relayd has finished its start, however long that takes (PULL).

use coreflow_tests::cloudly::{Cloudly, Gate, Step};
use coreflow_tests::pull_bed::{MANIFEST, PullBed};
use coreflow_tests::registry::reply;
use nix::sys::signal::Signal;

/// Cloudly's answer without which the listener does not open.
const CERTIFICATE: &str = "getCertificateForDomain";
/// What pulld says of its end of the link, and relayd of the other.
const GREETED: &str = "DEBUG pulld: the link to relayd is greeted";
const SERVES: &str = "DEBUG relayd: pulld serves";
/// What each relayd says once its start is over.
const OPEN: &str = "INFO relayd: the listener has places";

/// A gate before the certificate from now on.
fn hold(cloudly: &Cloudly) -> Gate {
    let gate = Gate::default();
    cloudly.always(CERTIFICATE, Step::When(gate.clone(), Box::new(Step::Ordinary)));
    gate
}

/// Waits until both ends of the link between pulld and relayd were greeted `count` times.
async fn wait_linked(bed: &PullBed, count: usize) {
    bed.wait_lines(GREETED, count).await;
    bed.wait_lines(SERVES, count).await;
}

/// PULL-29: while a start of relayd is held up, the first one or one after it was killed, the link to pulld is
/// greeted all the same, and greeted anew when pulld is lost meanwhile; once the start goes on, a pull succeeds
/// over that link.
#[tokio::test]
async fn pulls_are_served_after_a_start_that_takes_long() {
    let mut gate = None;
    let bed = PullBed::start(|_, _| {}, |cloudly| gate = Some(hold(cloudly))).await;
    bed.registry.answer(reply("200 OK", &[], b"x"));
    bed.cloudly.wait_for(CERTIFICATE, 1).await.unwrap();
    bed.relay.signal(Signal::SIGUSR1);
    bed.relay.wait_line("the log level is TRACE").await.unwrap();
    // The first links were greeted before the log was verbose; those that follow are seen.
    let killed = bed.relay.kill_worker("pulld");
    bed.relay.wait_worker("pulld", killed).await.unwrap();
    wait_linked(&bed, 1).await;
    assert_eq!((bed.cloudly.calls_of(CERTIFICATE).len(), bed.lines(OPEN)), (1, 0), "the start is held up");
    gate.take().expect("Cloudly was given one").open();
    bed.wait_lines(OPEN, 1).await;
    for answer in bed.over_both("GET", MANIFEST, &[]).await {
        assert_eq!((answer.status, answer.text().as_str()), (200, "x"), "{answer:?}");
    }

    let (gate, asked) = (hold(&bed.cloudly), bed.cloudly.calls_of(CERTIFICATE).len());
    let (links, opened) = (bed.lines(SERVES), bed.lines(OPEN));
    let killed = bed.relay.kill_worker("relayd");
    bed.relay.wait_worker("relayd", killed).await.unwrap();
    bed.cloudly.wait_for(CERTIFICATE, asked + 1).await.unwrap();
    wait_linked(&bed, links + 1).await;
    assert_eq!(bed.lines(OPEN), opened, "the start is held up");
    gate.open();
    bed.wait_lines(OPEN, opened + 1).await;
    for answer in bed.over_both("GET", MANIFEST, &[]).await {
        assert_eq!((answer.status, answer.text().as_str()), (200, "x"), "{answer:?}");
    }
    assert_eq!(bed.lines(GREETED), links + 1, "over the link that was greeted while the start was held up");
}
