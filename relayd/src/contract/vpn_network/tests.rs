//! What is a network, what is none and where, and that the order of its parts means nothing.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn key(number: u8) -> String {
    STANDARD.encode([number; 32])
}

fn network() -> Value {
    json!({
        "authority": {"id": "authority-1", "generation": 3},
        "revision": 7,
        "controlPrefix": "10.9.0.0/24",
        "members": [
            {"nodeId": "b", "publicKey": key(2), "address": "10.9.0.3", "prefixes": ["10.2.0.0/16", "10.1.0.0/24"],
             "expiresAt": 1_790_000_000_000_u64},
            {"nodeId": "a", "publicKey": key(1), "address": "10.9.0.2", "prefixes": [], "expiresAt": 0},
            {"nodeId": "c", "publicKey": key(3), "address": "10.9.0.254", "prefixes": ["10.3.0.0/16"],
             "expiresAt": 9_007_199_254_740_991_u64},
        ],
        "grants": [{"from": "a", "to": "b"}, {"from": "b", "to": "a"}, {"from": "c", "to": "a"}],
    })
}

fn read(network: &Value) -> Result<VpnNetwork, InvalidNetwork> {
    read_text(&network.to_string())
}

fn read_text(text: &str) -> Result<VpnNetwork, InvalidNetwork> {
    validate_cluster_vpn_network(&RawValue::from_string(text.to_owned()).expect("the text is JSON"))
}

/// The path of what is wrong with the network, once `pointer` has another value.
fn wrong_with(pointer: &str, value: Value) -> String {
    let mut network = network();
    *network.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
    path(read(&network))
}

fn path(read: Result<VpnNetwork, InvalidNetwork>) -> String {
    read.err().map_or_else(|| "nothing".to_owned(), |invalid| invalid.path)
}

fn prefix(text: &str) -> Prefix {
    parse_prefix(text).unwrap()
}

/// VPN-14, VPN-32: a network is read whole, with its expiry in Unix milliseconds and membership by presence.
#[test]
fn a_network_is_read_whole() {
    let read = read(&network()).unwrap();
    assert_eq!((read.authority.as_str(), read.generation.get(), read.revision.get()), ("authority-1", 3, 7));
    assert_eq!(read.control_prefix, prefix("10.9.0.0/24"));
    let members: Vec<_> = read.members.iter().map(|member| member.node_id.as_str()).collect();
    assert_eq!(members, ["a", "b", "c"]);
    let b = &read.members[1];
    assert_eq!((b.public_key, b.address), ([2; 32], Ipv4Addr::new(10, 9, 0, 3)));
    assert_eq!(b.prefixes, [prefix("10.1.0.0/24"), prefix("10.2.0.0/16")]);
    assert_eq!(b.expires_at, 1_790_000_000_000);
    let granted = |from, to| read.grants.granted(from, to);
    assert!(granted(0, 1) && granted(1, 0) && granted(2, 0) && !granted(0, 2), "a link is two grants");
    assert_eq!(read.grants.count(), 3);
}

/// VPN-07: a network with a member more, a private key above all, is none; the path names the member, and no
/// value of it.
#[test]
fn a_private_key_makes_a_network_none() {
    let mut with_key = network();
    with_key["members"][1]["privateKey"] = json!("c2VjcmV0LWtleS1tYXRlcmlhbA==");
    assert_eq!(path(read(&with_key)), "members[1].privateKey");
    let mut odd = network();
    odd["members"][1]["secret key: c2VjcmV0"] = json!(1);
    assert_eq!(path(read(&odd)), "members[1]", "a name that does not look like one is not repeated");
}

/// VPN-07, VPN-14: every object is exact-key: a member that is missing, unknown or stands twice is named by its
/// path.
#[test]
fn every_object_is_exact_key() {
    for (object, missing, expected) in [
        ("", "authority", "authority"),
        ("", "revision", "revision"),
        ("", "controlPrefix", "controlPrefix"),
        ("", "members", "members"),
        ("", "grants", "grants"),
        ("/authority", "id", "authority.id"),
        ("/authority", "generation", "authority.generation"),
        ("/members/2", "nodeId", "members[2].nodeId"),
        ("/members/2", "publicKey", "members[2].publicKey"),
        ("/members/2", "address", "members[2].address"),
        ("/members/2", "prefixes", "members[2].prefixes"),
        ("/members/2", "expiresAt", "members[2].expiresAt"),
        ("/grants/1", "from", "grants[1].from"),
        ("/grants/1", "to", "grants[1].to"),
    ] {
        let (mut without, mut more) = (network(), network());
        without.pointer_mut(object).unwrap().as_object_mut().unwrap().remove(missing).unwrap();
        assert_eq!(path(read(&without)), expected);
        more.pointer_mut(object).unwrap()["enabled"] = json!(true);
        let place = expected.strip_suffix(missing).unwrap();
        assert_eq!(path(read(&more)), format!("{place}enabled"), "{object}");
    }
    let text = network().to_string();
    for (once, twice, expected) in [
        (r#""revision":7"#, r#""revision":7,"revision":7"#, "revision"),
        (r#""revision":7"#, r#""revision":7,"revisio\u006e":8"#, "revision"),
        (r#""nodeId":"a""#, r#""nodeId":"a","nodeId":"z""#, "members[1].nodeId"),
        (r#""from":"c""#, r#""from":"c","from":"a""#, "grants[2].from"),
    ] {
        let doubled = text.replacen(once, twice, 1);
        assert_ne!(doubled, text, "{once}");
        assert_eq!(path(read_text(&doubled)), expected);
    }
    for none in ["null", "7", "[]", r#""network""#] {
        assert_eq!(path(read_text(none)), "network", "{none}");
    }
}

/// VPN-07: each value is the contract's, in its one form.
#[test]
fn a_value_that_is_none_is_named_by_its_path() {
    let cases: [(&str, &str, Vec<Value>); 11] = [
        ("/authority", "authority", vec![json!(null), json!(["authority-1", 3])]),
        ("/authority/id", "authority.id", vec![json!(""), json!("a b"), json!(7)]),
        ("/authority/generation", "authority.generation", vec![json!(-1), json!("3"), json!(1_u64 << 53)]),
        ("/revision", "revision", vec![json!(null), json!(1.5), json!(1_u64 << 53)]),
        (
            "/controlPrefix",
            "controlPrefix",
            [
                "10.9.0.1/24",
                "10.9.0.0/024",
                "10.9.0.0/+24",
                "10.9.0.0",
                "10.9.0.0/33",
                "10.9.0.0/31",
                "10.9.0.0/32",
                "0.0.0.0/0",
                "010.9.0.0/24",
                "fd00::/64",
                "10.9.0/24",
                " 10.9.0.0/24",
            ]
            .map(Value::from)
            .to_vec(),
        ),
        ("/members", "members", vec![json!(null), json!({}), json!("a")]),
        ("/members/1/nodeId", "members[1].nodeId", vec![json!("b"), json!("a/b"), json!("x".repeat(129))]),
        (
            "/members/1/publicKey",
            "members[1].publicKey",
            vec![
                json!(key(2)),
                json!(STANDARD.encode([1; 31])),
                json!(STANDARD.encode([1; 33])),
                json!("AQ"),
                json!(key(1).replace('=', "")),
                json!(key(255).replace('/', "_")),
                json!(7),
            ],
        ),
        (
            "/members/1/address",
            "members[1].address",
            [
                "10.9.0.3",
                "10.9.0.0",
                "10.9.0.1",
                "10.9.0.255",
                "10.9.1.2",
                "10.8.255.254",
                "10.9.0.02",
                "::1",
                "10.9.0.2/24",
            ]
            .map(Value::from)
            .to_vec(),
        ),
        (
            "/members/1/expiresAt",
            "members[1].expiresAt",
            vec![json!("2026-01-31T00:00:00.000Z"), json!(-1), json!(1.5), json!(1_u64 << 53), json!(null)],
        ),
        ("/grants", "grants", vec![json!(null), json!({}), json!("a")]),
    ];
    for (pointer, expected, values) in cases {
        for value in values {
            assert_eq!(wrong_with(pointer, value.clone()), expected, "{value}");
        }
    }
    for unknown in [json!("d"), json!("A"), json!(null), json!(["a"])] {
        assert_eq!(wrong_with("/grants/1/from", unknown.clone()), "grants[1].from", "{unknown}");
        assert_eq!(wrong_with("/grants/1/to", unknown.clone()), "grants[1].to", "{unknown}");
    }
}

/// Prefixes are canonical, outside the control prefix, and of one member; one member's may lie in each other.
#[test]
fn a_prefix_belongs_to_one_member() {
    for (prefixes, expected) in [
        (json!(["10.1.0.0/25"]), "members[1].prefixes[0]"),
        (json!(["172.16.0.0/12", "10.0.0.0/8"]), "members[1].prefixes[1]"),
        (json!(["0.0.0.0/0"]), "members[1].prefixes[0]"),
        (json!(["10.9.0.0/25"]), "members[1].prefixes[0]"),
        (json!(["10.9.0.7/32"]), "members[1].prefixes[0]"),
        (json!(["10.8.0.0/15"]), "members[1].prefixes[0]"),
        (json!(["10.9.1.0/24", "192.0.2.1/24"]), "members[1].prefixes[1]"),
        (json!([7]), "members[1].prefixes[0]"),
        (json!("10.9.1.0/24"), "members[1].prefixes"),
        // Of two that meet the later one is at fault.
        (json!(["10.3.4.0/24"]), "members[2].prefixes[0]"),
        (json!(["10.9.1.0/24", "10.8.0.0/16", "192.0.2.1/32", "255.255.255.255/32"]), "nothing"),
        (json!(["10.4.1.0/24", "10.4.0.0/16", "10.4.1.0/24", "10.4.2.0/24"]), "nothing"),
    ] {
        assert_eq!(wrong_with("/members/1/prefixes", prefixes.clone()), expected, "{prefixes}");
    }
}

/// A network has [`MOST_MEMBERS`] members and [`MOST_PREFIXES`] prefixes at most.
#[test]
fn a_network_is_bounded() {
    let of = |members: usize, prefixes: usize| {
        let member = |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_be_bytes());
            let address =
                Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 2)) + u32::try_from(number).unwrap());
            let behind: Vec<String> = (0..prefixes)
                .map(|prefix| {
                    let at = u32::try_from(number * prefixes + prefix).unwrap();
                    format!("{}/32", Ipv4Addr::from(u32::from(Ipv4Addr::new(172, 16, 0, 0)) + at))
                })
                .collect();
            json!({"nodeId": format!("n{number}"), "publicKey": STANDARD.encode(key), "address": address,
                   "prefixes": behind, "expiresAt": 1})
        };
        json!({"authority": {"id": "a", "generation": 0}, "revision": 0, "controlPrefix": "10.0.0.0/16",
               "members": (0..members).map(member).collect::<Vec<_>>(), "grants": []})
    };
    assert_eq!(path(read(&of(MOST_MEMBERS, 1))), "nothing");
    assert_eq!(path(read(&of(MOST_MEMBERS + 1, 1))), "members");
    let most = MOST_PREFIXES / 64;
    assert_eq!(path(read(&of(64, most))), "nothing");
    assert_eq!(path(read(&of(65, most))), "members[64].prefixes");
}

/// A network has [`MOST_GRANTS`] grants at most, one that is said again among them; a grant that is written with
/// escapes or in another order is read as any other.
#[test]
fn the_grants_of_a_network_are_bounded() {
    let of = |grants: usize| {
        let mut network = network();
        network["grants"] = json!([]);
        let list = format!(r#""grants":[{}{ESCAPED}]"#, format!("{GRANT},").repeat(grants - 1));
        network.to_string().replacen(r#""grants":[]"#, &list, 1)
    };
    assert_eq!(read_text(&of(MOST_GRANTS)).map(|read| read.grants.count()), Ok(2));
    assert_eq!(path(read_text(&of(MOST_GRANTS + 1))), "grants");
    for none in [json!(["a", "b"]), json!({"from": "a", "to": "b", "more": 1})] {
        let mut network = network();
        network["grants"][1] = none;
        assert!(path(read(&network)).starts_with("grants[1]"), "{network}");
    }
}

const GRANT: &str = r#"{"from":"b","to":"c"}"#;
const ESCAPED: &str = r#"{"to":"b","from":"\u0061"}"#;

/// The state and revision of an answer, and a reason where there is one.
#[test]
fn an_answer_has_the_contract_s_members() {
    let write =
        |state, revision, reason| serde_json::to_string(&NetworkApplied { state, revision, reason }).unwrap();
    assert_eq!(write(NetworkState::Applied, Some(7), None), r#"{"state":"applied","revision":7}"#);
    assert_eq!(write(NetworkState::Replayed, Some(7), None), r#"{"state":"replayed","revision":7}"#);
    let failed = r#"{"state":"failed","revision":null,"reason":"r"}"#;
    assert_eq!(write(NetworkState::Failed, None, Some("r")), failed);
}

fn rotate(list: &mut Value, by: u8) -> &mut Vec<Value> {
    let list = list.as_array_mut().unwrap();
    let by = usize::from(by) % list.len().max(1);
    list.rotate_left(by);
    list
}

/// Prefixes of a small space, so that they often meet.
fn small_prefix() -> impl Strategy<Value = Prefix> {
    (0..64_u32, 26..=32_u8).prop_map(|(at, length)| {
        let open = u32::MAX.checked_shr(u32::from(length)).unwrap_or(0);
        let address = Ipv4Addr::from((u32::from(Ipv4Addr::new(192, 0, 2, 0)) + at) & !open);
        Prefix { address, length }
    })
}

proptest! {
    /// What is taken is what no address of another has: against a table of every address's owner.
    #[test]
    fn prefixes_meet_exactly_where_an_address_is_in_both(
        taken in prop::collection::vec((small_prefix(), 0..3_usize), 1..40)
    ) {
        let (mut occupied, mut owners) = (Occupied::default(), BTreeMap::new());
        for (prefix, owner) in taken {
            let addresses = first(prefix)..=last(prefix);
            let free = addresses.clone().all(|address| owners.get(&address).is_none_or(|other| *other == owner));
            prop_assert_eq!(occupied.take(prefix, owner), free, "{} of {}", prefix, owner);
            if free {
                owners.extend(addresses.map(|address| (address, owner)));
            }
        }
    }

    /// Two texts of one content are one network, whatever the order of members, prefixes and grants, and
    /// however often a grant or a prefix is said.
    #[test]
    fn the_order_of_a_network_means_nothing(seed in any::<[u8; 4]>()) {
        let mut other = network();
        rotate(&mut other["members"], seed[0]);
        let grants = rotate(&mut other["grants"], seed[1]);
        if seed[2] % 2 == 0 {
            grants.push(grants[0].clone());
        }
        for member in other["members"].as_array_mut().unwrap() {
            rotate(&mut member["prefixes"], seed[3]);
        }
        prop_assert_eq!(read(&other).unwrap(), read(&network()).unwrap());
    }

    /// Whatever JSON comes, it is a network or a path of the contract's words, and never a value of it.
    #[test]
    fn what_is_wrong_is_a_path(at in 0..40_usize, other in prop_oneof![
        Just(json!("QkFEVkFMVUU/")), Just(json!(null)), Just(json!({"QkFEVkFMVUU/": 1})), Just(json!(["QkFEVkFMVUU"])),
    ]) {
        let mut broken = network();
        let mut places = Vec::new();
        fn collect(value: &Value, at: &str, places: &mut Vec<String>) {
            places.push(at.to_owned());
            match value {
                Value::Object(members) => {
                    members.iter().for_each(|(name, value)| collect(value, &format!("{at}/{name}"), places));
                }
                Value::Array(list) => {
                    let elements = list.iter().enumerate();
                    elements.for_each(|(index, value)| collect(value, &format!("{at}/{index}"), places));
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        collect(&broken, "", &mut places);
        *broken.pointer_mut(&places[at % places.len()]).unwrap() = other;
        let invalid = read(&broken);
        prop_assert!(invalid.is_err(), "{broken}");
        prop_assert!(!path(invalid).contains("QkFEVkFMVUU"));
    }
}
