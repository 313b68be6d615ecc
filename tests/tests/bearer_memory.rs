//! The bearer in the supervisor's own memory: it lies where nobody reads it, root neither, and what an exchange made of
//! it is gone once the exchange has ended, however that was: ARC-02, ARC-23, CFG-13, SES-07, SES-20.
//!
//! Reading another process's memory takes root. Without it these tests fail; none of them is left out.
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

#[path = "scene/scene.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod scene;

use std::time::Duration;

use coreflow_tests::attacks::refuse_on_this_thread;
use coreflow_tests::authority::Authority;
use coreflow_tests::cloudly::{AnswerForm, Cloudly, Step};
use coreflow_tests::envelope::random_hex;
use coreflow_tests::memory::{Place, search};
use coreflow_tests::relay::{BearerPlace, Relay, RelaySetup};
use coreflow_tests::waiting::{BOUND, poll};
use futures_util::future::join_all;
use scene::Scene;

const EXCHANGE: &str = "getIdentityByToken";
const SYS_MEMFD_SECRET: i64 = 447;

/// A bearer that reads otherwise in JSON, in base64 and percent-encoded.
fn escaped_bearer() -> String {
    format!("cb/{}\"{}\\{}\t=", random_hex::<20>(), random_hex::<20>(), random_hex::<20>())
}

/// The runs of the bearer in the supervisor's readable memory.
fn copies(relay: &Relay, bearer: &str) -> Vec<Place> {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test reads the memory of another process: run it as root"
    );
    let seen = search(relay.pid(), b"COREFLOW_RELAY_BIND_HOSTNAME=127.0.0.1").unwrap();
    assert!(!seen.found.is_empty(), "the search does not even find the supervisor's environment");
    search(relay.pid(), bearer.as_bytes()).unwrap().found
}

/// A copy that is on its way in an exchange is gone a moment later, one that was left behind is not.
async fn assert_none_survives(relay: &Relay, bearer: &str, after: &str) {
    let mut last = Vec::new();
    let none = poll(BOUND, "memory without the bearer", || {
        last = copies(relay, bearer);
        last.is_empty().then_some(())
    })
    .await;
    assert!(none.is_ok(), "after {after}: {last:?}");
}

/// A relay with this bearer at that place, whose identities are renewed after a moment.
async fn open(bearer: &str, prepare: impl FnOnce(RelaySetup) -> RelaySetup) -> Scene {
    let prepare = |cloudly: &Cloudly, setup: RelaySetup| {
        cloudly.change(|settings| {
            bearer.clone_into(&mut settings.bearer);
            settings.identity_lifetime = Duration::from_secs(4);
            // The answer brings the whole request back, and the bearer with it.
            settings.form = AnswerForm::Echo8;
        });
        prepare(setup.facing(cloudly))
    };
    let scene = Scene::start(prepare).await;
    scene.relay.wait_open().await.unwrap();
    scene.cloudly.wait_accepted(1).await.unwrap();
    scene
}

/// ARC-02, ARC-23, CFG-13, SES-07: after a start and after renewals, wherever the bearer came from, the supervisor's
/// memory holds it in no form but in the pages that the kernel shows nobody.
#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_leaves_no_copy_of_the_bearer() {
    for place in [BearerPlace::Credential, BearerPlace::Environment, BearerPlace::Overlay] {
        let bearer = escaped_bearer();
        let scene = open(&bearer, |mut setup| {
            setup.bearer_place = place;
            setup
        })
        .await;
        scene.relay.wait_line("INFO supervisor: the bearer is held in secret memory").await.unwrap();
        assert_none_survives(&scene.relay, &bearer, &format!("a start with it in {place:?}")).await;
        let exchanges = scene.cloudly.exchanges();
        scene.cloudly.wait_for(EXCHANGE, exchanges + 1).await.unwrap();
        scene.cloudly.wait_accepted(2).await.unwrap();
        assert_none_survives(&scene.relay, &bearer, &format!("a renewal with it from {place:?}")).await;
    }
}

/// Has an open relay's exchanges fail from here on by what `fail` does, and looks after one that did.
async fn failing(name: &str, fail: impl AsyncFnOnce(&Cloudly, &str)) {
    let bearer = escaped_bearer();
    let scene = open(&bearer, |setup| setup).await;
    fail(&scene.cloudly, &bearer).await;
    let failed = || (scene.count("no identity: ") > 0).then_some(());
    poll(2 * BOUND, name, failed).await.unwrap();
    assert_none_survives(&scene.relay, &bearer, name).await;
}

/// ARC-02, ARC-23, SES-20: exchanges that are refused, cut, answered with something else or not at all leave none.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_exchange_leaves_no_copy_of_the_bearer() {
    let elsewhere = "https://localhost:1/typedrequest".to_owned();
    let steps = [
        ("a page of a proxy", Step::HtmlBadGateway),
        ("a cut answer", Step::CutMidAnswer),
        ("a redirect", Step::Redirect(307, elsewhere)),
        ("an answer of another kind", Step::Answer("{}".to_owned())),
        ("no answer", Step::Never),
    ];
    let steps = steps.map(|(name, step)| failing(name, async |cloudly, _| cloudly.always(EXCHANGE, step)));
    let refused = failing("a refusal that repeats the bearer", async |cloudly, bearer| {
        cloudly.always(EXCHANGE, Step::refuse(&format!("identity-token-refused: {bearer}")));
    });
    // Nobody listens: the exchange fails before a byte is sent.
    let gone = failing("nobody there", async |cloudly, _| cloudly.go_away().await);
    tokio::join!(join_all(steps), refused, gone);
}

/// ARC-23: where the kernel or the unit refuses secret memory, the log says so by name, and the bearer lies in locked
/// pages of its own, once: the search that finds nothing else finds it there. Pages that cannot even be locked are
/// named as that.
#[tokio::test(flavor = "multi_thread")]
async fn without_secret_memory_the_log_says_so_and_there_is_one_copy() {
    for (refused, held) in [
        (&[SYS_MEMFD_SECRET][..], "locked memory"),
        (&[SYS_MEMFD_SECRET, libc::SYS_mlock], "memory that is neither secret nor locked"),
    ] {
        let authority = Authority::new();
        let setup = RelaySetup::new(&authority);
        let mut settings = setup.cloudly_settings();
        // Of letters and digits alone, so that one copy reads in one form.
        settings.bearer = random_hex::<40>();
        let bearer = settings.bearer.clone();
        let cloudly = Cloudly::start(&authority, settings).await;
        let setup = setup.facing(&cloudly);
        // A filter binds a thread and what it starts.
        let start = move || {
            refused.iter().for_each(|call| refuse_on_this_thread(*call, libc::ENOSYS));
            setup.start()
        };
        let relay = std::thread::spawn(start).join().unwrap();
        relay.wait_open().await.unwrap();
        cloudly.wait_accepted(1).await.unwrap();
        let told = format!("WARN supervisor: the bearer is held in {held}: the kernel or the unit gives no");
        relay.wait_line(&told).await.unwrap();
        let mut last = Vec::new();
        let one = poll(BOUND, "one copy of the bearer", || {
            last = copies(&relay, &bearer);
            matches!(&last[..], [one] if one.offset % 4096 == 0 && one.length == bearer.len()).then_some(())
        })
        .await;
        assert!(one.is_ok(), "with {held}: {last:?}");
    }
}
