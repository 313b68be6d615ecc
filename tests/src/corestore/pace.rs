//! How fast the bodies of a call and of its answer go, as the [`Fault`] of the call has it: a reader that is slower than its
//! caller, and an answer that stands still or ends within. No time passes here: the test moves what stands still on.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{mpsc, watch};

use super::{Fault, Shared};

/// Most bytes that are read of a body at once.
pub const PIECE: usize = 64 << 10;

/// The faults that hold, by method and path.
pub(super) type Faults = BTreeMap<String, Fault>;

/// The fault of a call once it is another than `stood`.
pub(super) async fn moved(
    faults: &mut watch::Receiver<Faults>,
    call: &str,
    stood: Option<&Fault>,
) -> Option<Fault> {
    let Ok(faults) = faults.wait_for(|faults| faults.get(call) != stood).await else {
        // The double is over, and nobody will move this on.
        return std::future::pending().await;
    };
    faults.get(call).cloned()
}

/// The whole body of a call, no faster than [`Fault::ReadUpTo`] lets it.
pub(super) async fn read<B>(shared: &Shared, call: &str, mut body: B) -> Result<Bytes, B::Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut faults = shared.faults.subscribe();
    let mut read = Vec::new();
    loop {
        shared.state().read.insert(call.to_owned(), read.len());
        shared.change.announce();
        let may_go_on = |faults: &Faults| match faults.get(call) {
            Some(Fault::ReadUpTo(most)) => read.len() < *most,
            Some(
                Fault::Silent
                | Fault::Reset
                | Fault::Instead(_)
                | Fault::Held
                | Fault::StallAfter(_)
                | Fault::CutAfter(_),
            )
            | None => true,
        };
        drop(faults.wait_for(may_go_on).await);
        let Some(frame) = body.frame().await else { return Ok(read.into()) };
        if let Ok(bytes) = frame?.into_data() {
            read.extend_from_slice(&bytes);
        }
    }
}

/// The body of an answer. It is sent by a task of its own, which ends with it.
pub(super) struct AnswerBody {
    pieces: mpsc::Receiver<io::Result<Frame<Bytes>>>,
    length: u64,
}

impl AnswerBody {
    /// A body of these bytes under the fault that the call met.
    pub(super) fn new(shared: &Shared, call: &str, fault: Option<Fault>, bytes: Vec<u8>) -> Self {
        let length = bytes.len() as u64;
        let (sender, pieces) = mpsc::channel(1);
        tokio::spawn(send(shared.faults.subscribe(), call.to_owned(), fault, bytes.into(), sender));
        Self { pieces, length }
    }
}

/// Where an answer does not go on.
enum Stop {
    Stalls,
    Cut,
}

impl Stop {
    /// After how many bytes of its body an answer stops, and how; `None` where it does not.
    fn of(fault: Option<&Fault>) -> Option<(usize, Self)> {
        match fault {
            Some(Fault::StallAfter(bytes)) => Some((*bytes, Self::Stalls)),
            Some(Fault::CutAfter(bytes)) => Some((*bytes, Self::Cut)),
            Some(Fault::Silent | Fault::Held) => Some((0, Self::Stalls)),
            Some(Fault::Reset) => Some((0, Self::Cut)),
            Some(Fault::Instead(_) | Fault::ReadUpTo(_)) | None => None,
        }
    }
}

async fn send(
    mut faults: watch::Receiver<Faults>,
    call: String,
    mut fault: Option<Fault>,
    mut left: Bytes,
    pieces: mpsc::Sender<io::Result<Frame<Bytes>>>,
) {
    let mut sent: usize = 0;
    loop {
        let stop = Stop::of(fault.as_ref());
        let most = stop.as_ref().map_or(usize::MAX, |(after, _)| after.saturating_sub(sent));
        let piece = left.split_to(most.min(left.len()));
        sent += piece.len();
        if !piece.is_empty() && pieces.send(Ok(Frame::data(piece))).await.is_err() {
            return;
        }
        if left.is_empty() {
            return;
        }
        match stop {
            Some((_, Stop::Stalls)) => tokio::select! {
                () = pieces.closed() => return,
                next = moved(&mut faults, &call, fault.as_ref()) => fault = next,
            },
            Some((_, Stop::Cut)) => {
                drop(pieces.send(Err(io::ErrorKind::ConnectionReset.into())).await);
                return;
            }
            None => {}
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.pieces.poll_recv(context)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}
