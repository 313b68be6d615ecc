use coreflow_ipc::messages::vpn_network::Grants;
use proptest::prelude::*;

use super::*;
use crate::hub::sample::{member, prefix, snapshot};

const LATER: u64 = 1_900_000_000_000;

fn three() -> Snapshot {
    snapshot(1, (0..3).map(|number| member(number, LATER)).collect())
}

/// VPN-14, VPN-31: the daemon's own words, schema version, ISO-8601 expiry and `enabled`, become the network
/// that is served.
#[test]
fn a_snapshot_becomes_a_network() {
    let mut snapshot = three();
    snapshot.members[1].enabled = false;
    snapshot.members[1].expires_at = "2026-01-31T00:00:00.125Z".into();
    let network = Network::of(snapshot).unwrap();
    assert_eq!(network.members().len(), 3);
    assert_eq!(network.members()[1].expires_at, 1_769_817_600_125);
    assert_eq!((network.members()[0].enabled, network.members()[1].enabled), (true, false));
    for place in 0..3 {
        assert_eq!(network.place(&network.members()[place].key), Some(place));
    }
    assert_eq!(network.place(&[9; 32]), None);
    assert_eq!(network.hub(), Ipv4Addr::new(10, 8, 0, 1));
    assert!(network.granted(0, 2) && !network.granted(0, 3));
}

#[test]
fn addresses_that_are_nobodys_by_nature_are_special() {
    let network = Network::of(three()).unwrap();
    for address in [
        "10.8.0.0",
        "10.8.0.1",
        "10.8.0.255",
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "224.0.0.5",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
    ] {
        assert!(network.is_special(address.parse().unwrap()), "{address}");
    }
    for address in ["10.8.0.2", "10.100.0.0", "10.100.255.255", "10.8.1.0"] {
        assert!(!network.is_special(address.parse().unwrap()), "{address}");
    }
}

/// VPN-23: what is no network is refused whole, by name.
#[test]
fn what_is_no_network_is_refused_and_says_what_of_it() {
    type Spoil = fn(&mut Snapshot);
    let cases: [(Spoil, &str); 23] = [
        (|s| s.schema_version = 2, "schema version 2"),
        (|s| s.network.authority.clear(), "an id that is none"),
        (|s| s.members[0].node_id = "x".repeat(129), "an id that is none"),
        (|s| s.members[0].node_id = "a\nb".into(), "an id that is none"),
        (|s| s.network.control_prefix.length = 33, "the control prefix"),
        (|s| s.network.control_prefix.length = 31, "the control prefix"),
        (|s| s.network.control_prefix = prefix([0, 0, 0, 0], 0), "the control prefix"),
        (|s| s.network.control_prefix.address = [10, 8, 0, 8].into(), "the control prefix"),
        (|s| s.members[1].node_id = "node-0".into(), "the same node id twice"),
        (|s| s.members[1].public_key = [1; 32], "the same key twice"),
        (|s| s.members[1].address = [10, 8, 0, 2].into(), "the same address twice"),
        (|s| s.members[1].address = [10, 8, 0, 0].into(), "address 10.8.0.0"),
        (|s| s.members[1].address = [10, 8, 0, 1].into(), "address 10.8.0.1"),
        (|s| s.members[1].address = [10, 8, 0, 255].into(), "address 10.8.0.255"),
        (|s| s.members[1].address = [10, 9, 0, 9].into(), "address 10.9.0.9"),
        (|s| s.members[1].prefixes = vec![prefix([10, 8, 0, 128], 25)], "prefix 10.8.0.128/25"),
        (|s| s.members[1].prefixes = vec![prefix([0, 0, 0, 0], 0)], "prefix 0.0.0.0/0"),
        (|s| s.members[1].prefixes = vec![prefix([10, 9, 0, 1], 24)], "prefix 10.9.0.1/24"),
        (|s| s.members[1].prefixes = vec![prefix([10, 9, 0, 0], 40)], "prefix 10.9.0.0/40"),
        (|s| s.members[1].prefixes = vec![prefix([10, 100, 4, 0], 24)], "two members have 10.100.4.0"),
        (|s| s.members[1].expires_at = "tomorrow".into(), "an expiry that is no moment in UTC"),
        (
            |s| s.members[1].expires_at = "2026-01-31T00:00:00+01:00".into(),
            "an expiry that is no moment in UTC",
        ),
        (|s| s.grants = Grants::none(65), "grants of another number of members"),
    ];
    for (spoil, what) in cases {
        let mut snapshot = three();
        spoil(&mut snapshot);
        let refused = Network::of(snapshot).unwrap_err();
        assert_eq!(NotApplied::from(refused), NotApplied::Snapshot(what.into()));
    }
    assert!(Network::of(three()).is_ok());
}

#[test]
fn a_network_has_a_most() {
    let many = |members: usize, prefixes: usize| {
        let mut snapshot = snapshot(1, Vec::new());
        snapshot.network.control_prefix = prefix([10, 0, 0, 0], 8);
        snapshot.members = (0..members)
            .map(|number| {
                let mut key = [7; 32];
                key[..8].copy_from_slice(&number.to_le_bytes());
                let offset = u32::try_from(number).unwrap();
                SnapshotMember {
                    node_id: format!("n{number}"),
                    public_key: key,
                    // Half of them beyond the table that is looked at without a search.
                    address: Ipv4Addr::from_bits(0x0a00_0002 + offset * 32),
                    prefixes: Vec::new(),
                    ..member(0, LATER)
                }
            })
            .collect();
        if let Some(first) = snapshot.members.first_mut() {
            first.prefixes = vec![prefix([11, 0, 0, 0], 8); prefixes];
        }
        snapshot.grants = Grants::none(members);
        Network::of(snapshot)
    };
    let network = many(MOST_MEMBERS, MOST_PREFIXES).unwrap();
    for (place, member) in network.members().iter().enumerate() {
        assert_eq!(network.routes().member(member.address), Some(place));
        assert_eq!(network.place(&member.key), Some(place));
    }
    assert_eq!(many(MOST_MEMBERS + 1, 0).unwrap_err(), Unservable::Members(MOST_MEMBERS + 1));
    assert_eq!(many(1, MOST_PREFIXES + 1).unwrap_err(), Unservable::Prefixes(MOST_PREFIXES + 1));
}

proptest! {
    /// A compromised relayd may send anything that the codec takes.
    #[test]
    fn any_snapshot_is_served_or_refused(
        control in any::<([u8; 4], u8)>(),
        members in proptest::collection::vec(
            (any::<[u8; 4]>(), proptest::collection::vec(any::<([u8; 4], u8)>(), 0..4), ".{0,24}"), 0..5),
        grants in 0_usize..200,
        asked in any::<[[u8; 4]; 8]>(),
    ) {
        let mut offered = snapshot(1, Vec::new());
        offered.network.control_prefix = prefix(control.0, control.1);
        offered.members = (0..).zip(members).map(|(number, (address, prefixes, expires_at))| SnapshotMember {
            address: address.into(),
            prefixes: prefixes.into_iter().map(|(address, length)| prefix(address, length)).collect(),
            expires_at,
            ..member(number, LATER)
        }).collect();
        offered.grants = Grants::none(grants);
        if let Ok(network) = Network::of(offered) {
            for address in asked {
                let _ = network.routes().member(address.into());
            }
        }
    }
}
