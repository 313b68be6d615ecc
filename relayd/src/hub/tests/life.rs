//! Vpnds and relayds that come and go.

use super::*;

/// VPN-27, VPN-28, VPN-41: a relayd that begins after its vpnd holds what that states, by its key, and asks for
/// nothing to be bound again.
#[test]
fn what_a_living_vpnd_serves_is_held() {
    let mut script = Script::configured();
    assert!(script.hub.lacks_key());
    let held = snapshot(&network(5)).network;
    assert_eq!(script.link(1, Some(held)), [Seen::Note(Note::Linked { revision: Some(5) })]);
    assert!(!script.hub.lacks_key());
    assert_eq!(script.hub.advertised(), Some((&facts(), KEY)));
    script.on(Event::Accepted);
    let seen = script.answer_read(Outcome::Response(carrying(&network(5))));
    assert_eq!(seen.unwrap(), [Seen::Note(Note::Replayed { revision: 5 })]);
}

/// VPN-28, VPN-29: a link that was lost between two that live brings back what is held with it.
#[test]
fn a_new_link_states_what_is_held() {
    let mut script = Script::serving(5);
    script.lose(1);
    assert_eq!(script.held(), None);
    script.link(2, Some(snapshot(&network(5)).network));
    assert_eq!(script.held(), Some(5));
}

/// A link that takes the place of another ends it, whether its end was told or is told later.
#[test]
fn a_link_takes_the_place_of_another() {
    let mut script = Script::serving(5);
    script.push("p", &network(6));
    let ended = "vpn-hub-unavailable: the hub ended";
    assert_eq!(
        script.link(2, None),
        [
            Seen::Note(Note::Lost { revision: Some(5) }),
            failed(ended),
            told("p", fails(None, ended)),
            Seen::Note(Note::Linked { revision: None }),
        ]
    );
    assert_eq!(script.lose(1), []);
    assert_eq!(script.applied(1, 1, Ok(())), []);
    assert_eq!(script.hub.advertised(), Some((&facts(), KEY)));
}

/// VPN-36, VPN-45: the link alone makes no hub: one is advertised where one is configured.
#[test]
fn a_hub_is_advertised_where_one_is_configured() {
    let mut script = Script::new();
    assert_eq!(script.hub.advertised(), Some((&facts(), KEY)));
    script.on(Event::Configured(None));
    assert_eq!((script.hub.advertised(), script.hub.lacks_key()), (None, false));
}
