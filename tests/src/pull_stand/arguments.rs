//! The command line of the stand.

use std::fmt;
use std::path::PathBuf;

/// How the upstream and Cloudly come to have one origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The upstream passes on what is Cloudly's.
    Shared,
    /// The relay has a network of its own, in which Cloudly is at the upstream's address.
    Splice,
}

/// What the stand is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// Where `coreflow` and its workers are.
    pub binaries: PathBuf,
    /// The port of 127.0.0.1 that the relay serves on.
    pub port: u16,
    /// The upstream's origin: `https://127.0.0.1:<port>`.
    pub upstream: String,
    /// Its port.
    pub upstream_port: u16,
    /// What the relay trusts, PEM.
    pub anchors: PathBuf,
    /// The chain of relay and Cloudly, PEM, for `localhost` and 127.0.0.1.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// How.
    pub mode: Mode,
    /// The port of 127.0.0.1 that Cloudly listens on, in shared mode.
    pub cloudly_port: Option<u16>,
}

/// A command line the stand cannot be set up by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable(String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\nusage: coreflow-pull-stand --binaries <folder> --port <n> --upstream https://127.0.0.1:<n> \
             --ca <file> --cert <file> --key <file> --mode shared|splice [--cloudly-port <n>]",
            self.0
        )
    }
}

impl std::error::Error for Unusable {}

impl Arguments {
    /// Reads the command line without the program's name.
    ///
    /// # Errors
    /// [`Unusable`] at the first word that is unknown, missing or says nothing.
    pub fn read(words: impl IntoIterator<Item = String>) -> Result<Self, Unusable> {
        let mut words = words.into_iter();
        let (mut binaries, mut port, mut upstream, mut mode, mut cloudly_port) =
            (None, None, None, None, None);
        let (mut anchors, mut certificate, mut key) = (None, None, None);
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| Unusable(format!("{word} has no value")))?;
            match word.as_str() {
                // The relay runs in a directory of its own.
                "--binaries" => {
                    binaries = Some(PathBuf::from(&value).canonicalize().map_err(|_| unusable(&word))?)
                }
                "--port" => port = Some(number(&word, &value)?),
                "--upstream" => upstream = Some(value),
                "--ca" => anchors = Some(PathBuf::from(value)),
                "--cert" => certificate = Some(PathBuf::from(value)),
                "--key" => key = Some(PathBuf::from(value)),
                "--cloudly-port" => cloudly_port = Some(number(&word, &value)?),
                "--mode" => {
                    mode = Some(match value.as_str() {
                        "shared" => Mode::Shared,
                        "splice" => Mode::Splice,
                        _ => return Err(unusable(&word)),
                    });
                }
                _ => return Err(Unusable(format!("{word} is no option"))),
            }
        }
        let missing = |option: &str| Unusable(format!("{option} is missing"));
        let upstream: String = upstream.ok_or_else(|| missing("--upstream"))?;
        let upstream = upstream.trim_end_matches('/').to_owned();
        let port_of = upstream.strip_prefix("https://127.0.0.1:").ok_or_else(|| unusable("--upstream"))?;
        Ok(Self {
            upstream_port: number("--upstream", port_of)?,
            upstream,
            binaries: binaries.ok_or_else(|| missing("--binaries"))?,
            port: port.ok_or_else(|| missing("--port"))?,
            anchors: anchors.ok_or_else(|| missing("--ca"))?,
            certificate: certificate.ok_or_else(|| missing("--cert"))?,
            key: key.ok_or_else(|| missing("--key"))?,
            mode: mode.ok_or_else(|| missing("--mode"))?,
            cloudly_port,
        })
    }
}

fn unusable(word: &str) -> Unusable {
    Unusable(format!("the value of {word} is none"))
}

fn number(word: &str, value: &str) -> Result<u16, Unusable> {
    value.parse().ok().filter(|port| *port > 0).ok_or_else(|| unusable(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Arguments, Unusable> {
        Arguments::read(line.split_whitespace().map(str::to_owned))
    }

    const WHOLE: &str = "--binaries / --port 9443 --upstream https://127.0.0.1:18446/ --ca a --cert c --key k \
                         --mode splice";

    /// A whole line is read, with the upstream's origin and port.
    #[test]
    fn a_whole_line_is_read() {
        let arguments = read(WHOLE).unwrap();
        assert_eq!((arguments.port, arguments.upstream_port, arguments.cloudly_port), (9443, 18446, None));
        assert_eq!((arguments.upstream.as_str(), arguments.mode), ("https://127.0.0.1:18446", Mode::Splice));
    }

    /// What is missing, misspelt or elsewhere than on loopback starts nothing.
    #[test]
    fn what_says_nothing_is_refused() {
        for (from, to) in [
            ("--mode splice", ""),
            ("splice", "none"),
            ("9443", "0"),
            ("127.0.0.1", "192.0.2.1"),
            ("--key k", "--keys k"),
            ("--ca a", "--ca"),
        ] {
            assert!(read(&WHOLE.replace(from, to)).is_err(), "{from} as {to}");
        }
    }
}
