//! The bench's command line: which parts, how often, how long, with how many nodes.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What the bench is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// The folder of the published packages and of the Node relay made of them.
    pub peers: PathBuf,
    /// The folder of the relay's executables; `None` builds them in the profile of the bench.
    pub binaries: Option<PathBuf>,
    /// How often each contestant is measured, by turns.
    pub rounds: u32,
    /// The one part that runs; `None` runs all.
    pub only: Option<Part>,
    /// The numbers of idle nodes at which memory is read, rising.
    pub nodes: Vec<usize>,
    /// The numbers of requests in flight, rising.
    pub loads: Vec<usize>,
    /// How long one measurement lasts.
    pub measure: Duration,
    /// How many nodes are carried anew after a session change.
    pub recarried: usize,
}

/// A part of the bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// From a start until nodes are served.
    Start,
    /// Requests through the relay: rate, latency, CPU.
    Forwarding,
    /// Memory by idle nodes.
    Memory,
    /// TLS handshakes.
    Handshakes,
    /// Nodes carried anew after a session change.
    Recarry,
}

impl Part {
    /// Every part, in the order in which they run.
    pub const ALL: [Self; 5] = [Self::Start, Self::Forwarding, Self::Memory, Self::Handshakes, Self::Recarry];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Forwarding => "forwarding",
            Self::Memory => "memory",
            Self::Handshakes => "handshakes",
            Self::Recarry => "recarry",
        }
    }
}

/// An argument that says nothing the bench could do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable(String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\nusage: coreflow-bench [--quick] [--peers <folder>] [--binaries <folder>] [--rounds <n>] \
             [--seconds <n>] [--nodes <n,n,…>] [--loads <n,n,…>] [--recarried <n>] \
             [--only start|forwarding|memory|handshakes|recarry]",
            self.0
        )
    }
}

impl std::error::Error for Unusable {}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            peers: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/peers")),
            binaries: None,
            rounds: 8,
            only: None,
            nodes: vec![100, 1_000, 10_000],
            loads: vec![1, 16, 64, 256],
            measure: Duration::from_secs(2),
            recarried: 1_000,
        }
    }
}

impl Arguments {
    /// Reads the command line without the program's name. `--quick` stands for the values of a run that
    /// shows in seconds that every part yields its figures; what stands after it still changes them.
    ///
    /// # Errors
    /// [`Unusable`] at the first argument that is unknown, incomplete or no number where one is due.
    pub fn read(words: impl IntoIterator<Item = String>) -> Result<Self, Unusable> {
        let mut words = words.into_iter();
        let mut arguments = Self::default();
        while let Some(word) = words.next() {
            if word == "--quick" {
                arguments.rounds = 1;
                arguments.nodes = vec![10, 40];
                arguments.loads = vec![1, 16];
                arguments.measure = Duration::from_millis(700);
                arguments.recarried = 40;
                continue;
            }
            let value = words.next().ok_or_else(|| Unusable(format!("{word} has no value")))?;
            match word.as_str() {
                "--peers" => arguments.peers = PathBuf::from(value),
                "--binaries" => arguments.binaries = Some(PathBuf::from(value)),
                "--rounds" => arguments.rounds = number(&word, &value)?,
                "--seconds" => arguments.measure = Duration::from_secs(number(&word, &value)?),
                "--nodes" => arguments.nodes = rising(&word, &value)?,
                "--loads" => arguments.loads = rising(&word, &value)?,
                "--recarried" => arguments.recarried = number(&word, &value)?,
                "--only" => {
                    let part = Part::ALL.into_iter().find(|part| part.name() == value);
                    arguments.only = Some(part.ok_or_else(|| Unusable(format!("there is no part {value}")))?);
                }
                _ => return Err(Unusable(format!("{word} is no option"))),
            }
        }
        Ok(arguments)
    }

    /// Whether `part` is to run.
    pub fn wants(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}

fn number<T: std::str::FromStr + PartialOrd + Default>(word: &str, value: &str) -> Result<T, Unusable> {
    let number = value.parse().ok().filter(|number| *number > T::default());
    number.ok_or_else(|| Unusable(format!("{word} needs a number above 0, not {value}")))
}

fn rising(word: &str, value: &str) -> Result<Vec<usize>, Unusable> {
    let numbers: Vec<usize> = value.split(',').map(|part| number(word, part)).collect::<Result<_, _>>()?;
    if numbers.is_sorted() { Ok(numbers) } else { Err(Unusable(format!("{word} needs rising numbers"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Arguments, Unusable> {
        Arguments::read(line.split_whitespace().map(str::to_owned))
    }

    /// What is not stated has the values of the full run.
    #[test]
    fn options_change_the_full_run() {
        assert_eq!(read("").unwrap(), Arguments::default());
        let read = read("--quick --nodes 5,7 --only memory --seconds 2").unwrap();
        assert_eq!((read.rounds, read.nodes.as_slice()), (1, &[5, 7][..]));
        assert_eq!(read.measure, Duration::from_secs(2));
        assert!(read.wants(Part::Memory) && !read.wants(Part::Handshakes));
    }

    /// A word that is misspelt, lacks its value or is no number starts nothing.
    #[test]
    fn what_says_nothing_is_refused() {
        for line in ["--quik", "--rounds", "--rounds 0", "--seconds x", "--nodes 9,3", "--only all"] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
