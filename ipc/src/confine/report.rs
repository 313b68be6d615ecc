//! What a worker says about its own confinement, for the supervisor's log and `coreflowctl status`: each
//! layer is on, partly on, or absent with the reason (ARC-21).

use std::fmt;

use bincode::{Decode, Encode};

/// A mechanism of the confinement, in the order in which they are switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Layer {
    /// The worker is killed when its supervisor ends.
    ParentDeath,
    /// No exec gains a privilege, and no capability is left.
    NoNewPrivileges,
    /// Only the descriptors handed over are open.
    Descriptors,
    /// No core file, and a bounded number of open files.
    Limits,
    /// Others of the same user cannot read or trace the process.
    NotDumpable,
    /// No memory is or becomes both writable and executable (`PR_SET_MDWE`).
    WriteExecute,
    /// No file, no port but the profile's, no foreign abstract socket, no foreign process (Landlock).
    Landlock,
    /// Only the profile's system calls (seccomp).
    Seccomp,
}

/// Whether a layer holds.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum State {
    /// In full.
    On,
    /// In part: what is missing, and why.
    Partly(String),
    /// Not at all: why.
    Absent(String),
}

/// One layer and its state.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LayerReport {
    /// The mechanism.
    pub layer: Layer,
    /// Whether it holds.
    pub state: State,
}

/// All layers of one worker, each once.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Report {
    /// In the order in which they were switched on.
    pub layers: Vec<LayerReport>,
}

impl Report {
    /// The layers that do not hold in full; none on a kernel that has everything.
    pub fn degraded(&self) -> impl Iterator<Item = &LayerReport> {
        self.layers.iter().filter(|report| report.state != State::On)
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ParentDeath => "parent-death",
            Self::NoNewPrivileges => "no-new-privileges",
            Self::Descriptors => "descriptors",
            Self::Limits => "limits",
            Self::NotDumpable => "not-dumpable",
            Self::WriteExecute => "write-execute",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On => f.write_str("on"),
            Self::Partly(missing) => write!(f, "partly ({missing})"),
            Self::Absent(reason) => write!(f, "absent ({reason})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn a_report_names_what_is_missing() {
        let landlock = LayerReport { layer: Layer::Landlock, state: State::Partly("files only".to_owned()) };
        let report =
            Report { layers: vec![LayerReport { layer: Layer::Limits, state: State::On }, landlock.clone()] };
        assert_eq!(report.degraded().collect::<Vec<_>>(), [&landlock]);
        assert_eq!(format!("{} {}", landlock.layer, landlock.state), "landlock partly (files only)");
    }

    #[test]
    fn a_report_survives_the_wire() {
        let report = Report {
            layers: vec![LayerReport {
                layer: Layer::Seccomp,
                state: State::Absent("no seccomp".to_owned()),
            }],
        };
        let bytes = codec::encode::<_, 4096>(&report).unwrap();
        assert_eq!(codec::decode::<Report, 4096>(&bytes), Ok(report));
    }
}
