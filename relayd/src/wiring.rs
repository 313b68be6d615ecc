//! Relayd's one loop: it hands events to the core and performs its effects, in order.
//!
//! It makes no decision about meaning; those are the machines'.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::Arc,
};

use coreflow_ipc::{
    hello::{HelloError, Role},
    link::LinkError,
    messages::relayd::{FromRelayd, RelaydStart, ToRelayd},
    now::Clock,
    typedrequest::Body,
    worker::{Confined, Life, StartError, Told},
};
use fastrand::Rng;
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
    time::{Instant, Sleep, sleep_until, timeout},
};
use tracing::{debug, warn};

use crate::{
    certificate::{self, Serving},
    constants::{CLOCK_LOOK, CLOSE_BUDGET, CLOUDLY_QUEUE_BYTES, CORE_QUEUE, EVENTS_AT_ONCE, HUB_QUEUE},
    core::{Beside, CallFailure, Core, Effect, Event, Read},
    forwarder::Socket,
    hub,
    listener::{self, Counts, FromListener, Parts, Sockets},
    peers::Peers,
    session::{self, Connection, dial::Dialer},
    start::{self, ReadRequest, Started},
    supervisor::Supervisor,
    websocket::Outlet,
};

mod cloudly;

use cloudly::{Dial, FromSession};

/// What the loop turns to next.
enum Next {
    Told(Result<Told<ToRelayd>, LinkError>),
    Started(Started),
    Read(ReadRequest),
    Tick,
    Cloudly(FromSession),
    Node(FromListener),
    Vpnd(hub::Told),
    Validated(Event),
    ListenerEnded,
}

/// Serves until the supervisor stops this worker or its link ends.
pub async fn serve(confined: Confined) -> Result<(), StartError> {
    let mut life = confined.join::<FromRelayd, ToRelayd>(Role::Relayd).await?;
    let start = match life.told().await.map_err(StartError::Link)? {
        Told::Message(ToRelayd::Start(start), _) => start,
        // Nothing was asked yet, and no other worker is linked before the start.
        Told::Message(..) | Told::Peer(..) => return Err(StartError::Hello(HelloError::Missing)),
        Told::Stop => {
            life.stopped().await;
            return Ok(());
        }
    };
    let mut relayd = Relayd::new(&life, start)?;
    life.answer_pings_through(relayd.listener_runtime.clone());
    let ended = relayd.run(&mut life).await;
    drop(relayd);
    ended?;
    life.stopped().await;
    Ok(())
}

/// Waits until the listener accepts no more although it was not told to stop.
async fn ended(accepting: &mut Option<listener::Accepting>) {
    let Some(task) = accepting else { return std::future::pending().await };
    let outcome = task.await;
    *accepting = None;
    if let Ok(Ok(())) = outcome {
        std::future::pending().await
    }
}

struct Relayd {
    clock: Clock,
    core: Core,
    supervisor: Supervisor,
    dialer: Arc<Dialer>,
    peers: Peers,
    listener_runtime: Handle,
    accepting: Option<listener::Accepting>,
    cloudly: Option<(Connection, Outlet)>,
    cloudly_behind: bool,
    dials: BTreeMap<Connection, Dial>,
    serving: Option<Arc<Serving>>,
    nodes: BTreeMap<Socket, Outlet>,
    counts: Arc<Counts>,
    readers: BTreeMap<u64, oneshot::Sender<Result<Body, CallFailure>>>,
    next_read: u64,
    dispatchable: watch::Sender<bool>,
    stop_accepting: watch::Sender<bool>,
    session: (mpsc::Sender<FromSession>, mpsc::Receiver<FromSession>),
    listener: (mpsc::Sender<FromListener>, mpsc::Receiver<FromListener>),
    reads: (mpsc::Sender<ReadRequest>, mpsc::Receiver<ReadRequest>),
    started: (mpsc::Sender<Started>, mpsc::Receiver<Started>),
    vpnd: mpsc::Receiver<hub::Told>,
    validated: (mpsc::Sender<Event>, mpsc::Receiver<Event>),
    timer: Pin<Box<Sleep>>,
    jitter: Rng,
    drained: bool,
}

impl Relayd {
    fn new(life: &Life<FromRelayd, ToRelayd>, start: RelaydStart) -> Result<Self, StartError> {
        let clock = Clock::start();
        let dialer =
            Dialer::new(start.cloudly, &start.trust_anchors).map_err(|error| StartError::Own(error.code))?;
        let listener_runtime = listener::thread().map_err(|error| StartError::Runtime(error.kind()))?;
        let supervisor = Supervisor::new(life.outbox.clone(), clock);
        let (told, vpnd) = mpsc::channel(HUB_QUEUE);
        Ok(Self {
            clock,
            core: Core::resume(start.kept),
            dialer: Arc::new(dialer),
            peers: Peers::new(supervisor.clone(), listener_runtime.clone(), told),
            supervisor,
            listener_runtime,
            accepting: None,
            cloudly: None,
            cloudly_behind: false,
            dials: BTreeMap::new(),
            serving: None,
            nodes: BTreeMap::new(),
            counts: Arc::default(),
            readers: BTreeMap::new(),
            next_read: 0,
            dispatchable: watch::Sender::new(false),
            stop_accepting: watch::Sender::new(false),
            session: mpsc::channel(CORE_QUEUE),
            listener: mpsc::channel(CORE_QUEUE),
            reads: mpsc::channel(4),
            started: mpsc::channel(4),
            vpnd,
            validated: mpsc::channel(1),
            timer: Box::pin(sleep_until(Instant::now())),
            jitter: Rng::with_seed(getrandom::u64().expect("the kernel's random source answers after boot")),
            drained: false,
        })
    }

    async fn run(&mut self, life: &mut Life<FromRelayd, ToRelayd>) -> Result<(), StartError> {
        self.handle(Event::Session(session::Event::Started)).await;
        let starting = tokio::spawn(start::run(
            self.supervisor.clone(),
            self.reads.0.clone(),
            self.dispatchable.subscribe(),
            self.started.0.clone(),
            self.clock,
        ));
        let ended = loop {
            if self.drained {
                break Ok(());
            }
            match self.next(life).await {
                Next::Told(Ok(told)) => self.told(told).await,
                Next::Told(Err(error)) => break Err(StartError::Link(error)),
                // The supervisor binds another one for the next relayd, which nodes dial; this one would never hear them.
                Next::ListenerEnded => {
                    break Err(StartError::Own(
                        "listener-ended: its socket does not listen any more".to_owned(),
                    ));
                }
                Next::Started(started) => self.started(started).await,
                Next::Read(read) => {
                    self.next_read += 1;
                    self.readers.insert(self.next_read, read.answer);
                    let read = Read { number: self.next_read, call: read.call };
                    self.handle(Event::Read(read)).await;
                }
                Next::Tick => self.handle(Event::Tick).await,
                Next::Vpnd(told) => self.handle(Event::Vpnd(told)).await,
                Next::Validated(event) => self.handle(event).await,
                Next::Cloudly(event) => {
                    self.session_event(event).await;
                    self.what_waits().await;
                }
                Next::Node(event) => {
                    self.listener_event(event).await;
                    self.what_waits().await;
                }
            }
        };
        starting.abort();
        if ended.is_ok() {
            self.close_sockets().await;
        }
        ended
    }

    /// The supervisor first, so that a stop is never starved; then the start, whose steps are few; then
    /// deadlines, which no flood of a peer may hold back; then vpnd, which says little, and its networks; then the
    /// peers.
    async fn next(&mut self, life: &mut Life<FromRelayd, ToRelayd>) -> Next {
        let now = self.clock.now();
        let look = now.mono + CLOCK_LOOK;
        let deadline = self.core.next_deadline(now).map_or(look, |deadline| deadline.min(look));
        let deadline = Instant::from_std(self.clock.instant(deadline));
        // One that fires early costs a look; moving it with each event would cost more.
        if deadline < self.timer.deadline() || self.timer.is_elapsed() {
            self.timer.as_mut().reset(deadline);
        }
        let (session, listener) = (&mut self.session.1, &mut self.listener.1);
        // Cloudly and the nodes by turns, as chance has it: neither can hold the other back.
        let peers = async {
            tokio::select! {
                Some(event) = session.recv() => Next::Cloudly(event),
                Some(event) = listener.recv() => Next::Node(event),
            }
        };
        tokio::select! {
            biased;
            told = life.told() => Next::Told(told),
            Some(started) = self.started.1.recv() => Next::Started(started),
            Some(read) = self.reads.1.recv() => Next::Read(read),
            () = &mut self.timer => Next::Tick,
            Some(told) = self.vpnd.recv() => Next::Vpnd(told),
            Some(event) = self.validated.1.recv() => Next::Validated(event),
            () = ended(&mut self.accepting) => Next::ListenerEnded,
            next = peers => next,
        }
    }

    /// A bounded number of what the peers sent meanwhile, by turns, before the supervisor and the
    /// deadlines are looked at again.
    async fn what_waits(&mut self) {
        for _ in 0..EVENTS_AT_ONCE {
            if self.drained {
                return;
            }
            let (cloudly, node) = (self.session.1.try_recv(), self.listener.1.try_recv());
            if cloudly.is_err() && node.is_err() {
                return;
            }
            if let Ok(event) = cloudly {
                self.session_event(event).await;
            }
            if let Ok(event) = node {
                self.listener_event(event).await;
            }
        }
    }

    async fn told(&mut self, told: Told<ToRelayd>) {
        match told {
            Told::Peer(role, end) => self.peers.linked(role, end),
            Told::Message(ToRelayd::HubUnavailable(why), _) => {
                self.handle(Event::Vpnd(hub::Told::Unavailable { why })).await;
            }
            Told::Message(ToRelayd::AskStanding { id }, _) => {
                let standing = Box::new(self.core.standing(self.beside(), self.clock.now()));
                self.supervisor.offer(FromRelayd::AnswerStanding { id, standing });
            }
            Told::Message(ToRelayd::AskNodes { id, after }, _) => {
                let page = self.core.nodes(after.as_deref());
                self.supervisor.offer(FromRelayd::AnswerNodes { id, page });
            }
            Told::Message(message, descriptors) => self.supervisor.settle(message, descriptors),
            Told::Stop => {
                debug!("relayd was told to stop");
                self.stop_accepting.send_replace(true);
                self.handle(Event::Stop).await;
            }
        }
    }

    /// What is counted beside the core.
    fn beside(&self) -> Beside {
        Beside {
            sockets: u32::try_from(self.nodes.len()).unwrap_or(u32::MAX),
            pulls_under_way: self.peers.pulls().under_way(),
            pulls: self.counts.pulls(),
            pulls_refused: self.counts.pulls_refused(),
            connections_refused: self.counts.refused(),
        }
    }

    async fn started(&mut self, started: Started) {
        match started {
            Started::Document(served) => self.handle(Event::Started(served)).await,
            Started::WithoutListener => self.supervisor.tell(FromRelayd::Open).await,
            Started::Listening { listener, certificate, endpoint } => {
                let serving = Arc::new(Serving::new(&certificate));
                drop(certificate);
                let tls = certificate::server_config(Arc::clone(&serving));
                self.serving = Some(serving);
                let sockets = Sockets::new(self.listener.0.clone(), self.dispatchable.subscribe());
                let (pulls, stop) = (self.peers.pulls(), self.stop_accepting.subscribe());
                let counts = Arc::clone(&self.counts);
                let parts = Parts { listener, tls, pulls, sockets, stop, counts };
                match listener::start(&self.listener_runtime, parts) {
                    Ok(accepting) => self.accepting = Some(accepting),
                    Err(failure) => {
                        let cause = format!("the listener cannot accept: {}", failure.kind());
                        return self.supervisor.tell(FromRelayd::StartFailed { cause }).await;
                    }
                }
                self.supervisor.tell(FromRelayd::Open).await;
                self.handle(Event::Listening(Box::new(endpoint))).await;
            }
            Started::Failed(cause) => self.supervisor.tell(FromRelayd::StartFailed { cause }).await,
        }
    }

    /// What is still queued for Cloudly and the nodes goes out, and each socket is closed in order,
    /// within a bound.
    async fn close_sockets(&mut self) {
        self.cloudly = None;
        // A dial has nothing to say goodbye to.
        self.dials.retain(|_, dial| {
            if !dial.opened {
                dial.task.abort();
            }
            dial.opened
        });
        let mut open: BTreeSet<Socket> = std::mem::take(&mut self.nodes).into_keys().collect();
        let closing = async {
            while !(self.dials.is_empty() && open.is_empty()) {
                tokio::select! {
                    Some(event) = self.session.1.recv() => {
                        if let FromSession::Event(Event::Session(session::Event::Closed { connection })) = event {
                            self.dials.remove(&connection);
                        }
                    }
                    Some(event) = self.listener.1.recv() => {
                        if let FromListener::Closed { socket } = event {
                            open.remove(&socket);
                        }
                    }
                }
            }
        };
        if timeout(CLOSE_BUDGET, closing).await.is_err() {
            debug!("not every socket was closed in order");
        }
    }

    async fn listener_event(&mut self, event: FromListener) {
        match event {
            FromListener::Opened { socket, outlet } => {
                self.nodes.insert(socket, outlet);
            }
            FromListener::Envelope { socket, envelope, room } => {
                drop(room);
                let waits = self.cloudly.as_ref().map_or(0, |(_, outlet)| outlet.waiting_bytes());
                self.core.uplink_full(waits > CLOUDLY_QUEUE_BYTES / 2);
                self.handle(Event::FromNode { socket, envelope }).await;
            }
            FromListener::Closed { socket } => {
                self.nodes.remove(&socket);
                self.handle(Event::NodeClosed { socket }).await;
            }
        }
    }

    async fn handle(&mut self, event: Event) {
        let random = self.jitter.u32(..);
        for effect in self.core.handle(event, self.clock.now(), random) {
            self.perform(effect).await;
        }
    }

    async fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::AskIdentity => self.ask_identity(),
            Effect::Dial(connection) => {
                let dial = Dial { task: self.dial(connection), opened: false };
                self.dials.insert(connection, dial);
            }
            Effect::Hangup(connection) => {
                if let Some((_, outlet)) = self.cloudly.take_if(|(open, _)| *open == connection) {
                    // Dropping the outlet sends what is queued before the socket is closed.
                    drop(outlet);
                }
            }
            Effect::ToCloudly { connection, frame } => self.send_cloudly(connection, frame),
            Effect::ToNode { socket, frame } => self.send_node(socket, frame),
            Effect::CloseNode(socket) => {
                if let Some(outlet) = self.nodes.get(&socket) {
                    outlet.hangup();
                }
            }
            Effect::Answer { read, result } => {
                if let Some(reader) = self.readers.remove(&read.number) {
                    let _ = reader.send(result);
                }
            }
            Effect::Dispatchable(dispatchable) => {
                self.dispatchable.send_replace(dispatchable);
            }
            Effect::Waiting(what) => self.supervisor.tell(FromRelayd::Waiting { what }).await,
            Effect::ValidateNetwork { job, body } => {
                let validated = self.validated.0.clone();
                tokio::task::spawn_blocking(move || {
                    let carried = hub::read_carried(&body);
                    let _ = validated.blocking_send(Event::NetworkValidated { job, carried });
                });
            }
            Effect::ApplyNetwork { link, id, snapshot } => self.peers.apply(link, id, snapshot),
            Effect::Serve(loaded) => {
                if let Some(serving) = &self.serving {
                    serving.replace(&loaded);
                }
            }
            Effect::Keep(kept) => self.supervisor.tell(FromRelayd::Keep(kept)).await,
            Effect::State(statement) => statement.log(),
            Effect::Readiness(refusals) => self.supervisor.tell(FromRelayd::Readiness { refusals }).await,
            Effect::Drained => self.drained = true,
        }
    }

    fn send_node(&self, socket: Socket, frame: String) {
        let Some(outlet) = self.nodes.get(&socket) else { return };
        if self.core.carries(socket) {
            outlet.prove();
        }
        if !outlet.send(frame) && !outlet.ended() && outlet.hangup() {
            warn!(socket, "a node does not take what it is sent; its socket is closed");
        }
    }
}
