//! What the relay's lines say of a soak: which workers died, and what it called an error.

use std::collections::{BTreeMap, VecDeque};

/// How many of the last lines are kept.
const LAST: usize = 80;

/// A worker's death as the supervisor named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// The process that died.
    pub pid: u32,
    /// The line.
    pub line: String,
}

/// The reader of the lines.
#[derive(Debug, Default)]
pub struct Journal {
    deaths: Vec<Death>,
    errors: Vec<String>,
    last: VecDeque<String>,
    warnings: BTreeMap<String, u64>,
}

impl Journal {
    /// Reads the next line.
    pub fn read(&mut self, line: &str) {
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back(line.to_owned());
        match death(line) {
            Some(death) => self.deaths.push(death),
            None if line.contains("ERROR ") => self.errors.push(line.to_owned()),
            None => {
                if let Some(words) = warning(line) {
                    *self.warnings.entry(words).or_default() += 1;
                }
            }
        }
    }

    /// The deaths so far.
    pub fn deaths(&self) -> &[Death] {
        &self.deaths
    }

    /// The errors that are no death, so far.
    pub fn errors(&self) -> &[String] {
        &self.errors
    }

    /// The last lines, oldest first.
    pub fn last(&self) -> impl Iterator<Item = &str> {
        self.last.iter().map(String::as_str)
    }

    /// How often the relay warned, by the begin of the warning.
    pub fn warnings(&self) -> &BTreeMap<String, u64> {
        &self.warnings
    }
}

/// `… ERROR relayd: the worker killed by SIGKILL; it is started again in 500 ms pid=7 …`
fn death(line: &str) -> Option<Death> {
    let (_, rest) = line.split_once("the worker ").filter(|_| line.contains("it is started again in "))?;
    let (_, pid) = rest.rsplit_once("pid=")?;
    let pid = pid.split_whitespace().next()?.parse().ok()?;
    Some(Death { pid, line: line.to_owned() })
}

/// The first words of a warning; what follows differs from case to case.
fn warning(line: &str) -> Option<String> {
    let (_, words) = line.split_once("WARN ")?;
    let end =
        words.char_indices().filter(|(_, letter)| *letter == ' ').nth(8).map_or(words.len(), |(at, _)| at);
    let words = &words[..end];
    Some(words.chars().map(|letter| if letter.is_ascii_digit() { '#' } else { letter }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A death is told from an error, and its process is known.
    #[test]
    fn deaths_and_errors_are_told_apart() {
        let mut journal = Journal::default();
        for line in [
            "INFO supervisor: started",
            "ERROR relayd: the worker killed by SIGKILL; it is started again in 500 ms pid=4711 last_words=\"\"",
            "ERROR pulld: the worker broke a rule of its link: ipc-frame-empty",
            "WARN pulld: the worker is killed: it does not answer",
        ] {
            journal.read(line);
        }
        assert_eq!(journal.deaths().iter().map(|death| death.pid).collect::<Vec<u32>>(), [4711]);
        assert!(journal.errors().len() == 1 && journal.errors()[0].contains("broke a rule"));
        assert_eq!(journal.last().count(), 4);
        assert_eq!(journal.warnings().len(), 1);
        for number in 0..200 {
            journal.read(&format!("INFO line {number}"));
        }
        assert_eq!(journal.last().next(), Some("INFO line 120"));
    }
}
