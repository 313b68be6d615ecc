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
    assert_eq!(script.lose(1), [Seen::Note(Note::Lost { revision: Some(5) })]);
    assert_eq!(script.held(), None);
    script.link(2, Some(snapshot(&network(5)).network));
    assert_eq!(script.held(), Some(5));
}

/// A link that takes the place of another ends it, whether its end was told or is told later.
#[test]
fn a_link_takes_the_place_of_another() {
    let mut script = Script::serving(5);
    script.push("p", &network(6));
    let ended = "vpn-hub-unavailable: its link ended";
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

/// VPN-41, VPN-42: a hub whose link is gone is advertised for three seconds more, within which a link between two that
/// live is made anew; another vpnd's key takes the place of it at once.
#[test]
fn a_hub_stays_advertised_while_its_link_is_made_anew() {
    let mut script = Script::serving(5);
    script.lose(1);
    script.pass(2_999 * MS);
    assert_eq!((script.hub.advertised(), script.hub.lacks_key()), (Some((&facts(), KEY)), false));
    script.link(2, None);
    script.pass(3_000 * MS);
    assert_eq!(script.hub.advertised(), Some((&facts(), KEY)));
    script.lose(2);
    assert_eq!(script.hub.next_deadline(), Some(script.now.mono + 3_000 * MS));
    script.pass(3_000 * MS);
    assert_eq!((script.hub.advertised(), script.hub.lacks_key()), (None, true));
    script.link(3, None);
    script.lose(3);
    script.on(Event::Vpnd(Told::Linked { link: 4, public_key: [8; 32], held: None }));
    assert_eq!(script.hub.advertised(), Some((&facts(), [8; 32])));
}

/// A link that is heard of after a later one is none: networks go to the later one.
#[test]
fn a_former_link_that_is_heard_of_late_is_ignored() {
    let mut script = Script::configured();
    script.link(2, None);
    for link in [1, 2] {
        assert_eq!(script.link(link, Some(snapshot(&network(9)).network)), []);
    }
    assert_eq!(script.lose(1), []);
    assert_eq!(script.push("p", &network(5)), [Seen::Apply(2, 0, snapshot(&network(5)))]);
    script.lose(2);
    assert_eq!(script.link(1, None), [], "nobody holds it any more");
    assert_eq!(script.held(), None);
}

/// The link alone makes no hub: one is advertised where one is configured.
#[test]
fn a_hub_is_advertised_where_one_is_configured() {
    let mut script = Script::new();
    assert_eq!(script.hub.advertised(), Some((&facts(), KEY)));
    script.on(Event::Configured(None));
    assert_eq!((script.hub.advertised(), script.hub.lacks_key()), (None, false));
}
