//! Serves the control socket beside the supervisor's loop, which it asks over a bounded queue: a client that
//! is slow, silent or foreign costs its own connection, and the loop never waits for one.

use std::{io, time::Duration};

use coreflow_ipc::{hello::Role, now::Clock};
use interprocess::{
    local_socket::traits::{StreamCommon, tokio::Listener as _},
    os::unix::uds_local_socket::tokio::{Listener, Stream},
};
use nix::unistd::geteuid;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{
        broadcast::{Receiver, error::RecvError},
        mpsc, oneshot,
    },
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};
use tracing::{debug, warn};

use super::{
    protocol::{Answer, Command, Refused},
    trace_lines::Written,
};
use crate::{
    constants::{
        CONTROL_ACCEPT_PAUSE, CONTROL_CONNECTIONS, CONTROL_EXCHANGE_BOUND, CONTROL_REFUSED_PACE,
        CONTROL_REQUEST_BYTES,
    },
    trace::Traced,
};

/// A command for the loop, and where its answer goes.
pub struct Asked {
    /// What is asked for.
    pub command: Command,
    /// Who asks.
    pub peer: Peer,
    /// Taken at once, or not wanted any more.
    pub answer: oneshot::Sender<Reply>,
}

/// Who asks, as the kernel states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The effective user.
    pub user: Option<u32>,
    /// The process that connected.
    pub pid: Option<i32>,
}

/// What the loop gives in return.
pub enum Reply {
    /// One answer.
    Answer(Answer),
    /// What passes over this worker's link from now on.
    Trace(Role, Receiver<Traced>),
}

/// Serves `listener` as long as the loop lives; inside its runtime.
///
/// # Errors
/// The runtime does not take the socket.
pub fn serve(
    listener: interprocess::os::unix::uds_local_socket::Listener,
    asks: mpsc::Sender<Asked>,
    clock: Clock,
) -> io::Result<()> {
    let listener = Listener::try_from(listener)?;
    tokio::spawn(accept(listener, asks, clock));
    Ok(())
}

async fn accept(listener: Listener, asks: mpsc::Sender<Asked>, clock: Clock) {
    let own = geteuid().as_raw();
    let mut foreigners = Foreigners::default();
    let mut connections = JoinSet::new();
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                debug!(class = %error.kind(), "a connection to the control socket is not accepted");
                sleep(CONTROL_ACCEPT_PAUSE).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let peer = stream.peer_creds().ok();
        let user = peer.as_ref().and_then(|peer| peer.euid());
        let peer = Peer { user, pid: peer.and_then(|peer| peer.pid()) };
        if !admits(user, own) {
            if let Some(count) = foreigners.refuse(clock.now().mono) {
                warn!(user, "the control socket refused {count} connections of other users");
            }
            tell_at_once(stream, Refused::Peer(user)).await;
        } else if connections.len() >= CONTROL_CONNECTIONS {
            tell_at_once(stream, Refused::Busy).await;
        } else {
            connections.spawn(exchange(stream, peer, asks.clone()));
        }
    }
}

/// Whether a peer may ask: root, and the user that the relay runs as.
fn admits(user: Option<u32>, own: u32) -> bool {
    user.is_some_and(|user| user == 0 || user == own)
}

/// Counts refused peers, and says when their number is told.
#[derive(Debug, Default)]
struct Foreigners {
    untold: u64,
    told_at: Option<Duration>,
}

impl Foreigners {
    /// One more at `mono`; the number to tell, if it is time for that.
    fn refuse(&mut self, mono: Duration) -> Option<u64> {
        self.untold += 1;
        if self.told_at.is_some_and(|told| mono < told + CONTROL_REFUSED_PACE) {
            return None;
        }
        self.told_at = Some(mono);
        Some(std::mem::take(&mut self.untold))
    }
}

/// One answer to a connection that is not served: what the socket takes without waiting.
async fn tell_at_once(mut stream: Stream, refused: Refused) {
    let line = Answer::from(refused).line();
    let _ = timeout(Duration::ZERO, stream.write_all(line.as_bytes())).await;
}

/// One request and its answer, within the bound; a trace goes on beyond it.
async fn exchange(mut stream: Stream, peer: Peer, asks: mpsc::Sender<Asked>) {
    let deadline = Instant::now() + CONTROL_EXCHANGE_BOUND;
    let answer = match timeout_at(deadline, answer(&mut stream, peer, &asks)).await {
        Ok(Ok(Reply::Answer(answer))) => answer,
        Ok(Ok(Reply::Trace(role, traced))) => return trace(stream, role, traced).await,
        Ok(Err(refused)) => refused.into(),
        Err(_) => Refused::Late.into(),
    };
    let line = answer.line();
    let written = timeout_at(deadline, async {
        stream.write_all(line.as_bytes()).await?;
        stream.shutdown().await
    });
    if !matches!(written.await, Ok(Ok(()))) {
        debug!("a client of the control socket did not take its answer");
    }
}

async fn answer(stream: &mut Stream, peer: Peer, asks: &mpsc::Sender<Asked>) -> Result<Reply, Refused> {
    let command = Command::read(&line(stream).await?)?;
    debug!(command = command.name(), "the control socket is asked");
    let (answer, answered) = oneshot::channel();
    // There is a place for each connection.
    asks.send(Asked { command, peer, answer }).await.map_err(|_| Refused::Ended)?;
    answered.await.map_err(|_| Refused::Ended)
}

/// Writes what passes until the client closes its end, or takes a line for too long. What it is too slow for is
/// counted.
async fn trace(mut stream: Stream, role: Role, mut traced: Receiver<Traced>) {
    let mut next = Written::Tracing(role.name());
    loop {
        let line = next.line();
        if !matches!(timeout(CONTROL_EXCHANGE_BOUND, stream.write_all(line.as_bytes())).await, Ok(Ok(()))) {
            return debug!("a client of the control socket does not take its trace");
        }
        let mut ignored = [0; 64];
        next = loop {
            tokio::select! {
                traced = traced.recv() => match traced {
                    Ok(traced) => break Written::Trace(traced),
                    Err(RecvError::Lagged(left_out)) => break Written::LeftOut(left_out),
                    Err(RecvError::Closed) => return,
                },
                read = stream.read(&mut ignored) => if !matches!(read, Ok(1..)) { return },
            }
        };
    }
}

/// The first line, without its end; the end of the stream ends it as well.
async fn line(stream: &mut Stream) -> Result<Vec<u8>, Refused> {
    let mut read = Vec::with_capacity(CONTROL_REQUEST_BYTES + 1);
    loop {
        if let Some(end) = read.iter().position(|byte| *byte == b'\n') {
            read.truncate(end);
            return Ok(read);
        }
        let room = CONTROL_REQUEST_BYTES + 1 - read.len();
        if room == 0 {
            return Err(Refused::TooLong);
        }
        let mut chunk = stream.take(room as u64);
        match chunk.read_buf(&mut read).await {
            Ok(0) => return Ok(read),
            Ok(_) => {}
            Err(_) => return Err(Refused::Malformed("the connection broke")),
        }
    }
}

#[cfg(test)]
mod tests;
