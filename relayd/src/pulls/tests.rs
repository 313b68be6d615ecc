//! Exchanges against a pulld that the test plays itself, over a real link.

use std::{io::Write, net::IpAddr};

use coreflow_ipc::{
    link::{LinkError, LinkSender},
    messages::pulls::AnswerHeader,
};
use http_body_util::BodyExt;
use tokio::{io::AsyncReadExt, task::JoinHandle, time::Instant};

use super::*;

/// Pulld's end of the link.
struct Pulld {
    sender: LinkSender<PulldToRelayd>,
    receiver: LinkReceiver<RelaydToPulld>,
    streams: BTreeMap<StreamId, StdStream>,
}

type Outcome = Result<(PullAnswer, PullBody), PullFailure>;

impl Pulld {
    async fn linked(pulls: &Arc<Pulls>) -> Self {
        static LINKS: AtomicU64 = AtomicU64::new(1);
        let (ours, theirs) = StdStream::pair().unwrap();
        let (serving, number) = (Arc::clone(pulls), LINKS.fetch_add(1, Ordering::Relaxed));
        tokio::spawn(async move { serving.serve(number, ours.into()).await });
        let (sender, receiver) =
            greet(theirs.into(), Descriptors::Accepted, Role::Pulld, Role::Relayd).await.unwrap();
        Self { sender, receiver, streams: BTreeMap::new() }
    }

    /// The next message but for streams, which are kept.
    async fn heard(&mut self) -> Result<RelaydToPulld, LinkError> {
        loop {
            let mut received = self.receiver.receive().await?;
            match received.message {
                RelaydToPulld::Stream { stream } => {
                    let end = received.descriptors.pop().unwrap();
                    self.streams.insert(stream, StdStream::from(end));
                    assert!(self.streams.len() <= WAITING_STREAMS);
                }
                message => return Ok(message),
            }
        }
    }

    async fn asked(&mut self) -> (PullId, PullRequest) {
        match self.heard().await.unwrap() {
            RelaydToPulld::Pull { id, request } => (id, request),
            RelaydToPulld::Hello(_) | RelaydToPulld::Cancel { .. } | RelaydToPulld::Stream { .. } => panic!(),
        }
    }

    async fn answer(&mut self, id: PullId, length: Option<u64>, body: AnswerBody) {
        let headers = vec![(AnswerHeader::Etag, b"\"x\"".to_vec())];
        let answer = PullAnswer { status: 200, headers, length, body };
        self.sender.send(&PulldToRelayd::Answer { id, answer }, &[]).await.unwrap();
    }

    async fn say(&mut self, message: PulldToRelayd) {
        self.sender.send(&message, &[]).await.unwrap();
    }

    /// A stream of those that wait, the oldest.
    fn stream(&mut self) -> (StreamId, StdStream) {
        self.streams.pop_first().unwrap()
    }
}

fn failed(id: PullId) -> PulldToRelayd {
    PulldToRelayd::Failed { id, failure: RegistryFailure::Closed }
}

/// 192.0.2.`last`.
fn source(last: u8) -> Source {
    Source::from(IpAddr::from([192, 0, 2, last]))
}

fn request() -> PullRequest {
    PullRequest { head: false, target: "/v2/a".into(), headers: Vec::new() }
}

fn ask(pulls: &Arc<Pulls>, request: PullRequest) -> JoinHandle<Outcome> {
    let pulls = Arc::clone(pulls);
    tokio::spawn(async move { pulls.exchange(request, source(1)).await })
}

async fn body_of(outcome: Outcome) -> Result<Vec<u8>, Cut> {
    let (_, body) = outcome.unwrap_or_else(|failure| panic!("{failure:?}"));
    Ok(body.collect().await?.to_bytes().to_vec())
}

fn failure(outcome: Outcome) -> PullFailure {
    outcome.err().expect("the pull failed")
}

/// Under way on the link; streams and questions both.
fn under_way(pulls: &Pulls) -> usize {
    pulls.held().as_ref().map_or(0, |link| link.exchanges.len())
}

/// PULL-01: question and answer cross, small bodies within the answer.
#[tokio::test]
async fn an_answer_reaches_who_asked() {
    let pulls = Arc::new(Pulls::default());
    let mut pulld = Pulld::linked(&pulls).await;
    let (first, second) = (ask(&pulls, request()), ask(&pulls, PullRequest { head: true, ..request() }));
    let (one, asked) = pulld.asked().await;
    let (other, heads) = pulld.asked().await;
    assert!(!asked.head && heads.head);
    pulld.answer(other, Some(1234), AnswerBody::Nothing).await;
    pulld.answer(one, Some(4), AnswerBody::Whole(b"body".to_vec())).await;
    assert_eq!(body_of(first.await.unwrap()).await, Ok(b"body".to_vec()));
    let (answer, body) = second.await.unwrap().ok().unwrap();
    assert_eq!((answer.length, matches!(body, PullBody::Nothing)), (Some(1234), true));
    assert_eq!(under_way(&pulls), 0);
}

/// An exchange is under way until its body is taken or left, its node has left, or its pulld is gone.
#[tokio::test]
async fn what_is_under_way_is_counted_to_its_end() {
    let pulls = Arc::new(Pulls::default());
    let mut pulld = Pulld::linked(&pulls).await;
    let asked = ask(&pulls, request());
    let (id, _) = pulld.asked().await;
    assert_eq!(pulls.under_way(), 1);
    let (number, _stream) = pulld.stream();
    pulld.answer(id, Some(8), AnswerBody::Stream(number)).await;
    let (_, body) = asked.await.unwrap().ok().unwrap();
    assert_eq!(pulls.under_way(), 1);
    drop(body);
    assert_eq!(pulls.under_way(), 0);
    let (left, lost) = (ask(&pulls, request()), ask(&pulls, request()));
    pulld.asked().await;
    pulld.asked().await;
    assert_eq!(pulls.under_way(), 2);
    left.abort();
    assert!(left.await.is_err());
    assert_eq!(pulls.under_way(), 1);
    drop(pulld);
    assert_eq!(failure(lost.await.unwrap()), PullFailure::WorkerUnavailable);
    assert_eq!(pulls.under_way(), 0);
}

/// PULL-18: the parts of a body pass as they come, with a stated length or to pulld's word that it ended.
#[tokio::test]
async fn a_streamed_body_passes_part_by_part() {
    let pulls = Arc::new(Pulls::default());
    let mut pulld = Pulld::linked(&pulls).await;
    for length in [Some(8), None] {
        let asked = ask(&pulls, request());
        let (id, _) = pulld.asked().await;
        let (number, mut stream) = pulld.stream();
        pulld.answer(id, length, AnswerBody::Stream(number)).await;
        let (_, mut body) = asked.await.unwrap().ok().unwrap();
        for part in [b"four", b"more"] {
            stream.write_all(part).unwrap();
            let frame = body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), part.as_slice());
        }
        pulld.say(PulldToRelayd::Ended { id }).await;
        drop(stream);
        assert!(body.frame().await.is_none());
        drop(body);
        assert_eq!(under_way(&pulls), 0);
    }
}

/// PULL-29: a body that is cut is an error and no end: short of its length or longer, and without pulld's
/// word.
#[tokio::test]
async fn a_cut_body_never_looks_complete() {
    let pulls = Arc::new(Pulls::default());
    let mut pulld = Pulld::linked(&pulls).await;
    for (length, sent, ended) in [(9, &b"short"[..], false), (9, b"short", true), (2, b"long", true)] {
        let asked = ask(&pulls, request());
        let (id, _) = pulld.asked().await;
        let (number, mut stream) = pulld.stream();
        pulld.answer(id, Some(length), AnswerBody::Stream(number)).await;
        stream.write_all(sent).unwrap();
        drop(stream);
        let answered = asked.await.unwrap();
        pulld.say(if ended { PulldToRelayd::Ended { id } } else { failed(id) }).await;
        assert_eq!(body_of(answered).await, Err(Cut), "{length}, {ended}");
        if !ended {
            // To say so of an exchange whose answer came is out of order.
            pulld = Pulld::linked(&pulls).await;
        }
    }
    let asked = ask(&pulls, request());
    let (id, _) = pulld.asked().await;
    let (number, mut stream) = pulld.stream();
    pulld.answer(id, None, AnswerBody::Stream(number)).await;
    stream.write_all(b"any").unwrap();
    drop((stream, pulld));
    assert_eq!(body_of(asked.await.unwrap()).await, Err(Cut), "pulld ended");
    let mut pulld = Pulld::linked(&pulls).await;
    let asked = ask(&pulls, request());
    let (id, _) = pulld.asked().await;
    let (number, mut stream) = pulld.stream();
    pulld.answer(id, None, AnswerBody::Stream(number)).await;
    stream.write_all(b"any").unwrap();
    drop(stream);
    pulld.say(PulldToRelayd::Cut { id }).await;
    assert_eq!(body_of(asked.await.unwrap()).await, Err(Cut), "pulld says so");
}

/// PULL-29: without a pulld, and when it ends before its answer, a pull is answered by name; the next pulld
/// serves.
#[tokio::test]
async fn a_loss_of_pulld_ends_what_is_under_way() {
    let pulls = Arc::new(Pulls::default());
    assert_eq!(failure(pulls.exchange(request(), source(1)).await), PullFailure::WorkerUnavailable);
    let mut pulld = Pulld::linked(&pulls).await;
    let asked = ask(&pulls, request());
    pulld.asked().await;
    drop(pulld);
    assert_eq!(failure(asked.await.unwrap()), PullFailure::WorkerUnavailable);
    assert_eq!(failure(pulls.exchange(request(), source(1)).await), PullFailure::WorkerUnavailable);
    let mut pulld = Pulld::linked(&pulls).await;
    let asked = ask(&pulls, request());
    let (id, _) = pulld.asked().await;
    pulld.answer(id, None, AnswerBody::Whole(b"again".to_vec())).await;
    assert_eq!(body_of(asked.await.unwrap()).await, Ok(b"again".to_vec()));
}

/// A node that leaves ends its exchange at pulld, before the answer by word and later by its end of the pair.
#[tokio::test]
async fn a_node_that_leaves_ends_its_exchange() {
    let pulls = Arc::new(Pulls::default());
    let mut pulld = Pulld::linked(&pulls).await;
    let asked = ask(&pulls, request());
    let (id, _) = pulld.asked().await;
    asked.abort();
    let RelaydToPulld::Cancel { id: cancelled } = pulld.heard().await.unwrap() else { panic!() };
    assert_eq!((cancelled, under_way(&pulls)), (id, 0));
    // What was on its way meanwhile disturbs nobody.
    let (number, stream) = pulld.stream();
    pulld.answer(id, None, AnswerBody::Stream(number)).await;
    pulld.say(PulldToRelayd::Ended { id }).await;
    stream.set_nonblocking(true).unwrap();
    let mut stream = tokio::net::UnixStream::from_std(stream).unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "the pair is closed");

    let asked = ask(&pulls, request());
    let (id, _) = pulld.asked().await;
    let (number, mut stream) = pulld.stream();
    pulld.answer(id, None, AnswerBody::Stream(number)).await;
    drop(asked.await.unwrap().ok().unwrap());
    assert_eq!(stream.write(b"more").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    assert_eq!(under_way(&pulls), 0);
}

/// A pulld that answers what nobody asked, twice, or over a stream that does not wait, loses its link.
#[tokio::test]
async fn a_pulld_out_of_order_loses_its_link() {
    let answer = |body| PullAnswer { status: 200, headers: Vec::new(), length: None, body };
    for hostile in 0..4 {
        let pulls = Arc::new(Pulls::default());
        let mut pulld = Pulld::linked(&pulls).await;
        let asked = ask(&pulls, request());
        let (id, _) = pulld.asked().await;
        match hostile {
            0 => {
                let answer = answer(AnswerBody::Stream(u64::MAX));
                pulld.say(PulldToRelayd::Answer { id, answer }).await;
            }
            1 => pulld.say(PulldToRelayd::Ended { id }).await,
            2 => {
                let (number, _stream) = pulld.stream();
                pulld.say(PulldToRelayd::Answer { id, answer: answer(AnswerBody::Stream(number)) }).await;
                let (next, _stream) = pulld.stream();
                pulld.say(PulldToRelayd::Answer { id, answer: answer(AnswerBody::Stream(next)) }).await;
            }
            _ => pulld.say(PulldToRelayd::Hello(coreflow_ipc::hello::Hello::of(Role::Pulld))).await,
        }
        while pulld.heard().await.is_ok() {}
        drop(asked);
        assert_eq!(
            failure(pulls.exchange(request(), source(1)).await),
            PullFailure::WorkerUnavailable,
            "{hostile}"
        );
    }
}

/// PULL-30: as many exchanges are under way as may, a fourth of them of one source; a further one is refused by
/// name. A body counts until its node has taken it, whatever pulld has written of it meanwhile.
#[tokio::test]
async fn exchanges_are_bounded() {
    let pulls = Arc::new(Pulls::default());
    pulls.limit(8);
    let mut pulld = Pulld::linked(&pulls).await;
    let mut held = Vec::new();
    for length in [None, Some(3)] {
        let asked = ask(&pulls, request());
        let (id, _) = pulld.asked().await;
        let (number, mut stream) = pulld.stream();
        pulld.answer(id, length, AnswerBody::Stream(number)).await;
        stream.write_all(b"all").unwrap();
        pulld.say(PulldToRelayd::Ended { id }).await;
        held.push(asked.await.unwrap());
    }
    assert_eq!(failure(pulls.exchange(request(), source(1)).await), PullFailure::Full);
    for last in 2..5 {
        for _ in 0..2 {
            let asking = Arc::clone(&pulls);
            let asked = tokio::spawn(async move { asking.exchange(request(), source(last)).await });
            let (id, _) = pulld.asked().await;
            pulld.answer(id, None, AnswerBody::Whole(b"all".to_vec())).await;
            held.push(asked.await.unwrap());
        }
    }
    assert_eq!(failure(pulls.exchange(request(), source(9)).await), PullFailure::Full, "of all");
    for outcome in held {
        assert_eq!(body_of(outcome).await, Ok(b"all".to_vec()));
    }
    assert_eq!(under_way(&pulls), 0);
    let asked = ask(&pulls, request());
    pulld.asked().await;
    asked.abort();
}

/// A shortage of descriptors that used up all streams ends with itself: any further question or answer brings
/// new ones.
#[tokio::test]
async fn streams_come_back_after_a_shortage() {
    let pulls = Arc::new(Pulls::default());
    let mut pulld = Pulld::linked(&pulls).await;
    let asked = ask(&pulls, request());
    let (id, _) = pulld.asked().await;
    pulls.held().as_mut().unwrap().streams.clear();
    pulld.streams.clear();
    pulld.answer(id, None, AnswerBody::Whole(b"all".to_vec())).await;
    assert_eq!(body_of(asked.await.unwrap()).await, Ok(b"all".to_vec()));
    let next = ask(&pulls, request());
    pulld.asked().await;
    assert_eq!(pulld.streams.len(), WAITING_STREAMS);
    next.abort();
}

/// Streams never run out, and none is used twice.
#[tokio::test]
async fn used_streams_are_replaced() {
    let pulls = Arc::new(Pulls::default());
    let mut pulld = Pulld::linked(&pulls).await;
    let mut last = None;
    for _ in 0..3 * WAITING_STREAMS {
        let asked = ask(&pulls, request());
        let (id, _) = pulld.asked().await;
        let (number, stream) = pulld.stream();
        assert!(last < Some(number));
        last = Some(number);
        pulld.answer(id, Some(5), AnswerBody::Stream(number)).await;
        drop(stream);
        assert_eq!(body_of(asked.await.unwrap()).await, Err(Cut));
    }
}

/// A pulld that says nothing does not serve: the wait for it is bounded.
#[tokio::test(start_paused = true)]
async fn a_silent_pulld_is_waited_for_no_longer_than_the_budget() {
    let pulls = Arc::new(Pulls::default());
    let mut pulld = Pulld::linked(&pulls).await;
    let begin = Instant::now();
    let asked = ask(&pulls, request());
    pulld.asked().await;
    assert_eq!(failure(asked.await.unwrap()), PullFailure::WorkerUnavailable);
    assert_eq!(begin.elapsed(), PULL_ANSWER_BUDGET);
}

/// What pulld states has to fit: a length its body, and no body where there is never one.
#[tokio::test]
async fn a_body_that_does_not_fit_its_head_is_no_answer() {
    let pulls = Arc::new(Pulls::default());
    let mut pulld = Pulld::linked(&pulls).await;
    for (head, length, body) in [
        (false, Some(5), AnswerBody::Whole(b"four".to_vec())),
        (false, Some(5), AnswerBody::Nothing),
        (true, None, AnswerBody::Whole(b"four".to_vec())),
    ] {
        let asked = ask(&pulls, PullRequest { head, ..request() });
        let (id, _) = pulld.asked().await;
        pulld.answer(id, length, body).await;
        assert_eq!(failure(asked.await.unwrap()), PullFailure::Registry(RegistryFailure::Protocol));
    }
}
