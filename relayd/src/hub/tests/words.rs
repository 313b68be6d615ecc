//! The daemon's words, and what tells two networks apart.

use super::*;

/// VPN-31, VPN-32: `schemaVersion`, the ISO-8601 expiry and `enabled` are made for vpnd; what relayd holds has
/// the contract's form.
#[test]
fn the_daemon_s_words_are_made_for_vpnd() {
    let mut script = Script::serving(5);
    let Some(Holding::Network(held)) = script.hub.holding() else { panic!("it was pushed") };
    assert_eq!(**held, read_network(&network(5)));
    assert!(held.members.iter().all(|member| member.expires_at == 1_769_817_600_000));
    let seen = script.push("p", &network(6));
    let [Seen::Apply(_, _, given)] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(given.schema_version, 1);
    assert_eq!(
        (given.network.authority.as_str(), given.network.generation, given.network.revision),
        ("a", 1, 6)
    );
    assert_eq!(given.network.control_prefix.to_string(), "10.9.0.0/24");
    let [one, two] = given.members.as_slice() else { panic!("{:?}", given.members) };
    assert_eq!((one.node_id.as_str(), one.public_key, one.address), ("n1", [1; 32], [10, 9, 0, 2].into()));
    assert_eq!((two.node_id.as_str(), two.public_key, two.address), ("n2", [2; 32], [10, 9, 0, 3].into()));
    assert_eq!(two.prefixes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.2.0.0/16"]);
    assert!(
        given.members.iter().all(|member| member.enabled && member.expires_at == "2026-01-31T00:00:00.000Z")
    );
    assert!(given.grants.is_of(2) && given.grants.granted(0, 1) && !given.grants.granted(1, 0));
}

/// VPN-31: milliseconds are stated as they are, and what has no date of four digits as the last one that has.
#[test]
fn an_expiry_is_stated_in_utc_with_milliseconds() {
    for (unix_ms, stated) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (951_782_400_999, "2000-02-29T00:00:00.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (9_007_199_254_740_991, "9999-12-31T23:59:59.999Z"),
    ] {
        assert_eq!(snapshot(&network_of(1, 1, unix_ms)).members[0].expires_at, stated);
    }
}

/// VPN-05, VPN-06, VPN-15, VPN-16: vpnd is given exactly the members and grants that Cloudly wrote; what a later
/// network leaves out is not in it.
#[test]
fn what_a_network_leaves_out_is_withdrawn() {
    let mut script = Script::serving(5);
    let without_grant = network(6).replace(r#"{"from":"n1","to":"n2"}"#, "");
    let seen = script.push("p", &without_grant);
    let [Seen::Apply(_, id, given)] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!((given.members.len(), given.grants.count()), (2, 0));
    script.applied(1, *id, Ok(()));
    let mut value: serde_json::Value = serde_json::from_str(&without_grant).unwrap();
    value["revision"] = 7.into();
    value["members"].as_array_mut().unwrap().remove(0);
    let seen = script.push("q", &value.to_string());
    let [Seen::Apply(_, _, given)] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(given.members.iter().map(|member| member.node_id.as_str()).collect::<Vec<_>>(), ["n1"]);
    assert_eq!(given.grants.count(), 0);
}

/// VPN-18, VPN-22: the digest differs wherever the content does, and only there.
#[test]
fn a_digest_is_of_the_content() {
    let text = network(5);
    let mut digests = std::collections::BTreeSet::from([snapshot(&text).network.digest]);
    let others = [
        ("\"id\":\"a\"", "\"id\":\"b\""),
        ("\"generation\":1", "\"generation\":2"),
        ("\"revision\":5", "\"revision\":6"),
        ("10.9.0.0/24", "10.9.0.0/25"),
        ("\"n1\"", "\"n3\""),
        ("AQEB", "AQEC"),
        ("10.9.0.2", "10.9.0.4"),
        ("10.2.0.0/16", "10.2.0.0/17"),
        ("[\"10.2.0.0/16\"]", "[]"),
        ("1769817600000", "1769817600001"),
        ("{\"from\":\"n1\",\"to\":\"n2\"}", ""),
        ("\"from\":\"n1\"", "\"from\":\"n2\""),
    ];
    for (part, other) in others {
        let changed = text.replacen(part, other, if part == "\"n1\"" { 9 } else { 1 });
        assert_ne!(changed, text, "{part}");
        assert!(digests.insert(snapshot(&changed).network.digest), "{part}");
    }
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["members"].as_array_mut().unwrap().reverse();
    assert!(!digests.insert(snapshot(&value.to_string()).network.digest), "the order means nothing");
}
