//! The messages of a soak: each has a number of its own, and is written as nobody would write it who reads
//! JSON into values first, so that a relay which does is found out (FWD-02, FWD-39).

use super::chance::Chance;

/// The nine methods of a registered node (contract, section 4.1).
pub const REQUESTS: [&str; 9] = [
    "getRuntimeManagedVpnCredential",
    "getRuntimeRegistryCredential",
    "reportRuntimeNetworkProtection",
    "reportRuntimeAssignmentObservation",
    "reportRuntimeAssignmentTerminalReceipt",
    "getRuntimeSecretRecipientState",
    "beginRuntimeSecretRecipientEnrollment",
    "completeRuntimeSecretRecipientEnrollment",
    "getRuntimeSecretMaterial",
];

/// The four pushes to a node (contract, section 4.2).
pub const PUSHES: [&str; 4] = [
    "applyRuntimeAssignment",
    "applyRuntimeNetworkSigningAuthority",
    "applyRuntimeNetworkProjection",
    "applyRuntimeNetworkDnsLeaseRenewal",
];

/// The pushes that a node of the soak answers with the push itself, since their own acknowledgement names
/// no push.
pub const RETURNED: [&str; 2] = ["applyRuntimeAssignment", "applyRuntimeNetworkSigningAuthority"];

const MARK: &str = r#""mark":"m-"#;

/// The number in a body.
pub fn mark(body: &str) -> Option<u64> {
    let (_, rest) = body.split_once(MARK)?;
    rest.split('"').next()?.parse().ok()
}

/// A body and the one answer to it.
pub struct Exchange {
    /// What is asked.
    pub method: &'static str,
    /// The request.
    pub body: String,
    /// Its answer.
    pub expected: String,
}

/// A node's request under `binding`; Cloudly answers with method and body.
pub fn request(mark: u64, binding: &str, chance: &mut Chance) -> Exchange {
    let method = REQUESTS[chance.below(REQUESTS.len())];
    let body = format!(r#"{{{},"session":{binding}}}"#, oddities(mark, chance));
    let expected = format!(r#"{{"answered":"{method}","received":{body}}}"#);
    Exchange { method, body, expected }
}

/// Cloudly's push under `binding`; the node answers as the contract says, or with the push itself.
pub fn push(mark: u64, binding: &str, chance: &mut Chance) -> Exchange {
    let method = PUSHES[chance.below(PUSHES.len())];
    let odd = oddities(mark, chance);
    let projection = format!(r#"{{"id":"projection","generation":{mark},"digest":"sha256:{mark:064x}"}}"#);
    let (body, expected) = match method {
        "applyRuntimeNetworkProjection" => (
            format!(r#"{{"projection":{projection},{odd},"session":{binding}}}"#),
            format!(r#"{{"session":{binding},"projection":{projection}}}"#),
        ),
        "applyRuntimeNetworkDnsLeaseRenewal" => (
            format!(
                r#"{{"session":{binding},"renewal":{{"projection":{projection},"sequence":{mark}}},{odd}}}"#
            ),
            format!(r#"{{"session":{binding},"renewal":{{"projection":{projection},"sequence":{mark}}}}}"#),
        ),
        _ => {
            let body = format!(r#"{{"session":{binding},{odd}}}"#);
            let expected = format!(r#"{{"session":{binding},"received":{body}}}"#);
            (body, expected)
        }
    };
    Exchange { method, body, expected }
}

/// Members beside those that are read: the mark, key order, spaces, number forms, escapes, a key that comes
/// twice, and a length that is now and then large.
fn oddities(mark: u64, chance: &mut Chance) -> String {
    let length = match chance.below(200) {
        0 => 1024 * 1024,
        1..=8 => 64 * 1024,
        other => other,
    };
    let odd = r#""z": -0.0, "a":1.50E+03,"esc":"\u00e9\/\ud83d\ude00é","twice":{"k":1,"k":[ ]},"big":12345678901234567890123"#;
    format!(r#"{MARK}{mark}",{odd},"pad":"{}""#, "x".repeat(length))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const BINDING: &str = r#"{"sessionId":"s","nodeId":"n"}"#;

    /// Each body is JSON, has its mark, and no two have the same answer.
    #[test]
    fn each_message_has_a_number_and_an_answer_of_its_own() {
        let mut chance = Chance::new(5);
        let (mut answers, mut methods) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..200 {
            for exchange in [request(number, BINDING, &mut chance), push(number, BINDING, &mut chance)] {
                let Exchange { method, body, expected } = exchange;
                assert_eq!(mark(&body), Some(number));
                let read: serde_json::Value = serde_json::from_str(&body).unwrap();
                assert_eq!(read["session"]["nodeId"], "n");
                serde_json::from_str::<serde_json::Value>(&expected).unwrap();
                assert!(answers.insert(expected), "{method}");
                methods.insert(method);
            }
        }
        assert_eq!(methods.len(), REQUESTS.len() + PUSHES.len());
        assert_eq!(mark("{}"), None);
    }
}
