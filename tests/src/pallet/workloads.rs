//! What runs on a node: an ACTIVE generation stays in force while application and uplink are the same, also
//! through a reconnect (OUT-17), and an assignment that comes again is admitted by reference (OUT-18).

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::Value;

/// The ACTIVE generation of an assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// What runs.
    pub application: Value,
    /// What it is reached by.
    pub uplink: Value,
    /// The assignment's generation.
    pub generation: u64,
    /// How often it was started.
    pub starts: u32,
    /// Since when it has been running.
    pub since: Instant,
}

/// The workloads by the assignments' ids.
#[derive(Default)]
pub(super) struct Workloads(pub(super) BTreeMap<String, Workload>);

impl Workloads {
    /// Applies an assignment, `{"id", "generation", "application", "uplink"}`: whether it is admitted by
    /// reference, since what it asks for is running. `None` for what has another form.
    pub(super) fn apply(&mut self, assignment: &Value) -> Option<bool> {
        let id = assignment["id"].as_str()?;
        let generation = assignment["generation"].as_u64()?;
        let (application, uplink) = (assignment.get("application")?, assignment.get("uplink")?);
        let active = self.0.get_mut(id);
        let starts = active.as_ref().map_or(0, |active| active.starts);
        if let Some(active) =
            active.filter(|active| (&active.application, &active.uplink) == (application, uplink))
        {
            active.generation = generation;
            return Some(true);
        }
        let started = Workload {
            application: application.clone(),
            uplink: uplink.clone(),
            generation,
            starts: starts + 1,
            since: Instant::now(),
        };
        self.0.insert(id.to_owned(), started);
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// OUT-17, OUT-18: only another application or uplink starts anew.
    #[test]
    fn only_another_application_or_uplink_starts_anew() {
        let mut workloads = Workloads::default();
        let mut apply = |generation: u64, application: &str, uplink: &str| {
            let assignment =
                json!({"id": "a", "generation": generation, "application": application, "uplink": uplink});
            let by_reference = workloads.apply(&assignment).unwrap();
            (by_reference, workloads.0["a"].generation, workloads.0["a"].starts)
        };
        assert_eq!(apply(1, "web", "wan"), (false, 1, 1));
        assert_eq!(apply(1, "web", "wan"), (true, 1, 1));
        assert_eq!(apply(2, "web", "wan"), (true, 2, 1));
        assert_eq!(apply(3, "web-2", "wan"), (false, 3, 2));
        assert_eq!(apply(3, "web-2", "lte"), (false, 3, 3));
        assert_eq!(workloads.apply(&json!({"w": 1})), None);
    }
}
