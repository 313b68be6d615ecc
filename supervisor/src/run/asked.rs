//! What the loop does for who asks over the control socket. What changes something is written down with the user
//! and the process that asked for it.

use coreflow_ipc::{
    hello::Role,
    messages::ToWorker,
    record::{Level, Verbosity},
};
use tracing::{error, info, warn};

use super::{Supervisor, standing::Purpose};
use crate::{
    constants::{RELAYD_RESTART_BOUND, STOP_BOUND},
    control::{
        ControlSocket, SocketFile,
        protocol::{Answer, Command, Logged, Refused, Restart},
        serving::{Asked, Peer, Reply, serve},
    },
    spawn::Death,
    status::{Confined, WorkerState},
    supervision,
};

impl Supervisor {
    /// Serves the control socket beside the loop, and gives the file that goes with it.
    pub(super) fn serve_control(&self, control: ControlSocket) -> Option<SocketFile> {
        let ControlSocket { listener, file } = control;
        match serve(listener, self.asks.0.clone(), self.clock) {
            Ok(()) => Some(file),
            Err(failure) => {
                error!(class = %failure.kind(), "the control socket cannot be served");
                None
            }
        }
    }

    /// Answers from what the loop holds, or has workers asked first; whoever asked may be gone.
    pub(super) fn asked(&mut self, asked: Asked) {
        let Asked { command, peer, answer } = asked;
        let reply = match command {
            Command::Status => return self.look(Purpose::Status, answer),
            Command::Metrics => return self.look(Purpose::Metrics, answer),
            Command::Nodes { after } => return self.look(Purpose::Nodes { after }, answer),
            Command::Workers => Reply::Answer(Answer::Workers(self.processes())),
            Command::Isolation => Reply::Answer(Answer::Isolation(self.confined_processes())),
            Command::Restart { worker } => Reply::Answer(match self.restart(worker, peer) {
                Ok(restart) => Answer::Restart(restart),
                Err(refused) => refused.into(),
            }),
            Command::Log { process, level } => {
                Reply::Answer(Answer::Log(self.change_level(process, level, peer)))
            }
            Command::Trace { worker } => match self.taps.watch(worker) {
                Some(trace) => {
                    self.write_down(worker, peer, "the worker's link is traced, by command");
                    Reply::Trace(worker, trace)
                }
                None => Reply::Answer(Refused::Traces.into()),
            },
        };
        let _ = answer.send(reply);
    }

    /// Ends a worker in order, to be started again at once.
    fn restart(&mut self, role: Role, peer: Peer) -> Result<Restart, Refused> {
        if self.stopping.is_some() {
            return Err(Refused::Stopping);
        }
        let worker = &self.workers[&role];
        if worker.supervision.state() == WorkerState::Off {
            return Err(Refused::Absent(role));
        }
        let former_pid = worker.process.as_ref().map(|process| process.pid);
        let anew = !worker.supervision.is_restarting();
        self.write_down(role, peer, "the worker is restarted, by command");
        if anew {
            self.counters.restarts_by_command += 1;
        }
        let bound = if role == Role::Relayd { RELAYD_RESTART_BOUND } else { STOP_BOUND };
        self.judge(role, supervision::Event::Restart(bound));
        if role == Role::Relayd {
            // It accepts nothing any more, however long its requests in flight take.
            self.listener.unserved(self.mono());
            self.readiness.relayd_ended();
            self.note_readiness();
        }
        Ok(Restart { worker: role.name().to_owned(), former_pid })
    }

    /// A worker that was to be started again by command has ended.
    pub(super) fn restarted(role: Role, ended: (u32, Death, &str), orderly: bool) {
        let (pid, death, last_words) = ended;
        if orderly {
            info!(worker = role.name(), pid, "the worker ended and is started again, by command");
        } else {
            warn!(
                worker = role.name(),
                pid, last_words, "the worker {death}; it is started again, by command"
            );
        }
    }

    fn change_level(&mut self, role: Role, level: Level, peer: Peer) -> Logged {
        let former = self.level(role);
        self.write_down(role, peer, &format!("the log level is {}, by command", level.name()));
        self.set_level(role, level);
        Logged {
            worker: role.name().to_owned(),
            level: level.word().to_owned(),
            former: former.word().to_owned(),
        }
    }

    /// Writes down what somebody asked for, as the supervisor's own line, which no worker's record can be: it names
    /// the process otherwise than those do. At a level that is written whatever the supervisor records at least.
    fn write_down(&self, role: Role, peer: Peer, what: &str) {
        let (process, Peer { user, pid: client }) = (role.name(), peer);
        match self.verbosity.level() {
            Level::Error => error!(process, user, client, "{what}"),
            Level::Warn => warn!(process, user, client, "{what}"),
            Level::Info | Level::Debug | Level::Trace => info!(process, user, client, "{what}"),
        }
    }

    fn level(&self, role: Role) -> Level {
        self.workers.get(&role).map_or_else(|| self.verbosity.level(), |worker| worker.level)
    }

    /// What a process records from here on; the processes that fill the role after it begin with it.
    pub(super) fn set_level(&mut self, role: Role, level: Level) {
        let Some(worker) = self.workers.get_mut(&role) else { return Verbosity::set(&self.verbosity, level) };
        worker.level = level;
        if let Some(process) = &worker.process {
            let _ = process.tell(ToWorker::LogLevel(level), Vec::new());
        }
    }

    fn confined_processes(&self) -> Vec<Confined> {
        let own = Confined {
            role: Role::Supervisor.name().to_owned(),
            pid: std::process::id(),
            layers: Vec::new(),
        };
        let workers = self.workers.iter().filter_map(|(role, worker)| {
            let pid = worker.process.as_ref()?.pid;
            Some(Confined { role: role.name().to_owned(), pid, layers: worker.layers.clone() })
        });
        std::iter::once(own).chain(workers).collect()
    }
}
