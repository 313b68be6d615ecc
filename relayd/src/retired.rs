//! Methods of the former reconciler, each with the owner of what it did (RET-01, RET-09).

use coreflow_ipc::typedrequest::{Outcome, plain_refusal};

use crate::refusals::RETIRED;

/// Method and new owner.
const RETIRED_METHODS: [(&str, &str); 3] = [
    ("pushContainerUpdate", "Pallet"),
    ("informCoreflowAboutNewContainerVersion", "Pallet"),
    ("triggerServerAction", "Cloudly"),
];

/// The refusal of a retired `method`; `None` for every other (RET-02, RET-03).
pub fn refusal(method: &str) -> Option<Outcome> {
    let (method, owner) = RETIRED_METHODS.iter().find(|(retired, _)| *retired == method)?;
    Some(plain_refusal(&format!("{RETIRED}: {method} is retired; {owner} owns it")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coreflow_ipc::typedrequest::PeerError;

    fn text(method: &str) -> Option<String> {
        refusal(method).map(|outcome| match outcome {
            Outcome::Error(error) => PeerError::of(&error).text,
            Outcome::Response(_) => panic!("a retired method is answered"),
        })
    }

    /// RET-01, RET-02, RET-09: each retired method names its new owner.
    #[test]
    fn a_retired_method_names_its_owner() {
        assert_eq!(
            text("triggerServerAction").as_deref(),
            Some("coreflow-retired: triggerServerAction is retired; Cloudly owns it")
        );
        for method in ["pushContainerUpdate", "informCoreflowAboutNewContainerVersion"] {
            assert!(text(method).unwrap().ends_with("Pallet owns it"));
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
            assert_eq!(text(method), None);
        }
    }
}
