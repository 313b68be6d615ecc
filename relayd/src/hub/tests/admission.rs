//! Which network is admitted, against what is held by this relayd or stated by vpnd.

use super::*;

fn held_of(text: &str) -> Held {
    snapshot(text).network
}

/// A hub that holds `held` of its own doing, and one whose vpnd states that it does.
fn both(held: &str) -> [Script; 2] {
    let mut own = Script::new();
    own.push("h", held);
    own.applied(1, 0, Ok(()));
    let mut stated = Script::configured();
    stated.link(1, Some(held_of(held)));
    [own, stated]
}

/// VPN-17, VPN-18: a repeat of the held network, in whatever order it is written, changes nothing.
#[test]
fn a_repeat_changes_nothing() {
    let other_order = |text: &str| {
        let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
        value["members"].as_array_mut().unwrap().reverse();
        value.to_string()
    };
    for mut script in both(&network(5)) {
        for text in [network(5), other_order(&network(5))] {
            let replayed = [Seen::Note(Note::Replayed { revision: 5 }), told("p", Answer::Replayed(Some(5)))];
            assert_eq!(script.push("p", &text), replayed);
        }
    }
}

/// VPN-17, VPN-19: a later revision replaces the held network, and so does any of a later generation.
#[test]
fn a_later_network_replaces_the_held_one() {
    for text in [network(6), network_of(2, 0, 1)] {
        for mut script in both(&network(5)) {
            let seen = script.push("p", &text);
            let [Seen::Apply(1, id, given)] = seen.as_slice() else { panic!("{seen:?}") };
            assert_eq!(*given, snapshot(&text));
            let revision = given.network.revision;
            let seen = script.applied(1, *id, Ok(()));
            assert_eq!(seen[1..], [told("p", Answer::Applied(Some(revision)))]);
            assert_eq!(script.held(), Some(revision));
        }
    }
}

/// VPN-20, VPN-21, VPN-22, VPN-23: another authority, a moved control prefix, and what the hub has passed are
/// refused by name, whatever else is new about them; nothing is applied, and what is held stays.
#[test]
fn a_foreign_or_passed_network_is_refused() {
    let foreign = "vpn-network-authority-foreign";
    let stale = "vpn-network-revision-stale";
    let other_authority = |revision: u64| network_of(9, revision, 1).replace(r#""id":"a""#, r#""id":"b""#);
    let moved = |text: &str| network(9).replace("10.9.0.0/24", text);
    for (text, name) in [
        (other_authority(9), foreign),
        (other_authority(5), foreign),
        (moved("10.9.0.0/25"), foreign),
        (moved("10.9.0.0/16"), foreign),
        (network(4), stale),
        (network_of(0, 9, 1), stale),
        // Another network under the held revision.
        (network_of(1, 5, 1), stale),
        (network(5).replace(r#""from":"n1","to":"n2""#, r#""from":"n2","to":"n1""#), stale),
        (network(5).replace("10.2.0.0/16", "10.3.0.0/16"), stale),
        (network(5).replace(r#""n1""#, r#""n3""#), stale),
    ] {
        for mut script in both(&network(5)) {
            let refused = [
                Seen::Note(Note::Refused { name, held: Some(5) }),
                told("p", Answer::Refused(name.to_owned())),
            ];
            assert_eq!(script.push("p", &text), refused, "{text}");
            assert_eq!(script.held(), Some(5));
            let replayed = told("q", Answer::Replayed(Some(5)));
            assert_eq!(script.push("q", &network(5)).last(), Some(&replayed), "the held one is untouched");
        }
    }
}

/// VPN-11, VPN-12: the control prefix is that of the first network that the hub took; a network that it did not
/// take fixes none.
#[test]
fn the_first_network_that_is_served_fixes_the_prefix() {
    let mut script = Script::new();
    script.push("p", &network(5));
    script.applied(1, 0, Err(NotApplied::Bind("x".to_owned())));
    let moved = network(6).replace("10.9.0.0/24", "10.9.0.0/16");
    assert_eq!(script.push("q", &moved), [Seen::Apply(1, 1, snapshot(&moved))]);
    script.applied(1, 1, Ok(()));
    let refused = Answer::Refused("vpn-network-authority-foreign".to_owned());
    assert_eq!(script.push("r", &network(7)).last(), Some(&told("r", refused)));
}

/// VPN-07, VPN-23: what is no network is refused by the path of what is wrong, a private key by its name; what
/// is held stays.
#[test]
fn what_is_no_network_is_refused_by_its_path() {
    for (body, path) in [
        (
            carrying(&network(6).replacen(r#""nodeId""#, r#""privateKey":"K","nodeId""#, 1)),
            "members[0].privateKey",
        ),
        (carrying(&network(6).replace("10.9.0.2", "10.9.0.1")), "members[1].address"),
        (carrying("null"), "network"),
        (Body::empty(), "network"),
        (Body::from_json(format!(r#"{{"network":{},"more":1}}"#, network(6))), "network"),
        (Body::from_json(format!(r#"{{"network":{0},"network":{0}}}"#, network(6))), "network"),
        (Body::from_json("7".to_owned()), "network"),
    ] {
        let mut script = Script::serving(5);
        let refused = [
            Seen::Note(Note::Invalid { path: path.to_owned() }),
            told("p", Answer::Refused(format!("vpn-network-invalid: {path}"))),
        ];
        assert_eq!(script.push_on(1, "p", body), refused);
        assert_eq!(script.held(), Some(5));
    }
}

/// VPN-45: a relay without a hub refuses every network by name.
#[test]
fn a_relay_without_a_hub_refuses_by_name() {
    let mut script = Script::configured();
    assert_eq!(script.on(Event::Configured(None)), []);
    for body in [carrying(&network(5)), Body::empty()] {
        let refused = [
            Seen::Note(Note::Refused { name: "vpn-hub-absent", held: None }),
            told("p", Answer::Refused("vpn-hub-absent".to_owned())),
        ];
        assert_eq!(script.push_on(1, "p", body), refused);
    }
    assert_eq!(script.hub.advertised(), None);
}
