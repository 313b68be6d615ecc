//! Methods of Cloudly that are answered with a refusal by name alone: those of the former reconciler, each
//! with the new owner of what it did, and those of the pending relay functions (RET-01, RET-07, RET-09,
//! XTR-01). One table and one registrar for both kinds.
//!
//! The contract of this release has no method by which Cloudly could ask for a pending function, so none of
//! them has a method here, and every dispatch for one is answered as an unknown method is: at once and by
//! name. A contract that has one gets it into the row, and nothing else changes.

use coreflow_ipc::typedrequest::{Outcome, plain_refusal};

use crate::refusals::{
    DESIRED_STATE_REPLAY_UNSUPPORTED, NETWORK_SIGNING_NOT_OWNED, NODE_ROSTER_UNSUPPORTED, RETIRED,
};

/// Why a method is refused.
#[derive(Debug, Clone, Copy)]
enum Because {
    /// The capability is retired (RET-02).
    Retired {
        /// Whose it is now.
        owner: &'static str,
    },
    /// The function is not the relay's, or not yet (XTR-01).
    Pending {
        /// The refusal's name.
        name: &'static str,
        /// What Cloudly is told of it.
        reason: &'static str,
    },
}

/// Methods that are refused for one reason.
struct Refused {
    methods: &'static [&'static str],
    because: Because,
}

const REFUSED: [Refused; 5] = [
    Refused {
        methods: &["pushContainerUpdate", "informCoreflowAboutNewContainerVersion"],
        because: Because::Retired { owner: "Pallet" },
    },
    Refused { methods: &["triggerServerAction"], because: Because::Retired { owner: "Cloudly" } },
    // XTR-03.
    Refused {
        methods: &[],
        because: Because::Pending {
            name: DESIRED_STATE_REPLAY_UNSUPPORTED,
            reason: "no desired state is kept and replayed on a reconnect",
        },
    },
    // XTR-04, XTR-06.
    Refused {
        methods: &[],
        because: Because::Pending {
            name: NETWORK_SIGNING_NOT_OWNED,
            reason: "Cloudly signs network state, ahead of an outage; the relay never does",
        },
    },
    // XTR-05, XTR-07.
    Refused {
        methods: &[],
        because: Because::Pending {
            name: NODE_ROSTER_UNSUPPORTED,
            reason: "no contract has a place for the nodes that a relay serves",
        },
    },
];

/// The refusal of a retired or pending `method`; `None` for every other (RET-02, RET-03).
pub fn refusal(method: &str) -> Option<Outcome> {
    registered(&REFUSED, method)
}

/// The registrar of both kinds (RET-07).
fn registered(refused: &[Refused], method: &str) -> Option<Outcome> {
    let row = refused.iter().find(|row| row.methods.contains(&method))?;
    Some(plain_refusal(&match row.because {
        Because::Retired { owner } => format!("{RETIRED}: {method} is retired; {owner} owns it"),
        Because::Pending { name, reason } => format!("{name}: {reason}"),
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use coreflow_ipc::typedrequest::PeerError;

    use super::*;
    use crate::routes::{is_push, node_method};

    fn text(refused: &[Refused], method: &str) -> Option<String> {
        registered(refused, method).map(|outcome| match outcome {
            Outcome::Error(error) => PeerError::of(&error).text,
            Outcome::Response(_) => panic!("a refused method is answered"),
        })
    }

    /// RET-01, RET-02, RET-08, RET-09: each retired method names its new owner, which is never the relay.
    #[test]
    fn a_retired_method_names_its_owner() {
        assert_eq!(
            text(&REFUSED, "triggerServerAction").as_deref(),
            Some("coreflow-retired: triggerServerAction is retired; Cloudly owns it")
        );
        for method in ["pushContainerUpdate", "informCoreflowAboutNewContainerVersion"] {
            assert!(text(&REFUSED, method).unwrap().ends_with("Pallet owns it"));
        }
        for row in &REFUSED {
            assert!(
                !matches!(row.because, Because::Retired { owner } if !["Pallet", "Cloudly"].contains(&owner))
            );
        }
    }

    /// RET-04, RET-06: the node-tag methods and the removed statistics are not even refused.
    #[test]
    fn a_method_that_is_gone_has_no_refusal() {
        for method in [
            "executeServiceBackup",
            "executeServiceRestore",
            "coreflowPruneNodeArchive",
            "coreflowGetCorestoreInventory",
            "coreflowGetTrafficStats",
        ] {
            assert_eq!(text(&REFUSED, method), None);
        }
    }

    /// XTR-01, XTR-03, XTR-04, XTR-05: each pending function has one refusal with a name of its own and a
    /// reason. No method of it is served elsewhere.
    #[test]
    fn a_pending_function_has_one_refusal_by_name() {
        let mut names = BTreeSet::new();
        for row in &REFUSED {
            for method in row.methods {
                assert!(!is_push(method) && node_method(method).is_none(), "{method} is served");
            }
            let Because::Pending { name, reason } = row.because else { continue };
            assert!(names.insert(name) && !reason.is_empty(), "{name}");
        }
        let expected = [
            "relay-desired-state-replay-unsupported",
            "relay-network-signing-not-owned",
            "relay-node-roster-unsupported",
        ];
        assert_eq!(names, BTreeSet::from(expected));
    }

    /// RET-07, XTR-01: the registrar takes both kinds out of one table; a pending function that has a method
    /// is refused at once, by its name and with a reason.
    #[test]
    fn one_registrar_refuses_retired_and_pending_methods() {
        let with_methods: Vec<Refused> = REFUSED
            .iter()
            .zip([&["a"][..], &["b"], &["c", "d"], &["e"], &["f"]])
            .map(|(row, methods)| Refused { methods, because: row.because })
            .collect();
        let told = |method| text(&with_methods, method).unwrap();
        assert_eq!(told("a"), "coreflow-retired: a is retired; Pallet owns it");
        assert_eq!(told("b"), "coreflow-retired: b is retired; Cloudly owns it");
        assert_eq!(told("c"), told("d"));
        for (method, name) in [
            ("c", "relay-desired-state-replay-unsupported: "),
            ("e", "relay-network-signing-not-owned: "),
            ("f", "relay-node-roster-unsupported: "),
        ] {
            assert!(told(method).strip_prefix(name).is_some_and(|reason| !reason.is_empty()), "{method}");
        }
        assert_eq!(text(&with_methods, "g"), None);
    }
}
