//! One WebSocket that carries envelopes, as both ends of it need: calls matched with their
//! answers the way the 8.x library matches them (method, correlation id, instance id), incoming
//! requests handed out in order, and the ways a peer can end it or tear it down.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::Error as SocketError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message as Frame, Utf8Bytes};

use crate::envelope::{Ids, Message, Phase, request};

/// The message limit of both library generations: 100 MiB, beyond it the socket closes with 1009.
pub const MESSAGE_LIMIT: usize = 100 * 1024 * 1024;

/// How long a close handshake, or one write, may take before the socket is dropped.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many events or orders may wait.
const QUEUE: usize = 1024;

/// How a socket ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closing {
    /// The peer's close code; `None` when it sent none or the connection broke.
    pub code: Option<u16>,
    /// The peer's close reason.
    pub reason: String,
    /// Whether the peer sent a close frame at all.
    pub clean: bool,
}

/// What arrives on a socket.
#[derive(Debug)]
pub enum Event {
    /// A request, and whether it came in a binary frame.
    Request(Message, bool),
    /// An answer that no call waits for.
    Stray(Message),
    /// A frame of a closure's stream, which its first byte tells from JSON.
    Stream(Vec<u8>),
    /// A frame that is no envelope, as text.
    Unreadable(String),
    /// The end; nothing follows.
    Closed(Closing),
}

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallFailure {
    /// There is no connection, or it ended before the answer.
    NotConnected,
    /// No answer came within this time.
    Unanswered(Duration),
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected => f.write_str("the connection ended before an answer"),
            Self::Unanswered(bound) => write!(f, "no answer within {} ms", bound.as_millis()),
        }
    }
}

impl std::error::Error for CallFailure {}

enum Order {
    Send(Frame),
    Close(Option<u16>),
    CutWithin(String),
    Stall(Duration),
}

struct Pending {
    method: String,
    ids: Ids,
    answer: oneshot::Sender<Message>,
}

/// The calls that wait; `None` once the socket is over, so that no call begins to wait for what cannot come.
type PendingByCorrelation = Arc<Mutex<Option<BTreeMap<String, Pending>>>>;

/// The handle of a running socket. Clones are the same socket; it lives until a side ends it.
#[derive(Clone)]
pub struct Carrier {
    orders: mpsc::Sender<Order>,
    pending: PendingByCorrelation,
    task: AbortHandle,
}

impl Carrier {
    /// Runs `socket` and hands out what arrives on it. `role` is this side's.
    pub fn start<S>(socket: WebSocketStream<S>, role: Role) -> (Self, mpsc::Receiver<Event>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (orders, order_queue) = mpsc::channel(QUEUE);
        let (events, event_queue) = mpsc::channel(QUEUE);
        let pending: PendingByCorrelation = Arc::new(Mutex::new(Some(BTreeMap::new())));
        let calls = pending.clone();
        let masked = matches!(role, Role::Client);
        let task = tokio::spawn(async move {
            let closing = drive(socket, masked, order_queue, &calls, &events).await;
            *lock(&calls) = None;
            drop(events.send(Event::Closed(closing)).await);
        });
        (Self { orders, pending, task: task.abort_handle() }, event_queue)
    }

    /// Sends a text frame as it is.
    pub async fn send_text(&self, text: String) {
        drop(self.orders.send(Order::Send(Frame::text(text))).await);
    }

    /// Sends a binary frame as it is.
    pub async fn send_binary(&self, bytes: Vec<u8>) {
        drop(self.orders.send(Order::Send(Frame::binary(bytes))).await);
    }

    /// Starts the close handshake.
    pub async fn close(&self, code: Option<u16>) {
        drop(self.orders.send(Order::Close(code)).await);
    }

    /// Sends the first half of a text frame and drops the connection.
    pub async fn cut_within(&self, text: String) {
        drop(self.orders.send(Order::CutWithin(text)).await);
    }

    /// Neither reads nor writes for a time, once the orders before are carried out: a peer that hangs, with
    /// its socket open. What arrives meanwhile waits in the system's buffers; no ping is answered.
    pub async fn stall(&self, time: Duration) {
        drop(self.orders.send(Order::Stall(time)).await);
    }

    /// Drops the connection at once, without a close frame or a TLS goodbye. No
    /// [`Event::Closed`] follows; the event queue ends.
    pub fn cut(&self) {
        self.task.abort();
        *lock(&self.pending) = None;
    }

    /// Whether the socket has ended.
    pub fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Asks with fresh ids and waits for the answer.
    ///
    /// # Errors
    /// [`CallFailure`]: a refusal is an answer, not an error.
    pub async fn call(&self, method: &str, body: &str, bound: Duration) -> Result<Message, CallFailure> {
        let ids = Ids::fresh();
        let text = request(method, body, &ids);
        self.call_text(method, ids, text, bound).await
    }

    /// Sends `text`, a request of `method` under `ids`, and waits for the answer.
    ///
    /// # Errors
    /// [`CallFailure`]: a refusal is an answer, not an error.
    pub async fn call_text(
        &self,
        method: &str,
        ids: Ids,
        text: String,
        bound: Duration,
    ) -> Result<Message, CallFailure> {
        let (answer, waiting) = oneshot::channel();
        let key = ids.correlation.clone();
        {
            let mut pending = lock(&self.pending);
            let Some(calls) = pending.as_mut() else { return Err(CallFailure::NotConnected) };
            calls.insert(key.clone(), Pending { method: method.to_owned(), ids, answer });
        }
        let forget = || lock(&self.pending).as_mut().map(|calls| calls.remove(&key));
        if self.is_over() || self.orders.send(Order::Send(Frame::text(text))).await.is_err() {
            drop(forget());
            return Err(CallFailure::NotConnected);
        }
        let answered = tokio::time::timeout(bound, waiting).await;
        drop(forget());
        match answered {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(_)) => Err(CallFailure::NotConnected),
            Err(_) => Err(CallFailure::Unanswered(bound)),
        }
    }
}

/// The WebSocket settings of every double: messages up to [`MESSAGE_LIMIT`], in one frame.
pub fn socket_config() -> WebSocketConfig {
    WebSocketConfig::default().max_message_size(Some(MESSAGE_LIMIT)).max_frame_size(Some(MESSAGE_LIMIT))
}

async fn drive<S>(
    mut socket: WebSocketStream<S>,
    masked: bool,
    mut orders: mpsc::Receiver<Order>,
    calls: &PendingByCorrelation,
    events: &mpsc::Sender<Event>,
) -> Closing
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut closing = Closing { code: None, reason: String::new(), clean: false };
    let mut give_up: Option<Instant> = None;
    loop {
        let patience = async {
            match give_up {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            frame = socket.next() => match frame {
                Some(Ok(Frame::Text(text))) => deliver(text.as_str(), false, calls, events).await,
                Some(Ok(Frame::Binary(bytes))) if matches!(bytes.first(), Some(1..=5)) => {
                    drop(events.send(Event::Stream(bytes.to_vec())).await);
                }
                Some(Ok(Frame::Binary(bytes))) => {
                    deliver(&String::from_utf8_lossy(&bytes), true, calls, events).await;
                }
                Some(Ok(Frame::Close(frame))) => {
                    closing.clean = true;
                    if let Some(frame) = frame {
                        closing.code = Some(frame.code.into());
                        closing.reason = frame.reason.as_str().to_owned();
                    }
                    give_up.get_or_insert_with(|| Instant::now() + PATIENCE);
                }
                Some(Ok(Frame::Ping(_) | Frame::Pong(_) | Frame::Frame(_))) => {}
                Some(Err(SocketError::Capacity(_))) => {
                    let too_big = close_frame(CloseCode::Size.into());
                    drop(tokio::time::timeout(PATIENCE, socket.close(Some(too_big))).await);
                    return closing;
                }
                Some(Err(_)) | None => return closing,
            },
            order = orders.recv() => match order {
                Some(Order::Send(frame)) => {
                    let sent = tokio::time::timeout(PATIENCE, socket.send(frame)).await;
                    if !matches!(sent, Ok(Ok(()))) {
                        return closing;
                    }
                }
                Some(Order::Close(code)) => {
                    let close = socket.close(code.map(close_frame));
                    drop(tokio::time::timeout(PATIENCE, close).await);
                    give_up.get_or_insert_with(|| Instant::now() + PATIENCE);
                }
                Some(Order::CutWithin(text)) => {
                    let frame = half_a_frame(&text, masked);
                    let stream = socket.get_mut();
                    drop(tokio::time::timeout(PATIENCE, stream.write_all(&frame)).await);
                    drop(tokio::time::timeout(PATIENCE, stream.flush()).await);
                    return closing;
                }
                Some(Order::Stall(time)) => tokio::time::sleep(time).await,
                None => return closing,
            },
            () = patience => return closing,
        }
    }
}

async fn deliver(text: &str, binary: bool, calls: &PendingByCorrelation, events: &mpsc::Sender<Event>) {
    let event = match Message::parse(text) {
        Ok(message) if message.phase == Phase::Request => Event::Request(message, binary),
        Ok(message) => match take(calls, &message) {
            Taken::Awaited(answer) => {
                drop(answer.send(message));
                return;
            }
            // Read in the moment of a cut: as if it had not been.
            Taken::Over => return,
            Taken::Unknown => Event::Stray(message),
        },
        Err(_) => Event::Unreadable(text.to_owned()),
    };
    drop(events.send(event).await);
}

enum Taken {
    Awaited(oneshot::Sender<Message>),
    Unknown,
    Over,
}

fn take(calls: &PendingByCorrelation, answer: &Message) -> Taken {
    let mut calls = lock(calls);
    let Some(calls) = calls.as_mut() else { return Taken::Over };
    let id = &answer.ids.correlation;
    let matches =
        |pending: &Pending| pending.method == answer.method && pending.ids.instance == answer.ids.instance;
    match calls.remove(id) {
        Some(pending) if matches(&pending) => Taken::Awaited(pending.answer),
        Some(other) => {
            calls.insert(id.clone(), other);
            Taken::Unknown
        }
        None => Taken::Unknown,
    }
}

/// Header and first half of the payload. A client's frame is masked with a key of zeros, which
/// leaves the payload as it is.
fn half_a_frame(text: &str, masked: bool) -> Vec<u8> {
    let mask_bit = if masked { 0x80 } else { 0 };
    let mut frame = vec![0x81, mask_bit | 127];
    frame.extend_from_slice(&(text.len() as u64).to_be_bytes());
    if masked {
        frame.extend_from_slice(&[0; 4]);
    }
    frame.extend_from_slice(&text.as_bytes()[..text.len() / 2]);
    frame
}

fn close_frame(code: u16) -> CloseFrame {
    CloseFrame { code: code.into(), reason: Utf8Bytes::default() }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;

    use super::*;
    use crate::envelope::{Refusal, answer, refusal};

    async fn pair() -> [(Carrier, mpsc::Receiver<Event>); 2] {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let open = async |stream: DuplexStream, role| {
            let socket = WebSocketStream::from_raw_socket(stream, role, Some(socket_config())).await;
            Carrier::start(socket, role)
        };
        [open(near, Role::Client).await, open(far, Role::Server).await]
    }

    async fn asked(events: &mut mpsc::Receiver<Event>) -> Message {
        match events.recv().await {
            Some(Event::Request(message, _)) => message,
            other => panic!("no request but {other:?}"),
        }
    }

    /// Answers reach their calls by id, in whatever order they come; an answer without the
    /// instance id of its request reaches none.
    #[tokio::test]
    async fn answers_find_their_calls() {
        let [(client, _client_events), (server, mut events)] = pair().await;
        let bound = Duration::from_secs(5);
        let first = tokio::spawn({
            let client = client.clone();
            async move { client.call("a", "1", bound).await }
        });
        let one = asked(&mut events).await;
        let second = tokio::spawn(async move { client.call("a", "2", bound).await });
        let two = asked(&mut events).await;
        server.send_text(answer("a", "0", &Ids { instance: None, ..one.ids.clone() })).await;
        server.send_text(answer("a", two.request(), &two.ids)).await;
        server.send_text(refusal("a", &Refusal::new("no"), &one.ids)).await;
        assert_eq!(second.await.unwrap().unwrap().response(), "2");
        assert_eq!(first.await.unwrap().unwrap().outcome().unwrap_err().text, "no");
    }

    /// A frame that breaks off, a close and a cut each end the call that waits.
    #[tokio::test]
    async fn a_torn_connection_ends_the_call() {
        for way in 0..3 {
            let [(client, mut ended), (server, mut events)] = pair().await;
            let call = tokio::spawn(async move { client.call("a", "{}", Duration::from_secs(5)).await });
            let message = asked(&mut events).await;
            match way {
                0 => server.cut_within(answer("a", "{}", &message.ids)).await,
                1 => server.close(Some(4000)).await,
                _ => server.cut(),
            }
            assert_eq!(call.await.unwrap().unwrap_err(), CallFailure::NotConnected);
            let Some(Event::Closed(closing)) = ended.recv().await else { panic!("no end") };
            assert_eq!(closing.code, (way == 1).then_some(4000));
        }
    }
}
