//! The hub among the other machines: what is registered of it, what is read for it, and what a stop waits for.

use std::net::Ipv4Addr;

use coreflow_ipc::messages::vpn_network::{Held, NotApplied};

use super::*;
use crate::hub::Told as Vpnd;

const PUSH: &str = "applyClusterVpnNetwork";
/// Base64 of the keys of 32 bytes 1 and 2.
const KEYS: [&str; 2] =
    ["AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=", "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="];

fn facts() -> VpnFacts {
    VpnFacts { address: Ipv4Addr::new(192, 0, 2, 16), quic_port: 51_820, unavailable: None }
}

fn network(revision: u64) -> String {
    format!(
        r#"{{"authority":{{"id":"a","generation":0}},"revision":{revision},"controlPrefix":"10.9.0.0/24","members":[],"grants":[]}}"#
    )
}

fn body(revision: u64) -> String {
    format!(r#"{{"network":{}}}"#, network(revision))
}

/// What the relay states of its hub in the one registration among `done`.
fn stated(done: &[Did]) -> serde_json::Value {
    let sent = request(done);
    assert_eq!(sent.method, REGISTER);
    let mut body: serde_json::Value = serde_json::from_str(&sent.body).unwrap();
    body["relay"].as_object_mut().unwrap().remove("vpnHub").unwrap_or_default()
}

fn hub(key: &str) -> serde_json::Value {
    serde_json::json!({"publicKey": key, "address": "192.0.2.16", "quicPort": 51_820})
}

/// The network that vpnd is given among `done`: its link, id and revision.
fn given(done: &[Did]) -> (u64, AskId, u64) {
    let given = done.iter().find_map(|did| match did {
        Did::Apply(link, id, snapshot) => Some((*link, *id, snapshot.network.revision)),
        _ => None,
    });
    given.unwrap_or_else(|| panic!("vpnd is given nothing: {done:?}"))
}

impl Script {
    fn linked(&mut self, link: u64, key: u8, held: Option<Held>) -> Vec<Did> {
        self.on(Event::Vpnd(Vpnd::Linked { link, public_key: [key; 32], held }))
    }

    fn applied(&mut self, done: &[Did]) -> Vec<Did> {
        let (link, id, _) = given(done);
        self.on(Event::Vpnd(Vpnd::Applied { link, id, outcome: Ok(()) }))
    }

    /// A registered relay with a hub of key 1 that Cloudly has no network for yet.
    fn with_hub() -> Self {
        let mut script = Self::standing();
        assert_eq!(script.linked(1, 1, None), []);
        let sent = script.listen_with(Some(facts()));
        let reads = script.answer(&sent, acceptance("https://relay.test", 1, 1));
        script.answer(&reads, ok(&config(r#","relay":{"origin":"https://relay.test"}"#)));
        script.answer_table(&reads, "null");
        assert_eq!(script.answer_network(&reads, "null"), []);
        script
    }
}

/// REG-20, REG-21, REG-22, VPN-09, VPN-41: the relay states the key that vpnd stated, and address and port as
/// they are configured, before anything is bound; nothing else of the hub, and no other transport.
#[test]
fn a_hub_is_registered_by_its_key_and_its_configured_address() {
    let mut script = Script::standing();
    script.linked(1, 1, None);
    let sent = script.listen_with(Some(facts()));
    assert_eq!(stated(&sent), hub(KEYS[0]));
    assert!(!sent.iter().any(|did| matches!(did, Did::Apply(..))));
}

/// REG-20, REG-23, VPN-41: the first registration waits for the key; one that does not come within three seconds
/// is not waited for, and is registered when it does.
#[test]
fn a_registration_waits_for_the_hub_s_key() {
    let mut script = Script::standing();
    assert_eq!(script.listen_with(Some(facts())), []);
    assert_eq!(stated(&script.linked(1, 1, None)), hub(KEYS[0]));

    let mut script = Script::standing();
    assert_eq!(script.listen_with(Some(facts())), []);
    assert_eq!(script.core.next_deadline(script.now), Some(script.now.mono + 3_000 * MS));
    let sent = script.pass(3_000 * MS);
    assert_eq!(stated(&sent), serde_json::Value::Null);
    script.answer(&sent, acceptance("https://relay.test", 1, 1));
    assert_eq!(stated(&script.linked(1, 1, None)), hub(KEYS[0]));
}

/// REG-23, VPN-36, VPN-45: a relay without a hub, or with one that cannot run, waits for no key and states none.
#[test]
fn a_relay_without_a_hub_states_none() {
    let unavailable = VpnFacts { unavailable: Some("gone".to_owned()), ..facts() };
    for (vpn, told) in [
        (None, Told::Error("vpn-hub-absent".to_owned())),
        (
            Some(unavailable),
            Told::Response(r#"{"state":"failed","revision":null,"reason":"gone"}"#.to_owned()),
        ),
    ] {
        let mut script = Script::standing();
        let sent = script.listen_with(vpn);
        assert_eq!(stated(&sent), serde_json::Value::Null);
        assert_eq!(script.cloudly(asked("p", PUSH, &body(1))), [Did::Told(1, "p".into(), told)]);
    }
}

/// VPN-29, VPN-42: a hub that is started after its daemon's exit has a key of its own, under which the relay
/// registers again, and the network is read anew; the same key over a new link is registered already.
#[test]
fn another_key_is_registered_and_the_network_read_anew() {
    let mut script = Script::with_hub();
    script.on(Event::Vpnd(Vpnd::Lost { link: 1 }));
    assert_eq!(script.linked(2, 1, None), [], "it is the same vpnd");
    script.on(Event::Vpnd(Vpnd::Lost { link: 2 }));
    let sent = script.linked(3, 2, None);
    assert_eq!(stated(&sent), hub(KEYS[1]));
    let reads = script.answer(&sent, acceptance("https://relay.test", 1, 2));
    assert_eq!(given(&script.answer_network(&reads, &network(4))), (3, 0, 4));
    // While none is there, none is stated, once its link had time to be made anew; when it is back, it is.
    script.on(Event::Vpnd(Vpnd::Lost { link: 3 }));
    let sent = script.reconnect();
    assert_eq!(stated(&sent), hub(KEYS[1]), "REG-20");
    script.answer(&sent, acceptance("https://relay.test", 1, 3));
    let sent = script.renew();
    assert_eq!(stated(&sent), serde_json::Value::Null);
    script.answer(&sent, acceptance("https://relay.test", 1, 4));
    let back = script.linked(4, 2, None);
    assert_eq!(stated(&back), hub(KEYS[1]));
}

/// VPN-24, VPN-25, REG-66: each acceptance reads the network, which vpnd is given; each push is answered once
/// vpnd has said that it serves it.
#[test]
fn what_is_read_and_pushed_goes_to_vpnd() {
    let mut script = Script::standing();
    script.linked(1, 1, None);
    let sent = script.listen_with(Some(facts()));
    let reads = script.answer(&sent, acceptance("https://relay.test", 1, 1));
    let read = script.answer_network(&reads, &network(4));
    assert_eq!(given(&read), (1, 0, 4));
    assert_eq!(script.applied(&read), []);
    let pushed = script.cloudly(asked("p", PUSH, &body(5)));
    assert_eq!((given(&pushed), pushed.len()), ((1, 1, 5), 1));
    let applied = Told::Response(r#"{"state":"applied","revision":5}"#.into());
    assert_eq!(script.applied(&pushed), [Did::Told(1, "p".into(), applied)]);
    let replayed = Told::Response(r#"{"state":"replayed","revision":5}"#.into());
    assert_eq!(script.cloudly(asked("q", PUSH, &body(5))), [Did::Told(1, "q".into(), replayed)]);
    let reads = script.renew();
    let reads = script.answer(&reads, acceptance("https://relay.test", 1, 2));
    assert!(served(&reads, NETWORK) && served(&reads, TABLE) && served(&reads, CONFIG));
}

/// VPN-34: a network that is not bound is logged with the cause that vpnd states, and the push is answered `failed`; the
/// line of an adopted network says whose it is and how much it holds, and no line holds a key.
#[test]
fn the_log_says_what_became_of_a_network() {
    let mut script = Script::with_hub();
    let (lines, _) = logged(|| {
        let pushed = script.cloudly(asked("p", PUSH, &body(5)));
        let (link, id, _) = given(&pushed);
        let outcome = Err(NotApplied::Bind("address in use".to_owned()));
        let told = script.on(Event::Vpnd(Vpnd::Applied { link, id, outcome }));
        let reason = r#"{"state":"failed","revision":null,"reason":"vpn-hub-bind-refused: address in use"}"#;
        assert_eq!(told, [Did::Told(1, "p".into(), Told::Response(reason.into()))]);
        let pushed = script.cloudly(asked("q", PUSH, &body(5)));
        script.applied(&pushed);
        script.cloudly(asked("r", PUSH, &body(4)));
        script.cloudly(asked("s", PUSH, &body(6).replace("10.9.0.0/24", "10.9.0.1/24")));
    });
    let [refused, adopted, stale, invalid] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(
        refused.starts_with("WARN") && refused.contains("vpn-hub-bind-refused: address in use"),
        "{refused}"
    );
    for part in ["INFO", "authority=\"a\"", "revision=5", "members=0", "grants=0"] {
        assert!(adopted.contains(part), "{adopted}");
    }
    assert!(stale.starts_with("WARN") && stale.contains("vpn-network-revision-stale"), "{stale}");
    assert!(
        invalid.starts_with("WARN") && invalid.contains("vpn-network-invalid: controlPrefix"),
        "{invalid}"
    );
}

/// START-24: a stop waits for a network that is being applied, and takes no further one.
#[test]
fn a_stop_waits_for_the_network_that_is_applied() {
    let mut script = Script::with_hub();
    let pushed = script.cloudly(asked("p", PUSH, &body(5)));
    assert!(!script.on(Event::Stop).contains(&Did::Drained));
    let late = script.cloudly(asked("q", PUSH, &body(6)));
    assert!(matches!(late.as_slice(), [Did::Told(1, _, Told::Error(_))]), "{late:?}");
    let told = script.applied(&pushed);
    assert!(told.contains(&Did::Drained), "{told:?}");
}

/// VPN-23, VPN-28, REG-61: a lost session, a refused registration and a parked relay leave the network served.
#[test]
fn what_cloudly_refuses_or_loses_leaves_the_network() {
    let mut script = Script::with_hub();
    let pushed = script.cloudly(asked("p", PUSH, &body(5)));
    script.applied(&pushed);
    let registered = script.reconnect();
    let parked = script.answer(&registered, plain_refusal("relay-credential-generation-stale"));
    assert!(!served(&parked, NETWORK), "{parked:?}");
    let replayed = Told::Response(r#"{"state":"replayed","revision":5}"#.into());
    assert_eq!(script.cloudly(asked("q", PUSH, &body(5))), [Did::Told(2, "q".into(), replayed)]);
}
