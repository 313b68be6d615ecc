//! What each process said of its own confinement, for `coreflowctl isolation`: the supervisor vouches for who said
//! it and for nothing else.

use coreflow_ipc::confine::{Report, State};
use serde::{Deserialize, Serialize};

use crate::constants::{CONFINED_LAYERS, STATUS_NAME};

/// A process, and what it said of its confinement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confined {
    /// `supervisor`, `relayd`, `pulld` or `vpnd`.
    pub role: String,
    /// Its process id.
    pub pid: u32,
    /// Each layer once; none of the supervisor, and of a worker that has not said it yet.
    pub layers: Vec<LayerState>,
}

/// One layer, as the worker stated it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerState {
    /// Its name.
    pub layer: String,
    /// `on`, `partly` or `absent`.
    pub state: String,
    /// What is missing, of one that is not on.
    pub why: Option<String>,
}

impl LayerState {
    /// The layers of a report, within what an answer has room for.
    pub fn of_report(report: &Report) -> Vec<Self> {
        let layers = report.layers.iter().take(CONFINED_LAYERS);
        let stated = layers.map(|stated| {
            let (state, why) = match &stated.state {
                State::On => ("on", None),
                State::Partly(why) => ("partly", Some(why)),
                State::Absent(why) => ("absent", Some(why)),
            };
            let why = why.map(|why| why.chars().take(STATUS_NAME).collect());
            Self { layer: stated.layer.to_string(), state: state.to_owned(), why }
        });
        stated.collect()
    }
}

#[cfg(test)]
mod tests {
    use coreflow_ipc::confine::{Layer, LayerReport};

    use super::*;

    /// A report comes over as it was stated, cut to its bounds.
    #[test]
    fn a_report_is_cut_to_its_bounds() {
        let layer = |state| LayerReport { layer: Layer::Landlock, state };
        let layers = vec![layer(State::On), layer(State::Absent("\u{1}".repeat(9000)))];
        let stated = LayerState::of_report(&Report { layers });
        assert_eq!((stated[0].state.as_str(), stated[0].why.as_deref()), ("on", None));
        assert_eq!((stated[1].layer.as_str(), stated[1].state.as_str()), ("landlock", "absent"));
        assert_eq!(stated[1].why.as_ref().unwrap().len(), STATUS_NAME);
        let many = Report { layers: vec![layer(State::On); 1000] };
        assert_eq!(LayerState::of_report(&many).len(), CONFINED_LAYERS);
    }
}
