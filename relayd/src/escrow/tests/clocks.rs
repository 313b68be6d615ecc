//! When the timer goes off, and what a clock that jumps, slews or sleeps changes.

use super::{release::holding, *};

/// ESC-30, ESC-34, ESC-39, ESC-43: the one timer stands at the first opening or repeat of any node, and goes off
/// in that very moment.
#[test]
fn the_timer_stands_at_the_first_opening_or_repeat() {
    // Window 1 of `n` opens in 20 s, that of `m` in 10 s.
    let mut script = holding(4, 10 * MIN + 10_000);
    script.carry(2, "m");
    let p = projection("p", 3);
    let window = |index: u64| (window(index).0 - 10_000, window(index).1 - 10_000);
    let renewals = [0, 1].map(|index| renewal("m", &p, index, window(index)));
    script.holds(&hold_body(&binding("m", "s"), &p, &renewals)).unwrap();
    for seen in script.on(Event::SessionDown) {
        let Seen::Offered(offered) = seen else { panic!("{seen:?}") };
        assert_eq!(script.acknowledges(&offered).len(), 1);
    }
    let mut next = |after: u32, to: Socket| {
        let due = script.escrow.next_deadline(script.now).expect("there is something to come");
        assert_eq!(due - script.now.mono, after * S);
        script.go_to(due);
        let offered = offer(&script.on(Event::Tick));
        assert_eq!((offered.to, offered.sequence()), (to, 1));
        script.refuses(&offered);
    };
    next(10, 2);
    next(10, 1);
    next(20, 2);
    next(10, 1);
    next(20, 2);
}

/// ESC-34: a host that slept over the time of a repeat makes it when it wakes.
#[test]
fn a_repeat_that_was_slept_over_is_made_at_once() {
    let mut script = holding(4, MIN);
    let offered = offer(&script.on(Event::SessionDown));
    script.refuses(&offered);
    script.go_to(script.now.mono + 45 * S);
    assert_eq!(offers(&script.on(Event::Tick)), [(1, 0)]);
}

/// ESC-44: the wall clock alone selects; a jump is noticed at the next look, in both directions.
#[test]
fn a_jump_of_the_wall_clock_changes_what_is_due() {
    let mut script = holding(8, MIN);
    let offered = offer(&script.on(Event::SessionDown));
    script.acknowledges(&offered);
    script.now.wall += 30 * MIN;
    let look = script.escrow.next_deadline(script.now).unwrap();
    assert!(look <= script.now.mono + CLOCK_LOOK);
    let offered = offer(&script.on(Event::Tick));
    assert_eq!(offered.sequence(), 3);
    script.refuses(&offered);
    script.now.wall -= 20 * MIN;
    let offered = offer(&script.pass(Duration::from_secs(1)));
    assert_eq!(offered.sequence(), 1, "never one that is early by the clock there is");
    script.now.wall -= 11 * MIN;
    assert_eq!(script.pass(Duration::from_secs(1)), [], "nor one that was acknowledged");
}

/// ESC-26, ESC-44: what is a jump is measured against the time that passed: a clock that goes backwards as fast as
/// time goes on has jumped by twice as much.
#[test]
fn a_clock_that_runs_backwards_is_noticed() {
    let mut script = holding(4, 10 * MIN + MIN / 2 + 2000);
    assert_eq!(offer(&script.on(Event::SessionDown)).sequence(), 1);
    script.now.mono += 6 * S;
    script.now.wall -= 6000;
    assert_eq!(offers(&script.on(Event::Tick)), [(1, 0)], "its window is not open by the clock there is");
}

/// ESC-26, ESC-30, ESC-34: a clock that goes back over an opening by less than a jump has the offer made at
/// the opening once more.
#[test]
fn a_clock_that_slews_back_over_an_opening_delays_no_window() {
    let mut script = Script::new();
    script.carry(1, "n");
    let p = projection("p", 3);
    let renewals = [renewal("n", &p, 0, window(0)), renewal("n", &p, 5, window(5))];
    script.holds(&hold_body(&binding("n", "s"), &p, &renewals)).unwrap();
    script.set_wall(MIN / 2);
    let offered = offer(&script.on(Event::SessionDown));
    let (correlation, instance) = (offered.id.clone(), offered.instance.clone());
    let outcome = Outcome::Response(Body::empty());
    let answer = Answer { correlation, instance, outcome, retry_after_ms: Some(100) };
    assert_eq!(script.on(Event::NodeAnswered { socket: 1, answer }), []);
    script.now.wall -= 500;
    assert_eq!(script.pass(Duration::from_millis(499)), [], "not open by the clock there is");
    assert_eq!(offer(&script.pass(Duration::from_millis(1))).sequence(), 0);
}

/// ESC-34, ESC-43: an offer that is refused after the clock went back leaves the repeat that is due earlier where it
/// is.
#[test]
fn a_refusal_after_a_jump_delays_no_repeat() {
    let mut script = holding(4, 10 * MIN + 29_000);
    let first = offer(&script.on(Event::SessionDown));
    script.refuses(&first);
    let second = offer(&script.pass(S));
    assert_eq!((first.sequence(), second.sequence()), (0, 1));
    script.now.wall -= MIN;
    assert_eq!(script.on(Event::Tick), []);
    assert_eq!(notes(script.refuses(&second)).len(), 1);
    assert_eq!(script.pass(29 * S - Duration::from_millis(1)), []);
    assert_eq!(offers(&script.pass(Duration::from_millis(1))), [(1, 0)], "30 s after the first refusal");
}
