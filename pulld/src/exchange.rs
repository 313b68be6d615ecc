//! One pull: asked, answered, and its body carried at the pace of who reads it (PULL-01, PULL-18, PULL-26,
//! PULL-30).

use std::{future::poll_fn, io, sync::Arc, task::Poll};

use bytes::Bytes;
use coreflow_ipc::{
    messages::pulls::{
        AnswerBody, PullAnswer, PullId, PullRequest, PulldToRelayd, RegistryFailure, WHOLE_BODY,
    },
    outgoing::Outgoing,
};
use tokio::{io::Interest, net::UnixStream, task::yield_now, time::timeout};

use crate::{
    answer::{self, AnswerHead},
    connections::{Connections, RegistryBody},
    constants::{ANSWER_WAIT, STREAM_WAIT},
    counts::Exchanged,
    idle::{Idle, Side},
    notices::Notices,
    request::Asked,
    waiting_streams::WaitingStreams,
};

/// What the exchanges of a link share.
pub(crate) struct Shared {
    /// Messages to relayd.
    pub(crate) out: Outgoing<PulldToRelayd>,
    /// Socket pairs for bodies.
    pub(crate) streams: WaitingStreams,
    /// What was said already.
    pub(crate) notices: Arc<Notices>,
    /// What became of the exchanges.
    pub(crate) exchanged: Arc<Exchanged>,
}

/// How the carrying of a body ended.
enum Carried {
    /// All of it was written.
    Whole,
    /// The registry broke off, or one side stood still for long.
    Cut(RegistryFailure),
    /// Relayd closed its end.
    Left,
}

/// What is there of a body at once.
enum Begun {
    Whole(Vec<u8>),
    Part(Vec<Bytes>),
}

/// Runs exchange `id` over `connections`, to its answer and its body's end. Dropped, it closes whatever it
/// has open.
pub(crate) async fn run(
    id: PullId,
    request: PullRequest,
    connections: Option<Arc<Connections>>,
    shared: Arc<Shared>,
) {
    let answered = match connections {
        Some(connections) => answer_and_carry(id, request, &connections, &shared).await,
        // Relayd is linked before pulld has its configuration.
        None => Err(RegistryFailure::Connect),
    };
    if let Err(failure) = answered {
        shared.exchanged.fail();
        shared.notices.failed(failure);
        let _ = shared.out.queue(PulldToRelayd::Failed { id, failure }).await;
    }
}

/// An error is of the time before the answer.
async fn answer_and_carry(
    id: PullId,
    request: PullRequest,
    connections: &Arc<Connections>,
    shared: &Shared,
) -> Result<(), RegistryFailure> {
    let asked = Asked::new(request).ok_or(RegistryFailure::Protocol)?;
    let answer = timeout(ANSWER_WAIT, connections.ask(&asked)).await;
    let (parts, mut body) = answer.map_err(|_| RegistryFailure::Timeout)??;
    let head = answer::selected(&parts, asked.is_head(), &connections.registry, &shared.notices)?;
    drop((parts, asked));
    let begun = if head.bodyless { None } else { Some(begin(&mut body, head.coming).await?) };
    let part = match begun {
        None => return settle(id, head, AnswerBody::Nothing, body, connections, shared).await,
        Some(Begun::Whole(bytes)) => {
            return settle(id, head, AnswerBody::Whole(bytes), body, connections, shared).await;
        }
        Some(Begun::Part(part)) => part,
    };
    let waiting = timeout(STREAM_WAIT, shared.streams.take()).await;
    let waiting = waiting.map_err(|_| RegistryFailure::Timeout)?;
    let answer = answer_of(head, AnswerBody::Stream(waiting.id()));
    shared.exchanged.answer();
    if shared.out.queue(PulldToRelayd::Answer { id, answer }).await.is_err() {
        return Ok(());
    }
    let carried = match waiting.used() {
        Ok(stream) => carry_over(id, part, &mut body, stream, shared).await,
        Err(_) => Carried::Cut(RegistryFailure::Closed),
    };
    match carried {
        Carried::Whole => connections.done(body),
        Carried::Cut(failure) => {
            // The registry's connection is closed before anybody is told.
            drop(body);
            shared.exchanged.fail();
            shared.notices.cut(failure);
            let _ = shared.out.queue(PulldToRelayd::Cut { id }).await;
        }
        Carried::Left => shared.notices.left(),
    }
    Ok(())
}

fn answer_of(head: AnswerHead, body: AnswerBody) -> PullAnswer {
    PullAnswer { status: head.status, headers: head.headers, length: head.length, body }
}

/// Answers with all that there is.
async fn settle(
    id: PullId,
    head: AnswerHead,
    crossing: AnswerBody,
    body: RegistryBody,
    connections: &Arc<Connections>,
    shared: &Shared,
) -> Result<(), RegistryFailure> {
    shared.exchanged.answer();
    let _ = shared.out.queue(PulldToRelayd::Answer { id, answer: answer_of(head, crossing) }).await;
    connections.done(body);
    Ok(())
}

/// What is there of the body without waiting. One that is short by its own word is given one turn of the
/// runtime to arrive, as the registry writes it right behind its head; nothing waits for what has not.
async fn begin(body: &mut RegistryBody, coming: Option<u64>) -> Result<Begun, RegistryFailure> {
    let whole = u64::try_from(WHOLE_BODY).expect("a short body");
    if coming.is_some_and(|length| length > whole) {
        return Ok(Begun::Part(Vec::new()));
    }
    let (mut part, mut bytes, mut turn) = (Vec::new(), 0, coming.is_some());
    loop {
        match poll_fn(|cx| Poll::Ready(body.poll_next(cx))).await {
            Poll::Ready(None) => return Ok(Begun::Whole(part.concat())),
            Poll::Ready(Some(chunk)) => {
                let chunk = chunk?;
                bytes += chunk.len();
                part.push(chunk);
                if bytes > WHOLE_BODY {
                    return Ok(Begun::Part(part));
                }
            }
            Poll::Pending if turn => {
                turn = false;
                yield_now().await;
            }
            Poll::Pending => return Ok(Begun::Part(part)),
        }
    }
}

/// Carries the body over `stream` and closes that, having said so where the end is the body's.
async fn carry_over(
    id: PullId,
    part: Vec<Bytes>,
    body: &mut RegistryBody,
    stream: UnixStream,
    shared: &Shared,
) -> Carried {
    let carried = carry(part, body, &stream).await;
    if let Carried::Whole = carried {
        let _ = shared.out.queue(PulldToRelayd::Ended { id }).await;
        // The queue's turn: relayd learns what the end of the stream means before it comes.
        yield_now().await;
    }
    carried
}

/// Writes `part` and then the rest of `body` to `stream`, as it comes.
async fn carry(part: Vec<Bytes>, body: &mut RegistryBody, stream: &UnixStream) -> Carried {
    let idle = Idle::default();
    let carrying = async {
        for chunk in part {
            write(stream, &chunk, &idle).await?;
        }
        while !body.is_ended()
            && let Some(chunk) = poll_fn(|cx| body.poll_next(cx)).await
        {
            write(stream, &chunk.map_err(Carried::Cut)?, &idle).await?;
        }
        Ok(())
    };
    tokio::select! {
        biased;
        carried = carrying => carried.err().unwrap_or(Carried::Whole),
        () = idle.over() => Carried::Cut(RegistryFailure::Timeout),
        () = left(stream) => Carried::Left,
    }
}

/// Writes `bytes`, after which the registry is waited for.
async fn write(stream: &UnixStream, mut bytes: &[u8], idle: &Idle) -> Result<(), Carried> {
    let mut moved = true;
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(count) => {
                bytes = &bytes[count..];
                moved = true;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if std::mem::take(&mut moved) {
                    idle.waits_for(Side::Node);
                }
                stream.writable().await.map_err(|_| Carried::Left)?;
            }
            Err(_) => return Err(Carried::Left),
        }
    }
    idle.waits_for(Side::Registry);
    Ok(())
}

/// Relayd closes its end, over which it says nothing.
async fn left(stream: &UnixStream) {
    while let Ok(ready) = stream.ready(Interest::READABLE).await {
        if ready.is_read_closed() || ready.is_write_closed() {
            return;
        }
        match stream.try_read(&mut [0; 64]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests;
