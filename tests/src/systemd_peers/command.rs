//! What the peers can be asked for, as a line.

use std::fmt;

/// One thing to do, to wait for or to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Waits until the node reaches Cloudly through the relay, and Cloudly the node.
    Served,
    /// Waits until an image's manifest is pulled through the relay.
    Pulled,
    /// Waits until the relay advertised a hub, and has it serve a network.
    Networked,
    /// Makes this the cluster's bearer, one generation further.
    Rotate(String),
    /// Drops the relay's connection to Cloudly.
    Cut,
    /// Has Cloudly stop listening, and drops its connections.
    Away,
    /// Has Cloudly listen again, if it does not.
    Back,
    /// Tells how many exchanges of a bearer were asked for.
    Exchanges,
    /// Tells how many of the node's connections have ended.
    Ends,
    /// Tells everything that must be in no log, a line each.
    Secrets,
}

/// A line that asks for nothing there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unusable;

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "usage: coreflow-systemd-peers serve FOLDER RELAY-PORT CLOUDLY-PORT\n       \
             coreflow-systemd-peers ask FOLDER served | pulled | networked | rotate BEARER | cut | away | back | \
             exchanges | ends | secrets",
        )
    }
}

impl std::error::Error for Unusable {}

impl Command {
    /// Reads a line without its end.
    ///
    /// # Errors
    /// [`Unusable`].
    pub fn read(line: &str) -> Result<Self, Unusable> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["served"] => Ok(Self::Served),
            ["pulled"] => Ok(Self::Pulled),
            ["networked"] => Ok(Self::Networked),
            ["rotate", bearer] if !bearer.is_empty() => Ok(Self::Rotate(bearer.to_owned())),
            ["cut"] => Ok(Self::Cut),
            ["away"] => Ok(Self::Away),
            ["back"] => Ok(Self::Back),
            ["exchanges"] => Ok(Self::Exchanges),
            ["ends"] => Ok(Self::Ends),
            ["secrets"] => Ok(Self::Secrets),
            _ => Err(Unusable),
        }
    }
}

/// The line.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served => f.write_str("served"),
            Self::Pulled => f.write_str("pulled"),
            Self::Networked => f.write_str("networked"),
            Self::Rotate(bearer) => write!(f, "rotate {bearer}"),
            Self::Cut => f.write_str("cut"),
            Self::Away => f.write_str("away"),
            Self::Back => f.write_str("back"),
            Self::Exchanges => f.write_str("exchanges"),
            Self::Ends => f.write_str("ends"),
            Self::Secrets => f.write_str("secrets"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each command's line is read as that command.
    #[test]
    fn a_line_is_its_command() {
        let all = [
            Command::Served,
            Command::Pulled,
            Command::Networked,
            Command::Rotate("b".to_owned()),
            Command::Cut,
            Command::Away,
            Command::Back,
            Command::Exchanges,
            Command::Ends,
            Command::Secrets,
        ];
        for command in all {
            assert_eq!(Command::read(&command.to_string()), Ok(command));
        }
        for line in ["", "rotate", "rotate ", "served now", "Served"] {
            assert_eq!(Command::read(line), Err(Unusable), "{line}");
        }
    }
}
