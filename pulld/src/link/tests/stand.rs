//! A link to pulld with a relayd, a supervisor and a registry that do what a test says.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use coreflow_ipc::{
    hello::{Hello, Role},
    link::{Descriptors, LinkReceiver, LinkSender},
    messages::{
        pulld::PulldStart,
        pulls::{
            AnswerBody, AnswerHeader, PullAnswer, PullId, PullRequest, PulldToRelayd, RegistryFailure,
            RelaydToPulld, RequestHeader, StreamId,
        },
        standing::PulldStanding,
    },
    peer::greet,
};
use rcgen::{CertificateParams, KeyPair};
use rustls::{ServerConfig, crypto::ring};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
};

use super::super::Configured;
use crate::{counts::Exchanged, dials::Dials, life, notices::Notices, registry::Protocol};

pub(super) const RELAY: &str = "https://relay.test:8443";

/// What is not served by a script.
pub(super) struct Stand {
    pub(super) registry: Arc<TcpListener>,
    /// How often the registry was dialled.
    pub(super) dialled: Arc<AtomicUsize>,
    pub(super) origin: String,
    dials: Arc<Dials>,
    configured: Arc<Configured>,
    exchanged: Arc<Exchanged>,
    stop: watch::Sender<bool>,
    sender: LinkSender<RelaydToPulld>,
    receiver: LinkReceiver<PulldToRelayd>,
    streams: Vec<(StreamId, UnixStream)>,
    pulls: PullId,
    given: StreamId,
}

/// A registry's certificate, and what it serves with it.
pub(super) fn certificate(host: &str, protocols: &[&str]) -> (Vec<u8>, Arc<ServerConfig>) {
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec![host.to_owned()]).unwrap().self_signed(&key).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], key.serialize_der().try_into().unwrap())
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    (own.der().to_vec(), Arc::new(config))
}

impl Stand {
    /// A registry without TLS.
    pub(super) async fn new() -> Self {
        Self::of("http", Vec::new(), None).await
    }

    /// A registry with TLS, whose certificate is trusted if it is among `anchors`.
    pub(super) async fn tls(anchors: Vec<Vec<u8>>) -> Self {
        Self::of("https", anchors, None).await
    }

    /// A registry to which no connection is made.
    pub(super) async fn unreachable(failure: RegistryFailure) -> Self {
        Self::of("http", Vec::new(), Some(failure)).await
    }

    async fn of(scheme: &str, trust_anchors: Vec<Vec<u8>>, failure: Option<RegistryFailure>) -> Self {
        let registry = Arc::new(TcpListener::bind(("127.0.0.1", 0)).await.unwrap());
        let address = registry.local_addr().unwrap();
        let origin = format!("{scheme}://127.0.0.1:{}", address.port());
        let (dials, mut asked) = Dials::new();
        let dialled = Arc::new(AtomicUsize::new(0));
        let supervisor = Arc::clone(&dials);
        let counted = Arc::clone(&dialled);
        tokio::spawn(async move {
            while let Some(id) = asked.recv().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let answer = match failure {
                    Some(failure) => Err(failure),
                    None => {
                        let stream = TcpStream::connect(address).await.unwrap();
                        Ok(OwnedFd::from(stream.into_std().unwrap()))
                    }
                };
                assert!(supervisor.answered(id, answer));
            }
        });
        let start = PulldStart { registry_origin: origin.clone(), relay_origin: RELAY.into(), trust_anchors };
        let configured = Arc::<Configured>::default();
        life::configure(start, &dials, &configured);
        let (own, end) = std::os::unix::net::UnixStream::pair().unwrap();
        let (notices, exchanged) = (Arc::<Notices>::default(), Arc::<Exchanged>::default());
        let stop = watch::Sender::new(false);
        let stopped = stop.subscribe();
        let (to, counts) = (Arc::clone(&configured), Arc::clone(&exchanged));
        let serving = super::super::serve(end.into(), to, notices, counts, stopped);
        tokio::spawn(serving);
        let greeted = greet(own.into(), Descriptors::Refused, Role::Relayd, Role::Pulld).await;
        let (sender, receiver) = greeted.unwrap();
        let (streams, pulls, given) = (Vec::new(), 0, 0);
        Self {
            registry,
            dialled,
            origin,
            dials,
            configured,
            exchanged,
            stop,
            sender,
            receiver,
            streams,
            pulls,
            given,
        }
    }

    /// It was found not to speak HTTP/1.1.
    pub(super) fn refuses_http1(&self) {
        self.dials.not_spoken(Protocol::Http1);
    }

    /// The supervisor stops pulld.
    pub(super) fn stop(&self) {
        life::stop_exchanges(&self.configured, &self.stop);
    }

    /// The relay's origin changes.
    pub(super) fn relay_is(&self, relay_origin: &str) {
        let (registry_origin, relay_origin) = (self.origin.clone(), relay_origin.to_owned());
        let start = PulldStart { registry_origin, relay_origin, trust_anchors: Vec::new() };
        life::configure(start, &self.dials, &self.configured);
    }

    /// How pulld stands, once no more than `exchanges` are under way.
    pub(super) async fn standing(&self, exchanges: u32) -> PulldStanding {
        for _ in 0..10_000 {
            let standing = life::standing(&self.dials, &self.exchanged);
            if standing.exchanges <= exchanges {
                return standing;
            }
            tokio::task::yield_now().await;
        }
        panic!("the exchanges do not end")
    }

    pub(super) fn dials(&self) -> usize {
        self.dialled.load(Ordering::Relaxed)
    }

    /// Hands over a socket pair's end.
    pub(super) async fn give_stream(&mut self) {
        let (own, end) = std::os::unix::net::UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        self.given += 1;
        let message = RelaydToPulld::Stream { stream: self.given };
        self.sender.send(&message, &[end.as_fd()]).await.unwrap();
        self.streams.push((self.given, UnixStream::from_std(own).unwrap()));
    }

    pub(super) async fn say(&mut self, message: RelaydToPulld) {
        self.sender.send(&message, &[]).await.unwrap();
    }

    /// Says a second hello.
    pub(super) async fn stop_in_disorder(&mut self) {
        self.say(RelaydToPulld::Hello(Hello::of(Role::Relayd))).await;
    }

    pub(super) async fn pull(&mut self, target: &str) -> PullId {
        self.ask(false, target, Vec::new()).await
    }

    pub(super) async fn ask(
        &mut self,
        head: bool,
        target: &str,
        headers: Vec<(RequestHeader, Vec<u8>)>,
    ) -> PullId {
        self.pulls += 1;
        let request = PullRequest { head, target: target.into(), headers };
        self.say(RelaydToPulld::Pull { id: self.pulls, request }).await;
        self.pulls
    }

    pub(super) async fn message(&mut self) -> Option<PulldToRelayd> {
        Some(self.receiver.receive().await.ok()?.message)
    }

    pub(super) async fn answer(&mut self) -> (PullId, PullAnswer) {
        let Some(PulldToRelayd::Answer { id, answer }) = self.message().await else { panic!("no answer") };
        (id, answer)
    }

    pub(super) async fn failure(&mut self) -> RegistryFailure {
        let Some(PulldToRelayd::Failed { failure, .. }) = self.message().await else { panic!("no failure") };
        failure
    }

    /// The end of the socket pair that `answer` names.
    pub(super) fn stream(&mut self, answer: &PullAnswer) -> UnixStream {
        let AnswerBody::Stream(named) = answer.body else { panic!("the body comes over no stream") };
        let at = self.streams.iter().position(|(stream, _)| *stream == named).unwrap();
        self.streams.remove(at).1
    }

    /// The rest of what comes over `stream`, and whether it was said to be all.
    pub(super) async fn rest(&mut self, mut stream: UnixStream) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        stream.read_to_end(&mut body).await.unwrap();
        let said = self.message().await.unwrap();
        let (ended, cut) =
            (matches!(said, PulldToRelayd::Ended { .. }), matches!(said, PulldToRelayd::Cut { .. }));
        assert!(ended || cut, "something else was said");
        (body, ended)
    }

    pub(super) async fn accept(&self) -> Conversation<TcpStream> {
        let (stream, _) = self.registry.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        Conversation(stream)
    }
}

/// The registry's side of a connection.
pub(super) struct Conversation<S>(pub(super) S);

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    /// The head of the next request; empty when the connection ends.
    pub(super) async fn request(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match self.0.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => break,
            }
        }
        String::from_utf8(head).unwrap()
    }

    pub(super) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
        self.0.flush().await.unwrap();
    }
}

/// The values of `header` in `answer`.
pub(super) fn values(answer: &PullAnswer, header: AnswerHeader) -> Vec<String> {
    let of = answer.headers.iter().filter(|(name, _)| *name == header);
    of.map(|(_, value)| String::from_utf8(value.clone()).unwrap()).collect()
}

pub(super) fn whole(answer: PullAnswer) -> Vec<u8> {
    match answer.body {
        AnswerBody::Whole(body) => body,
        AnswerBody::Nothing => panic!("there is no body"),
        AnswerBody::Stream(_) => panic!("the body comes over a stream"),
    }
}
