//! Validations that take their time, beside the core: one after the other, and answered for whatever comes of them.

use super::*;
use crate::constants::NETWORKS_BYTES;

/// VPN-14, VPN-19, START-24: nothing waits for a validation but the networks behind it, which keep their order; what is
/// under way counts as in flight.
#[test]
fn networks_are_validated_one_after_the_other() {
    let mut script = Script::new();
    script.slow = true;
    for (correlation, revision) in [("1", 1), ("2", 2), ("3", 2)] {
        assert_eq!(script.push(correlation, &network(revision)), []);
    }
    assert_eq!((script.validating.len(), script.hub.pushes_in_flight()), (1, 3));
    assert_eq!(script.validate(), [Seen::Apply(1, 0, snapshot(&network(1)))]);
    assert_eq!(script.validate(), []);
    assert_eq!(script.validate(), []);
    assert_eq!((script.validating.len(), script.hub.pushes_in_flight()), (0, 3));
    let applied = told("1", Answer::Applied(Some(1)));
    assert_eq!(script.applied(1, 0, Ok(())), [adopted(1), applied, Seen::Apply(1, 1, snapshot(&network(2)))]);
    let replayed = [Seen::Note(Note::Replayed { revision: 2 }), told("3", Answer::Replayed(Some(2)))];
    assert_eq!(script.applied(1, 1, Ok(()))[2..], replayed);
}

/// VPN-23, VPN-34: of the networks that wait for their validation the oldest fails for the newest, unread.
#[test]
fn the_oldest_unread_network_fails_for_the_newest() {
    let busy = "vpn-hub-busy: later networks wait for their validation";
    let mut script = Script::new();
    script.slow = true;
    for revision in 1..=5 {
        assert_eq!(script.push(&revision.to_string(), &network(revision)), []);
    }
    assert_eq!(script.push("6", &network(6)), [failed(busy), told("2", fails(None, busy))]);
    // By their bytes too: three do not fit beside each other.
    let large = |revision: u64| {
        let blank = " ".repeat(NETWORKS_BYTES / 3);
        Body::from_json(format!(r#"{{"network":{}{blank}}}"#, network(revision)))
    };
    let mut script = Script::new();
    script.slow = true;
    for revision in 1..=3 {
        assert_eq!(script.push_on(1, &revision.to_string(), large(revision)), []);
    }
    assert_eq!(script.push_on(1, "4", large(4)), [failed(busy), told("2", fails(None, busy))]);
}

/// VPN-29, VPN-34: one that is validated when its time has passed, or its vpnd has gone, was answered for already; the
/// next one is validated then.
#[test]
fn what_was_answered_for_is_not_applied() {
    let mut script = Script::new();
    script.slow = true;
    script.push("1", &network(1));
    assert_eq!(script.hub.next_deadline(), Some(9_000 * MS));
    let timeout = "vpn-hub-timeout: applyClusterVpnNetwork after 8000 ms";
    assert_eq!(script.pass(8_000 * MS), [failed(timeout), told("1", fails(None, timeout))]);
    assert_eq!(script.push("2", &network(2)), []);
    assert_eq!(script.validating.len(), 1, "one at a time");
    assert_eq!(script.validate(), []);
    let ended = "vpn-hub-unavailable: its link ended";
    let lost = [Seen::Note(Note::Lost { revision: None }), failed(ended), told("2", fails(None, ended))];
    assert_eq!(script.lose(1), lost);
    script.link(2, None);
    assert_eq!(script.push("3", &network(3)), []);
    assert_eq!(script.validate(), []);
    assert_eq!(script.validate(), [Seen::Apply(2, 0, snapshot(&network(3)))]);
}

/// What is refused for want of a hub is not validated.
#[test]
fn nothing_is_validated_in_vain() {
    let mut script = Script::configured();
    script.slow = true;
    script.push("1", &network(1));
    script.link(1, None);
    script.on(Event::Configured(Some(VpnFacts { unavailable: Some("gone".to_owned()), ..facts() })));
    script.push("2", &network(1));
    script.on(Event::Configured(None));
    script.push("3", &network(1));
    assert!(script.validating.is_empty());
    let other = || Event::Validated { job: 99, carried: Ok(None) };
    assert_eq!(script.on(other()), [], "nobody asked for it");
    let mut script = Script::new();
    script.slow = true;
    script.push("1", &network(1));
    assert_eq!(script.on(other()), [], "another one was asked for");
    assert_eq!(script.validate(), [Seen::Apply(1, 0, snapshot(&network(1)))]);
}
