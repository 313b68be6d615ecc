use std::os::unix::net::UnixStream;

use super::*;

/// The queue and the events of a link to a pulld, and the other end.
fn linked() -> (mpsc::Sender<Queued<ToPulld>>, mpsc::Receiver<Event>, UnixStream) {
    let (own, end) = UnixStream::pair().unwrap();
    let (events, happened) = mpsc::channel(4);
    let tap = Tap::new(coreflow_ipc::now::Clock::start());
    let report = Report { role: Role::Pulld, process: 7, pid: 77, events, tap };
    let (queue, _) = run_link(own.into(), &report, Said::Pulld).unwrap();
    (queue, happened, end)
}

/// PULL-29, ARC-18: a message that cannot be sent ends the worker by its cause, and not by what follows from it.
#[tokio::test]
async fn a_message_that_cannot_be_sent_ends_the_link_by_its_cause() {
    let (queue, mut happened, _end) = linked();
    let unannounced = UnixStream::pair().unwrap().0;
    offer(&queue, ToPulld::Worker(ToWorker::Stop), vec![unannounced.into()]).unwrap();
    let Some(Event { role, process, happened: Happened::LinkEnded(error) }) = happened.recv().await else {
        panic!("the link did not end")
    };
    assert_eq!((role, process, error), (Role::Pulld, 7, LinkError::Descriptors));
    // Until the worker is killed it is told more, which is no failure of its own.
    for number in 0..2 * WORKER_QUEUE {
        let number = u64::try_from(number).unwrap();
        assert_eq!(offer(&queue, ToPulld::Worker(ToWorker::Ping(number)), Vec::new()), Ok(()));
        tokio::task::yield_now().await;
    }
}

/// PULL-29: a worker that went is reported once, by who reads of it, whatever is still said to it.
#[tokio::test]
async fn an_ordinary_end_is_reported_once() {
    let (queue, mut happened, end) = linked();
    drop(end);
    let _ = offer(&queue, ToPulld::Worker(ToWorker::Stop), Vec::new());
    queue.closed().await;
    assert!(matches!(
        happened.recv().await,
        Some(Event { happened: Happened::LinkEnded(LinkError::Closed), .. })
    ));
    assert!(happened.recv().await.is_none());
}
