//! One event in, the actions out, by a clock in the test's hand.

use proptest::prelude::*;

use super::*;
use crate::protocol::control::ControlError;

const SECOND: Duration = Duration::from_secs(1);

/// A machine, its clock, and the jitter that is drawn: the most there is, unless the test says otherwise.
struct Script {
    machine: Dialing,
    now: Duration,
    random: u32,
}

impl Script {
    fn started() -> Self {
        let mut script = Self { machine: Dialing::default(), now: 100 * SECOND, random: u32::MAX };
        assert_eq!(script.take(Event::Started), [Action::Dial(1)]);
        script
    }

    fn take(&mut self, event: Event) -> Vec<Action> {
        self.machine.handle(event, self.now, self.random)
    }

    fn up(dial: Dial) -> (Event, [Action; 1]) {
        (Event::Admitted(dial), [Action::TellUp(dial)])
    }

    fn admitted(mut self, dial: Dial) -> Self {
        let (event, actions) = Self::up(dial);
        assert_eq!(self.take(event), actions);
        self
    }

    /// Ends `dial`, and gives how long the machine waits before the next, which it then begins.
    fn wait_after(&mut self, dial: Dial, why: Why) -> Duration {
        assert_eq!(self.take(Event::Ended(dial, why.clone())), [Action::TellDown(why)]);
        let until = self.machine.next_deadline().expect("it waits");
        let wait = until - self.now;
        self.now = until - Duration::from_nanos(1);
        assert_eq!(self.take(Event::Tick), [], "not before its time");
        self.now = until;
        assert_eq!(self.take(Event::Tick), [Action::Dial(dial + 1)]);
        wait
    }
}

#[test]
fn a_dial_that_comes_to_nothing_is_given_up_after_five_seconds() {
    let mut script = Script::started();
    assert_eq!(script.machine.next_deadline(), Some(script.now + 5 * SECOND));
    script.now += 5 * SECOND;
    let gave_up = [Action::Abandon(1), Action::TellDown(Why::Unanswered)];
    assert_eq!(script.take(Event::Tick), gave_up);
    assert_eq!(script.machine.next_deadline(), Some(script.now + SECOND / 2));
    assert_eq!(script.take(Event::Admitted(1)), [], "it is too late");
    assert_eq!(script.take(Event::Ended(1, Why::Lost)), []);
}

#[test]
fn waits_double_to_half_a_minute() {
    let mut script = Script::started();
    let waits = (1..=8).map(|dial| script.wait_after(dial, Why::Unanswered).as_millis());
    assert_eq!(waits.collect::<Vec<_>>(), [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
    assert_eq!(script.machine.attempts(), 9);
}

#[test]
fn a_node_that_was_superseded_stays_away_for_a_minute() {
    for random in [0, u32::MAX] {
        let mut script = Script::started().admitted(1);
        script.random = random;
        let wait = script.wait_after(1, Why::Closed(Close::Superseded));
        assert!((60 * SECOND..=66 * SECOND).contains(&wait), "{wait:?}");
    }
}

#[test]
fn a_node_that_is_no_member_asks_every_half_minute() {
    for close in [Close::NotAdmitted, Close::Expired, Close::Version, Close::Malformed] {
        for random in [0, u32::MAX] {
            let mut script = Script::started();
            script.random = random;
            for dial in 1..=3 {
                let wait = script.wait_after(dial, Why::Closed(close));
                assert!((30 * SECOND..=33 * SECOND).contains(&wait), "{close} {wait:?}");
            }
        }
    }
    let wait = Script::started().wait_after(1, Why::Unknown(77));
    assert!(wait >= 30 * SECOND, "a code of a later version");
}

#[test]
fn a_session_that_is_lost_is_followed_by_one_quick_dial() {
    for why in [Why::Lost, Why::Closed(Close::Stopping), Why::Closed(Close::Withdrawn)] {
        let mut script = Script::started();
        for dial in 1..=6 {
            script.wait_after(dial, Why::Unanswered);
        }
        let mut script = script.admitted(7);
        script.now += 10 * SECOND;
        assert_eq!(script.wait_after(7, why.clone()), SECOND / 2);
        let mut script = script.admitted(8);
        assert_eq!(script.wait_after(8, why), 30 * SECOND, "a hub that goes on so is left alone");
    }
}

#[test]
fn a_session_that_stood_for_a_minute_starts_the_waits_over() {
    for (stood, wait, attempts) in [(59, 4000, 5), (60, 500, 1)] {
        let mut script = Script::started();
        for dial in 1..=3 {
            script.wait_after(dial, Why::Unanswered);
        }
        let mut script = script.admitted(4);
        script.now += stood * SECOND;
        assert_eq!(script.wait_after(4, Why::Closed(Close::Busy)).as_millis(), wait);
        assert_eq!(script.machine.attempts(), attempts);
    }
}

#[test]
fn another_local_address_ends_a_wait_that_the_hub_did_not_ask_for() {
    let mut script = Script::started();
    assert_eq!(script.take(Event::Moved), [], "a dial under way moves with its socket");
    script.take(Event::Ended(1, Why::Unanswered));
    assert_eq!(script.take(Event::Moved), [Action::Dial(2)]);
    let mut script = script.admitted(2);
    assert_eq!(script.take(Event::Moved), [], "so does a session");
    script.take(Event::Ended(2, Why::Closed(Close::Superseded)));
    assert_eq!(script.take(Event::Moved), []);
}

#[test]
fn what_belongs_to_an_older_dial_means_nothing() {
    let mut script = Script::started();
    script.wait_after(1, Why::Refused);
    for stale in [Event::Admitted(1), Event::Ended(1, Why::Lost), Event::Started] {
        assert_eq!(script.take(stale), []);
    }
    let mut script = script.admitted(2);
    assert_eq!(script.take(Event::Ended(1, Why::Lost)), []);
    assert_eq!(script.machine.next_deadline(), None);
}

#[test]
fn a_stop_ends_what_there_is_and_everything_after() {
    let mut dialing = Script::started();
    assert_eq!(dialing.take(Event::Stop), [Action::Abandon(1)]);
    let mut up = Script::started().admitted(1);
    assert_eq!(up.take(Event::Stop), [Action::Hangup(1)]);
    let mut waiting = Script::started();
    waiting.take(Event::Ended(1, Why::Refused));
    assert_eq!(waiting.take(Event::Stop), []);
    for script in [&mut dialing, &mut up, &mut waiting] {
        script.now += 100 * SECOND;
        for event in [Event::Tick, Event::Moved, Event::Started, Event::Ended(1, Why::Lost), Event::Stop] {
            assert_eq!(script.take(event), []);
        }
        assert_eq!(script.machine.next_deadline(), None);
    }
}

fn whys() -> impl Strategy<Value = Why> {
    prop_oneof![
        prop::sample::select(Close::ALL.to_vec()).prop_map(Why::Closed),
        Just(Why::Lost),
        Just(Why::Unanswered),
        Just(Why::Refused),
        Just(Why::NotTheHub),
        Just(Why::Malformed(ControlError::Ended)),
        Just(Why::Unknown(99)),
    ]
}

proptest! {
    /// Whatever happens: at most one dial at a time, none without its bound, and a host that is told of each
    /// session's end after its beginning.
    #[test]
    fn dials_are_single_and_bounded(
        steps in prop::collection::vec((0_u8..6, whys(), 0_u64..90_000, any::<u32>()), 0..80),
    ) {
        let mut machine = Dialing::default();
        let mut now = Duration::ZERO;
        let (mut under_way, mut up, mut last) = (None, false, 0);
        for (kind, why, passed, random) in steps {
            now += Duration::from_millis(passed);
            let event = match kind {
                0 => Event::Started,
                1 => Event::Admitted(last),
                2 => Event::Ended(last, why),
                3 => Event::Moved,
                4 => Event::Ended(last.wrapping_sub(1), why),
                _ => Event::Tick,
            };
            for action in machine.handle(event, now, random) {
                match action {
                    Action::Dial(dial) => {
                        prop_assert!(under_way.is_none() && !up && dial == last + 1);
                        prop_assert_eq!(machine.next_deadline(), Some(now + DIAL_BUDGET));
                        (under_way, last) = (Some(dial), dial);
                    }
                    Action::Abandon(dial) => prop_assert_eq!(under_way, Some(dial)),
                    Action::TellUp(dial) => {
                        prop_assert_eq!(under_way.take(), Some(dial));
                        up = true;
                    }
                    Action::TellDown(_) => {
                        prop_assert!(up || under_way.is_some());
                        (under_way, up) = (None, false);
                        let wait = machine.next_deadline().unwrap() - now;
                        prop_assert!(wait >= Duration::from_millis(250) && wait <= 66 * SECOND);
                    }
                    Action::Hangup(_) => prop_assert!(false, "nothing was stopped"),
                }
            }
        }
    }
}
