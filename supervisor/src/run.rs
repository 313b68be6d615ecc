//! The supervisor's one loop: it judges the workers, answers relayd, feeds the watchdog and carries
//! out a stop. Nothing in it sleeps or waits for a worker.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use coreflow_ipc::{
    hello::Role,
    messages::{ToWorker, relayd::*},
    now::Clock,
    record::{Level, Verbosity},
};
use rustls::ClientConfig;
use tokio::{
    sync::mpsc,
    task::AbortHandle,
    time::{Instant, sleep_until},
};
use tracing::{debug, error, info, warn};

use crate::{
    bearer::Bearer,
    configuration::{CloudlyUrl, ConfigurationReader},
    constants::{CONTROL_CONNECTIONS, EVENT_QUEUE},
    control::{ControlSocket, serving::Asked},
    custody::Custody,
    latest::Latest,
    metrics,
    notify::Notify,
    peer_links::PeerLinks,
    process::{Event, Happened, Process},
    programs::Programs,
    readiness, registry,
    sockets::ListenerSocket,
    spawn::{Death, spawn},
    status::LayerState,
    stopping::Stopping,
    supervision::{self, Supervision},
    trace::Taps,
    trust::TrustAnchors,
    worker_asks::WorkerAsks,
};

mod answers;
mod asked;
mod hub;
mod links;
mod looks;
mod pulls;
mod said;
mod standing;
mod stop;

use answers::Answered;

/// What reaches the loop from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Stop in order; the second one ends everything at once (START-10, START-13).
    Stop,
    /// Switch between `info` and `trace`.
    ToggleVerbosity,
}

/// How the loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Stopped, and the stop completed (START-11).
    Stopped,
    /// Stopped, and the stop failed (START-12).
    StopFailed,
    /// A second signal came while the relay stopped (START-13).
    Interrupted,
    /// The start failed (START-15).
    StartFailed(String),
}

/// What the loop is given.
pub struct Inputs {
    /// The rest of the launch facts' reader, for those of the listener.
    pub reader: ConfigurationReader,
    /// Where Cloudly answers.
    pub cloudly: CloudlyUrl,
    /// The one bearer.
    pub bearer: Bearer,
    /// Whom Cloudly's chain may end in.
    pub trust: TrustAnchors,
    /// The workers' executables.
    pub programs: Programs,
    /// Tells systemd.
    pub notify: Notify,
    /// Where `coreflowctl` asks, if anywhere.
    pub control: Option<ControlSocket>,
    /// What the supervisor writes.
    pub verbosity: Verbosity,
}

/// One worker: its restarts, and its process while it has one.
struct Worker {
    supervision: Supervision,
    process: Option<Process>,
    processes: u64,
    /// When its last process was started.
    since: Duration,
    /// What it is asked for whoever looks.
    asks: WorkerAsks,
    /// The quietest record of it that is written, through all its processes.
    level: Level,
    /// What its process said of its confinement.
    layers: Vec<LayerState>,
}

impl Worker {
    fn new(level: Level) -> Self {
        Self {
            supervision: Supervision::default(),
            process: None,
            processes: 0,
            since: Duration::ZERO,
            asks: WorkerAsks::default(),
            level,
            layers: Vec::new(),
        }
    }
}

/// The loop's state.
pub struct Supervisor {
    clock: Clock,
    reader: ConfigurationReader,
    cloudly: CloudlyUrl,
    bearer: Arc<Bearer>,
    trust: TrustAnchors,
    tls: Arc<ClientConfig>,
    programs: Programs,
    notify: Notify,
    waiting: Latest,
    verbosity: Verbosity,
    custody: Custody,
    readiness: readiness::Kept,
    listener: ListenerSocket,
    facts: Option<ListenerFacts>,
    hub: hub::Hub,
    relay_origin: String,
    workers: BTreeMap<Role, Worker>,
    events: (mpsc::Sender<Event>, mpsc::Receiver<Event>),
    answers: (mpsc::Sender<Answered>, mpsc::Receiver<Answered>),
    asks: (mpsc::Sender<Asked>, mpsc::Receiver<Asked>),
    control: Option<ControlSocket>,
    looks: standing::Looks,
    taps: Taps,
    counters: metrics::Counters,
    exchanging: Option<AbortHandle>,
    resolving: usize,
    dialing: usize,
    dials: registry::Dials,
    links: PeerLinks,
    opened: bool,
    stopping: Option<Stopping>,
    start_failed_by: Option<String>,
    ended: Option<Ended>,
    watchdog_at: Option<Duration>,
}

impl Supervisor {
    /// A loop over `inputs`; inside its runtime.
    pub fn new(inputs: Inputs) -> Self {
        let clock = Clock::start();
        let workers = Role::WORKERS.map(|role| (role, Worker::new(inputs.verbosity.level())));
        Self {
            clock,
            reader: inputs.reader,
            cloudly: inputs.cloudly,
            bearer: Arc::new(inputs.bearer),
            tls: inputs.trust.client_config(),
            trust: inputs.trust,
            programs: inputs.programs,
            watchdog_at: inputs.notify.watchdog_interval().map(|interval| clock.now().mono + interval),
            notify: inputs.notify,
            waiting: Latest::default(),
            verbosity: inputs.verbosity,
            custody: Custody::default(),
            readiness: readiness::Kept::default(),
            listener: ListenerSocket::default(),
            facts: None,
            hub: hub::Hub::default(),
            relay_origin: String::new(),
            workers: BTreeMap::from(workers),
            events: mpsc::channel(EVENT_QUEUE),
            answers: mpsc::channel(EVENT_QUEUE),
            asks: mpsc::channel(CONTROL_CONNECTIONS),
            control: inputs.control,
            looks: standing::Looks::default(),
            taps: Taps::new(clock),
            counters: metrics::Counters::default(),
            exchanging: None,
            resolving: 0,
            dialing: 0,
            dials: registry::Dials::default(),
            links: PeerLinks::default(),
            opened: false,
            stopping: None,
            start_failed_by: None,
            ended: None,
        }
    }

    /// Runs the relay to its end.
    pub async fn run(mut self, commands: &mut mpsc::Receiver<Command>) -> Ended {
        self.note_readiness();
        // The file goes with the loop, however that ends.
        let _file = self.control.take().and_then(|control| self.serve_control(control));
        self.judge(Role::Relayd, supervision::Event::Wanted);
        loop {
            if let Some(ended) = self.ended.take() {
                self.end_workers();
                return ended;
            }
            let deadline = self.next_deadline().map(|mono| Instant::from_std(self.clock.instant(mono)));
            // A command first, so that no flood of a worker holds back a stop; then deadlines, the
            // watchdog's among them; then answers that relayd waits for; then a look from outside, of which
            // a bounded number waits; then the workers.
            tokio::select! {
                biased;
                Some(command) = commands.recv() => self.command(command),
                () = async { sleep_until(deadline.expect("guarded")).await }, if deadline.is_some() => self.tick(),
                Some(answered) = self.answers.1.recv() => self.answered(answered),
                Some(asked) = self.asks.1.recv() => self.asked(asked),
                Some(event) = self.events.1.recv() => self.event(event).await,
            }
        }
    }

    fn mono(&self) -> Duration {
        self.clock.now().mono
    }

    fn next_deadline(&self) -> Option<Duration> {
        let workers = self.workers.values().filter_map(|worker| worker.supervision.next_deadline());
        let stopping = self.stopping.as_ref().and_then(Stopping::next_deadline);
        let told = self.notify.next_deadline().into_iter().chain(self.waiting.next_deadline());
        let links = if self.stopping.is_none() { self.links.next_deadline() } else { None };
        let held = self.listener.next_deadline();
        let asks = self.workers.values().filter_map(|worker| worker.asks.next_deadline());
        let workers = workers.chain(asks);
        workers.chain(stopping).chain(held).chain(links).chain(self.watchdog_at).chain(told).min()
    }

    fn tick(&mut self) {
        let mono = self.mono();
        for role in Role::WORKERS {
            self.judge(role, supervision::Event::Tick);
            self.give_up_asks(role);
        }
        if let Some(stopping) = &mut self.stopping {
            let actions = stopping.tick(mono);
            self.stop_actions(actions);
        }
        if self.listener.close_if_due(mono) {
            warn!("relayd does not serve: the listener is closed until it is open again");
        }
        if let (Some(at), Some(interval)) = (self.watchdog_at, self.notify.watchdog_interval())
            && at <= mono
        {
            self.notify.alive(mono);
            self.watchdog_at = Some(mono + interval);
        }
        self.make_links();
        self.notify.tick(mono);
        self.tell_waiting();
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Stop if self.stopping.is_some() => {
                let left = self.workers.iter().filter(|(_, worker)| worker.process.is_some());
                let left: Vec<&str> = left.map(|(role, _)| role.name()).collect();
                let left = left.join(", ");
                warn!(left, "a second signal came while the relay stops: it ends at once");
                self.ended = Some(Ended::Interrupted);
            }
            Command::Stop => self.stop(),
            Command::ToggleVerbosity => {
                let level = if self.verbosity.admits(Level::Trace) { Level::Info } else { Level::Trace };
                info!("the log level is {}", level.name());
                for role in [Role::Supervisor].into_iter().chain(Role::WORKERS) {
                    self.set_level(role, level);
                }
            }
        }
    }

    fn judge(&mut self, role: Role, event: supervision::Event) {
        let mono = self.mono();
        let worker = self.workers.get_mut(&role).expect("each role has its worker");
        match worker.supervision.handle(event, mono) {
            None => {}
            Some(supervision::Action::Spawn) => self.spawn(role),
            Some(supervision::Action::Ping(number)) => {
                let taken =
                    worker.process.as_ref().map(|process| process.tell(ToWorker::Ping(number), Vec::new()));
                if matches!(taken, Some(Err(_))) {
                    self.fail(role, "it does not take its messages");
                }
            }
            Some(supervision::Action::Stop) => {
                let taken = worker.process.as_ref().map(|process| process.tell(ToWorker::Stop, Vec::new()));
                if matches!(taken, Some(Err(_))) {
                    self.fail(role, "it does not take its messages");
                }
            }
            Some(supervision::Action::Kill(why)) => {
                warn!(worker = role.name(), "the worker is killed: {}", why.words());
                if let Some(process) = &worker.process {
                    process.kill();
                }
            }
        }
    }

    fn spawn(&mut self, role: Role) {
        let program = match (role, &self.programs.vpnd) {
            (Role::Relayd | Role::Supervisor, _) => &self.programs.relayd,
            (Role::Pulld, _) => &self.programs.pulld,
            (Role::Vpnd, Ok(program)) => program,
            (Role::Vpnd, Err(error)) => {
                self.hub.unavailable(error);
                return self.judge(role, supervision::Event::Unwanted);
            }
        };
        let port = (role == Role::Relayd).then(|| self.cloudly.port());
        let worker = self.workers.get_mut(&role).expect("each role has its worker");
        worker.processes += 1;
        worker.since = self.clock.now().mono;
        let spawned = spawn(role, program, port).and_then(|spawned| {
            Process::watch(role, worker.processes, spawned, &self.events.0, self.taps.of(role))
        });
        match spawned {
            Ok(process) => {
                debug!(worker = role.name(), pid = process.pid, "the worker is started");
                let _ = process
                    .tell(ToWorker::Hello(coreflow_ipc::hello::Hello::of(Role::Supervisor)), Vec::new());
                worker.process = Some(process);
            }
            Err(failure) => {
                error!(worker = role.name(), class = %failure.kind(), "the worker cannot be started");
                if role == Role::Vpnd && self.hub_is_no_executable(&failure) {
                    return self.judge(role, supervision::Event::Unwanted);
                }
                self.judge(role, supervision::Event::Died);
            }
        }
    }

    async fn event(&mut self, event: Event) {
        let Event { role, process: number, happened } = event;
        let worker = self.workers.get_mut(&role).expect("each role has its worker");
        if worker.process.as_ref().is_none_or(|process| process.number != number) {
            return;
        }
        match happened {
            Happened::Said(_) if worker.supervision.is_dying() => {}
            Happened::Said(said) => self.said(role, said).await,
            Happened::LinkEnded(link) => {
                debug!(worker = role.name(), "the link ended: {link}");
                if self.stopping.is_some() {
                    // Without its link it can neither be told nor say that it stopped.
                    if let Some(process) = worker.process.as_ref().filter(|process| !process.has_stopped()) {
                        process.kill();
                    }
                } else if link != coreflow_ipc::link::LinkError::Closed {
                    self.fail(role, &link.to_string());
                }
            }
            Happened::Died { death, last_words } => self.died(role, death, &last_words),
        }
    }

    fn fail(&mut self, role: Role, why: &str) {
        error!(worker = role.name(), "the worker broke a rule of its link: {why}");
        self.judge(role, supervision::Event::Failed);
    }

    fn died(&mut self, role: Role, death: Death, last_words: &str) {
        let mono = self.mono();
        let worker = self.workers.get_mut(&role).expect("each role has its worker");
        let process = worker.process.take().expect("the death is of the living process");
        let said_stopped = process.has_stopped();
        let restarting = worker.supervision.is_restarting();
        worker.layers.clear();
        self.lose_asks(role);
        if role == Role::Relayd {
            self.listener.unserved(mono);
            // Nobody waits for it any more, and the next relayd asks anew.
            if let Some(exchange) = self.exchanging.take() {
                exchange.abort();
            }
            self.readiness.relayd_ended();
            self.waiting.forget();
        }
        if role == Role::Vpnd {
            self.hub.vpnd_ended();
        }
        let orderly = death == Death::Exited(0) && said_stopped;
        if let Some(stopping) = &mut self.stopping {
            // A worker that had not got as far as its link has nothing to lose and says nothing.
            if !orderly {
                error!(worker = role.name(), last_words, "the worker {death} during the stop");
            }
            let actions = stopping.ended(role, orderly, mono);
            self.judge(role, supervision::Event::Died);
            return self.stop_actions(actions);
        }
        self.judge(role, supervision::Event::Died);
        if restarting {
            Self::restarted(role, (process.pid, death, last_words), orderly);
            return self.note_readiness();
        }
        let restart = self.workers[&role].supervision.restarts_in(mono).unwrap_or_default();
        error!(
            worker = role.name(),
            pid = process.pid,
            last_words,
            "the worker {death}; it is started again in {} ms",
            restart.as_millis()
        );
        self.note_readiness();
    }
}
