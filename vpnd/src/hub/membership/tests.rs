use proptest::prelude::*;

use super::*;
use crate::hub::sample::{member, network, prefix, snapshot};

mod model;

const START: Now = Now { wall: 1_800_000_000_000, mono: Duration::from_secs(100) };
const HOUR: u64 = 3_600_000;

fn at(wall_seconds: i64, mono_seconds: u64) -> Now {
    Now {
        wall: START.wall.checked_add_signed(wall_seconds * 1_000).unwrap(),
        mono: START.mono + Duration::from_secs(mono_seconds),
    }
}

/// Network `revision` of members 0 to 2, which end in an hour.
fn hour(revision: u64) -> Arc<Network> {
    network(snapshot(revision, (0..3).map(|number| member(number, START.wall + HOUR)).collect()))
}

fn key(number: u8) -> [u8; 32] {
    [number + 1; 32]
}

fn published(actions: &[Action]) -> &View {
    let Some(Action::Publish(view)) = actions.first() else { panic!("{actions:?}") };
    view
}

/// The sessions of the published view, by their places.
fn sessions(actions: &[Action]) -> Vec<(usize, SessionId)> {
    published(actions).sessions().iter().map(|(place, session)| (place, *session)).collect()
}

/// Three members with sessions 10, 11 and 12.
fn serving() -> Membership {
    let mut membership = Membership::default();
    membership.apply(hour(5), START).unwrap();
    for number in 0..3 {
        let actions = membership.proven(10 + u64::from(number), &key(number), START);
        assert_eq!(actions[1..], [Action::Admit(10 + u64::from(number))]);
    }
    membership
}

/// VPN-18, VPN-19, VPN-20, VPN-21, VPN-22, VPN-23: a repeat changes nothing, a later revision or generation
/// replaces, and what may not follow is refused with everything as it was.
#[test]
fn networks_follow_each_other_in_order() {
    let mut membership = serving();
    let of = |change: fn(&mut Held)| {
        let mut snapshot = snapshot(5, (0..3).map(|number| member(number, START.wall + HOUR)).collect());
        change(&mut snapshot.network);
        network(snapshot)
    };
    assert_eq!(membership.apply(hour(5), START), Ok(Vec::new()));
    let refused: [fn(&mut Held); 5] = [
        |held| held.revision = 4,
        |held| held.digest = [99; 32],
        |held| (held.generation, held.revision) = (0, 9),
        |held| (held.authority, held.revision) = ("other".into(), 9),
        |held| (held.control_prefix, held.revision) = (prefix([10, 8, 0, 0], 25), 9),
    ];
    for change in refused {
        assert_eq!(membership.apply(of(change), START), Err(NotApplied::Passed));
    }
    assert_eq!(membership.network().unwrap().held().revision, 5);
    let actions = membership.apply(hour(6), START).unwrap();
    assert_eq!(actions.len(), 1);
    assert_eq!(sessions(&actions), [(0, 10), (1, 11), (2, 12)]);
    let next: fn(&mut Held) = |held| (held.generation, held.revision) = (2, 0);
    assert_eq!(published(&membership.apply(of(next), START).unwrap()).network().held().generation, 2);
}

/// VPN-15: a network that leaves a member out, or states another key, address or node for it, ends its session,
/// and the view without it comes first.
#[test]
fn whoever_is_withdrawn_is_closed_after_the_view_changed() {
    let members = || (0..3).map(|number| member(number, START.wall + HOUR)).collect::<Vec<_>>();
    type Spoil = fn(&mut Vec<coreflow_ipc::messages::vpn_network::SnapshotMember>);
    let spoils: [Spoil; 5] = [
        |members| drop(members.remove(1)),
        |members| members[1].public_key = [99; 32],
        |members| members[1].address = [10, 8, 0, 77].into(),
        |members| members[1].enabled = false,
        |members| members[1].node_id = "other".into(),
    ];
    for spoil in spoils {
        let mut membership = serving();
        let mut members = members();
        spoil(&mut members);
        let mut offered = snapshot(6, members);
        offered.members.reverse();
        let actions = membership.apply(network(offered), START).unwrap();
        assert_eq!(actions[1..], [Action::Close(11, Close::Withdrawn)]);
        let view = published(&actions);
        assert_eq!(view.place(&key(1), 11), None);
        for (session, number) in [(10, 0), (12, 2)] {
            let place = view.place(&key(number), session).unwrap();
            assert_eq!(view.network().members()[place].key, key(number));
            assert_eq!(view.place(&key(number), 11), None);
        }
        // The late end of what was closed changes nothing, and nor does the next look.
        assert_eq!(membership.closed(11), []);
        assert_eq!(membership.tick(START), []);
    }
    // Other prefixes and other grants go by the new view, without an end.
    let mut membership = serving();
    let mut members = members();
    members[1].prefixes.clear();
    assert_eq!(membership.apply(network(snapshot(6, members)), START).unwrap().len(), 1);
}

#[test]
fn strangers_and_whose_time_has_passed_are_refused_alike() {
    let mut membership = Membership::default();
    assert_eq!(membership.proven(1, &key(0), START), [Action::Refuse(1)]);
    let mut members: Vec<_> = (0..3).map(|number| member(number, START.wall + HOUR)).collect();
    members[1].enabled = false;
    membership.apply(network(snapshot(1, members)), START).unwrap();
    for (stranger, now) in [(key(9), START), (key(1), START), (key(0), at(3_600, 0)), (key(0), at(0, 3_600))]
    {
        assert_eq!(membership.admissible(&stranger, now), None);
        assert_eq!(membership.proven(1, &stranger, now), [Action::Refuse(1)]);
    }
    assert_eq!((membership.count_admissible(START), membership.count_admissible(at(3_600, 0))), (2, 0));
    assert_eq!(membership.proven(1, &key(0), at(3_599, 0))[1..], [Action::Admit(1)]);
}

#[test]
fn a_second_session_supersedes_and_the_first_ones_late_end_takes_nothing() {
    let mut membership = serving();
    let actions = membership.proven(20, &key(0), START);
    assert_eq!(actions[1..], [Action::Admit(20), Action::Close(10, Close::Superseded)]);
    assert_eq!(published(&actions).session(0), Some(20));
    assert_eq!(membership.closed(10), []);
    let actions = membership.closed(20);
    assert_eq!((actions.len(), published(&actions).session(0)), (1, None));
    assert_eq!(membership.closed(20), []);
}

#[test]
fn a_members_time_ends_by_either_clock() {
    for late in [at(3_600, 0), at(0, 3_600), at(-7_200, 3_600), at(9_999, 9_999)] {
        let mut membership = serving();
        assert_eq!(membership.tick(at(3_599, 3_599)), []);
        let actions = membership.tick(late);
        assert_eq!(sessions(&actions), []);
        assert_eq!(actions[1..], [10, 11, 12].map(|session| Action::Close(session, Close::Expired)));
        assert_eq!(membership.tick(late), []);
    }
}

#[test]
fn a_clock_that_is_set_back_extends_nothing() {
    // Half an hour passes, then the clock goes two hours back: half an hour is left, to new sessions too.
    let mut membership = serving();
    assert_eq!(membership.tick(at(-7_200, 1_800)), []);
    membership.proven(20, &key(0), at(-7_200, 1_800));
    assert_eq!(membership.tick(at(-5_401, 3_599)), []);
    assert_eq!(membership.tick(at(-5_400, 3_600)).len(), 4);
    assert_eq!(membership.proven(30, &key(0), at(-5_400, 3_600)), [Action::Refuse(30)]);
}

/// A clock that is ahead for a moment takes no time for good, whoever looks in that moment, and one that is put right
/// counts from then on: it is not extended by being set back later.
#[test]
fn one_look_alone_counts_for_nothing() {
    let mut membership = serving();
    assert_eq!(membership.tick(at(1, 1)), []);
    // 55 minutes ahead: a member dials again, and a tick looks too.
    assert_eq!(membership.proven(20, &key(0), at(3_302, 2)).len(), 3);
    assert_eq!(membership.tick(at(3_302, 2)), []);
    assert_eq!(membership.tick(at(303, 303)), []);
    assert_eq!(membership.tick(at(3_599, 3_599)), []);
    assert_eq!(membership.tick(at(3_600, 3_600)).len(), 4);
    // Ahead when a revision comes.
    let mut membership = serving();
    assert_eq!(membership.tick(at(1, 1)), []);
    membership.apply(hour(6), at(3_302, 2)).unwrap();
    assert_eq!(membership.tick(at(303, 303)), []);
    assert!(membership.admissible(&key(1), at(3_599, 3_599)).is_some());
    // Ahead for as long as two looks, which counts; a later revision looks anew.
    let mut membership = serving();
    for seconds in 1..3_u32 {
        assert_eq!(membership.tick(at(3_300 + i64::from(seconds), seconds.into())), []);
    }
    assert!(membership.admissible(&key(0), at(301, 301)).is_none());
    assert_eq!(membership.apply(hour(6), at(301, 301)).unwrap().len(), 1);
    assert!(membership.admissible(&key(0), at(302, 302)).is_some());
    // Two hours behind at first, then right for a while, then behind again.
    let mut membership = Membership::default();
    membership.apply(hour(5), at(-7_200, 0)).unwrap();
    membership.proven(10, &key(0), at(-7_200, 1));
    for seconds in 2..3_000_u32 {
        assert_eq!(membership.tick(at(seconds.into(), seconds.into())), []);
    }
    assert_eq!(membership.tick(at(3_599 - 7_200, 3_599)), []);
    assert_eq!(membership.tick(at(3_600 - 7_200, 3_600)).len(), 2);
}

#[test]
fn a_later_revision_makes_live_sessions_longer_or_shorter() {
    let mut membership = serving();
    let ends = [HOUR, 2 * HOUR, HOUR / 2];
    let members = (0..).zip(ends).map(|(number, end)| member(number, START.wall + end)).collect();
    assert_eq!(membership.apply(network(snapshot(6, members)), START).unwrap().len(), 1);
    assert_eq!(membership.tick(at(1_800, 1_800))[1..], [Action::Close(12, Close::Expired)]);
    assert_eq!(membership.tick(at(3_600, 3_600))[1..], [Action::Close(10, Close::Expired)]);
    assert_eq!(membership.tick(at(7_199, 7_199)), []);
    assert_eq!(membership.tick(at(7_200, 7_200))[1..], [Action::Close(11, Close::Expired)]);
    // One whose time is over already ends with the revision that says so.
    let mut membership = serving();
    let members = vec![member(0, START.wall + HOUR), member(1, START.wall), member(2, START.wall + HOUR)];
    let actions = membership.apply(network(snapshot(6, members)), START).unwrap();
    assert_eq!(actions[1..], [Action::Close(11, Close::Expired)]);
    assert_eq!(sessions(&actions), [(0, 10), (2, 12)]);
}

#[test]
fn a_tick_is_due_at_the_next_end_and_at_each_look() {
    let mut membership = Membership::default();
    assert_eq!(membership.next_deadline(), None);
    membership.apply(hour(5), START).unwrap();
    assert_eq!(membership.next_deadline(), None);
    membership.proven(1, &key(0), START);
    membership.tick(START);
    assert_eq!(membership.next_deadline(), Some(START.mono + CLOCK_LOOK));
    membership.tick(at(3_599, 3_599));
    membership.tick(Now { mono: START.mono + Duration::from_millis(3_599_500), ..at(3_599, 0) });
    assert_eq!(membership.next_deadline(), Some(START.mono + Duration::from_hours(1)));
}

proptest! {
    /// VPN-15, VPN-18, VPN-19, VPN-22: random scripts, clocks that jump among them, against a model that keeps no
    /// state but what was said.
    #[test]
    fn the_machine_does_what_the_model_says(script in model::script()) {
        model::run(script)?;
    }
}
