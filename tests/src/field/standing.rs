//! The hub of a field: its process, and what it is told and asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::HUB;
use super::namespace::Namespace;
use super::program::Program;
use crate::processes::signal;
use crate::vpn_stand::NETWORK;
use crate::vpn_stand::network::Network;

/// The most that the hub may take for an answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The process that serves.
pub struct Standing {
    /// It.
    pub program: Program,
    network: PathBuf,
}

impl Standing {
    /// Starts it with a network.
    ///
    /// # Panics
    /// When it does not serve.
    pub fn start(ground: &Namespace, stand: &Path, folder: &Path, network: &Network) -> Self {
        let file = folder.join(NETWORK);
        std::fs::write(&file, network.text()).expect("a file in a temporary folder");
        let mut command = ground.command(stand);
        command.args(["hub", "--folder"]).arg(folder).args(["--listen", &HUB.to_string()]);
        let program = Program::start("hub", &mut command);
        program.wait("applied ", PATIENCE);
        Self { program, network: file }
    }

    /// Has it read another network.
    ///
    /// # Panics
    /// When it does not apply it.
    pub fn apply(&self, network: &Network) {
        let answer = self.tell(network);
        assert!(answer.starts_with("applied "), "{answer}");
    }

    /// Has it read another network and gives its answer, which begins with `applied` or `refused`.
    ///
    /// # Panics
    /// When it gives none.
    pub fn tell(&self, network: &Network) -> String {
        // In place: it has the file open since before its confinement.
        std::fs::write(&self.network, network.text()).expect("a file in a temporary folder");
        let place = self.program.said();
        signal(self.program.pid(), Signal::SIGHUP);
        let words = format!(" {}/{}", network.generation, network.revision);
        self.program.wait_any(place, &[&format!("applied{words}"), &format!("refused{words}")], PATIENCE)
    }

    /// What it reports of itself now.
    ///
    /// # Panics
    /// When it does not.
    pub fn report(&self) -> Value {
        let place = self.program.said();
        signal(self.program.pid(), Signal::SIGUSR1);
        let line = self.program.wait_from(place, "report ", PATIENCE);
        serde_json::from_str(&line["report ".len()..]).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// How many packets it dropped for a reason so far.
    pub fn dropped(&self, reason: &str) -> u64 {
        self.report()["dropped"][reason].as_u64().unwrap_or(0)
    }

    /// Waits until its report is as `wanted`.
    ///
    /// # Panics
    /// When it is not within `bound`, with the last one.
    pub fn wait_report(&self, what: &str, bound: Duration, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = std::time::Instant::now() + bound;
        loop {
            let report = self.report();
            if wanted(&report) {
                return report;
            }
            assert!(std::time::Instant::now() < until, "no {what} within {bound:?}: {report:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Where a node dials from, as the hub sees it.
    pub fn remote_of(&self, node: &str) -> Option<String> {
        let report = self.report();
        let sessions = report["listed"].as_array()?.iter();
        let session = sessions.clone().find(|session| session["nodeId"] == node)?;
        session["remote"].as_str().map(str::to_owned)
    }
}
