//! What a soak did and what came of it, for reading.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::Options;
use super::census::Census;
use super::growth::{course, trend};
use super::ledger::Totals;

/// The outcome of a run.
#[derive(Debug, Clone, Default)]
pub struct Report {
    seed: u64,
    seconds: u64,
    nodes: usize,
    /// The faults that were done, by kind.
    pub faults: BTreeMap<String, u64>,
    /// The nodes' requests.
    pub up: Totals,
    /// Cloudly's pushes.
    pub down: Totals,
    /// Nodes that were started again, by reason.
    pub restarts: BTreeMap<String, u64>,
    /// How many workers died.
    pub deaths: usize,
    /// What the relay warned of.
    pub warnings: BTreeMap<String, u64>,
    /// How long a recovery took, and of what.
    pub recoveries: Vec<(&'static str, Duration)>,
    /// The census before the faults.
    pub before: Census,
    /// The census after them.
    pub after: Census,
    /// Growth between the thirds of each process's last life, in bytes; `None` for too short a life.
    pub growth: BTreeMap<String, Option<i64>>,
    /// The private memory of relayd in the course of its last life, in bytes.
    pub course: Vec<u64>,
    /// How many entries of the books did not balance.
    pub violations: u64,
    /// Everything that did not hold.
    pub failures: Vec<String>,
    /// What the relay wrote last.
    pub last_lines: Vec<String>,
}

impl Report {
    /// The report of a run that has not happened yet.
    pub fn new(options: &Options) -> Self {
        Self {
            seed: options.seed,
            seconds: options.length.as_secs(),
            nodes: options.nodes,
            ..Self::default()
        }
    }

    /// Enters the trends of the samples.
    pub fn trends(&mut self, samples: &[(Duration, Census)]) {
        let names = self.after.keys();
        self.growth = names.map(|name| (name.clone(), trend(name, samples))).collect();
        self.course = course("relayd", samples);
    }

    /// The report where everything held, the failure otherwise.
    ///
    /// # Errors
    /// [`SoakFailure`].
    pub fn judged(self) -> Result<Self, SoakFailure> {
        if self.failures.is_empty() && self.violations == 0 {
            Ok(self)
        } else {
            Err(SoakFailure(Box::new(self)))
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "soak of {} s, {} nodes, seed {}", self.seconds, self.nodes, self.seed)?;
        let faults: u64 = self.faults.values().sum();
        writeln!(f, "\n{faults} faults")?;
        counted(f, &self.faults)?;
        for (what, totals) in [("requests of nodes", &self.up), ("pushes of Cloudly", &self.down)] {
            let Totals { sent, answered, refused, broken, unanswered, again } = totals;
            writeln!(
                f,
                "\n{sent} {what}: {answered} answered, {} refused, {broken} ended with their connection, {unanswered} not answered in 30 s, {again} asked for again",
                refused.values().sum::<u64>()
            )?;
            counted(f, refused)?;
        }
        writeln!(
            f,
            "\n{} nodes started again by their process manager",
            self.restarts.values().sum::<u64>()
        )?;
        counted(f, &self.restarts)?;
        writeln!(f, "\n{} deaths of workers, each by a fault", self.deaths)?;
        writeln!(f, "\nwarnings of the relay")?;
        counted(f, &self.warnings)?;
        for (after, time) in &self.recoveries {
            writeln!(f, "\nwhole {} ms after {after}", time.as_millis())?;
        }
        writeln!(
            f,
            "\n{:<12} {:>14} {:>10} {:>22} {:>12}",
            "process", "descriptors", "threads", "private KiB", "trend KiB"
        )?;
        for (name, was) in &self.before {
            let Some(is) = self.after.get(name) else { continue };
            let seen = |descriptors: Option<usize>| {
                descriptors.map_or_else(|| "hidden".to_owned(), |count| count.to_string())
            };
            let trend = self.growth.get(name).copied().flatten();
            let trend = trend.map_or_else(|| "too short".to_owned(), |bytes| (bytes >> 10).to_string());
            writeln!(
                f,
                "{name:<12} {:>14} {:>10} {:>22} {trend:>12}",
                format!("{} -> {}", seen(was.descriptors), seen(is.descriptors)),
                format!("{} -> {}", was.threads, is.threads),
                format!("{} -> {}", was.private >> 10, is.private >> 10),
            )?;
        }
        let course: Vec<String> = self.course.iter().map(|bytes| (bytes >> 10).to_string()).collect();
        writeln!(f, "\nrelayd in the course of its last life, private KiB: {}", course.join(" "))
    }
}

fn counted(f: &mut fmt::Formatter<'_>, counts: &BTreeMap<String, u64>) -> fmt::Result {
    counts.iter().try_for_each(|(what, count)| writeln!(f, "{count:>8}  {what}"))
}

/// A run in which something did not hold.
#[derive(Debug)]
pub struct SoakFailure(Box<Report>);

impl fmt::Display for SoakFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &self.0;
        for line in &report.last_lines {
            writeln!(f, "relay: {line}")?;
        }
        writeln!(f, "\n{report}")?;
        writeln!(f, "FAILED, {} entries of the books do not balance", report.violations)?;
        for failure in &report.failures {
            writeln!(f, "  {failure}")?;
        }
        write!(
            f,
            "again: cargo soak --seconds {} --seed {} --nodes {}",
            report.seconds, report.seed, report.nodes
        )
    }
}

impl std::error::Error for SoakFailure {}
