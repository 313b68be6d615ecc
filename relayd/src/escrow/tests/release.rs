//! What is offered, when, how often and to whom.

use super::*;
use crate::contract::values::Generation;

/// Node `n` is carried on socket 1 and has a run of `count` windows; the wall clock stands at `ms`.
pub(super) fn holding(count: u64, ms: u64) -> Script {
    let mut script = Script::new();
    script.carry(1, "n");
    script.holds_grid("n", 0, count);
    script.set_wall(ms);
    assert_eq!(script.on(Event::Tick), []);
    script
}

fn failed(sequence: u64, why: Failure) -> Note {
    Note::Failed { node: id("n"), sequence: generation(sequence), why }
}

fn refusal() -> Failure {
    Failure::Refused("renewal-not-current".to_owned())
}

fn generation(number: u64) -> Generation {
    Generation::parse(number).unwrap()
}

/// ESC-25, ESC-38, ESC-39: while the session stands nothing is offered, and there is no timer.
#[test]
fn nothing_is_offered_while_the_session_stands() {
    let mut script = holding(20, MIN);
    assert_eq!(script.escrow.next_deadline(script.now), None);
    assert_eq!(script.pass(Duration::from_secs(7200)), []);
}

/// ESC-26, ESC-28, ESC-29: in the moment of the loss what is due is offered: open for 30 s and not ended.
#[test]
fn the_due_renewal_is_offered_the_moment_the_session_is_lost() {
    let (margin, end) = (MIN / 2, 15 * MIN);
    for (ms, due) in [(margin - 1, None), (margin, Some(0)), (end - 1, Some(0)), (end, None)] {
        // One window, and one far away that keeps the run.
        let mut script = Script::new();
        script.carry(1, "n");
        let p = projection("p", 3);
        let renewals = [renewal("n", &p, 0, window(0)), renewal("n", &p, 5, window(5))];
        script.holds(&hold_body(&binding("n", "s"), &p, &renewals)).unwrap();
        script.set_wall(ms);
        let offered = offers(&script.on(Event::SessionDown));
        assert_eq!(offered, due.map(|sequence| (1, sequence)).into_iter().collect::<Vec<_>>(), "{ms}");
    }
}

/// ESC-27: of two that are due the latest is offered.
#[test]
fn of_two_that_are_due_the_latest_is_offered() {
    for (ms, latest) in [(10 * MIN + MIN / 2 - 1, 0), (10 * MIN + MIN / 2, 1), (14 * MIN, 1)] {
        let mut script = holding(5, ms);
        assert_eq!(offers(&script.on(Event::SessionDown)), [(1, latest)], "{ms}");
    }
}

/// ESC-02, ESC-31, ESC-67: an offer is the node's binding of the moment and the renewal's own bytes.
#[test]
fn an_offer_is_the_current_binding_and_the_very_renewal() {
    let mut script = Script::new();
    script.carry(1, "n");
    let p = projection("p", 3);
    let (not_before, expires_at) = window(0);
    let odd = format!(
        r#"{{ {ODD},"expiresAt":{expires_at},"clusterId":"\u0063","notBefore":{not_before},"projection":{p},"nodeId":"n" }}"#
    );
    let session = binding("n", "s");
    script.holds(&hold_body(&session, &p, std::slice::from_ref(&odd))).unwrap();
    script.set_wall(MIN);
    // The node is back on another socket, with the same binding.
    script.registers(9, session.clone());
    let offered = offer(&script.on(Event::SessionDown));
    let session = serde_json::to_string(&session).unwrap();
    assert_eq!((offered.to, offered.body), (9, format!(r#"{{"session":{session},"renewal":{odd}}}"#)));
}

/// ESC-30: then at each window's opening, and what was acknowledged is not offered again.
#[test]
fn a_renewal_is_offered_at_each_opening() {
    let mut script = holding(4, MIN);
    let mut seen = script.on(Event::SessionDown);
    for sequence in 0..4 {
        let offered = offer(&seen);
        assert_eq!(offered.sequence(), sequence);
        let acknowledged = Note::Acknowledged { node: id("n"), sequence: generation(sequence) };
        assert_eq!(script.acknowledges(&offered), [Seen::Note(acknowledged)]);
        let next = START + (sequence + 1) * 10 * MIN + MIN / 2;
        if sequence < 3 {
            assert_eq!(script.pass(Duration::from_millis(next - script.now.wall - 1)), []);
            seen = script.pass(Duration::from_millis(1));
        }
    }
    assert_eq!(script.pass(Duration::from_secs(14 * 60)), []);
}

/// ESC-37: what a node acknowledged is offered no more, neither in the next outage.
#[test]
fn an_acknowledged_renewal_is_not_offered_in_the_next_outage() {
    let mut script = holding(4, 11 * MIN);
    let offered = offer(&script.on(Event::SessionDown));
    assert_eq!((offered.sequence(), script.acknowledges(&offered).len()), (1, 1));
    script.on(Event::SessionUp);
    assert_eq!(script.on(Event::SessionDown), []);
    script.set_wall(MIN);
    assert_eq!(script.on(Event::Tick), [], "nor what comes before it, when the clock is set back");
    assert_eq!(script.escrow.held(), 1);
}

/// ESC-32: a node that is not carried is offered nothing, and its run is not lost.
#[test]
fn only_carried_nodes_are_offered_anything() {
    let mut script = holding(4, MIN);
    script.roster.0.clear();
    script.on(Event::Gone { node: id("n") });
    assert_eq!(script.on(Event::SessionDown), []);
    assert_eq!(script.pass(Duration::from_secs(1200)), []);
    assert_eq!(script.registers(3, binding("n", "s")).len(), 1);
    assert_eq!(script.escrow.held(), 1);
}

/// ESC-33: only an answer of the node itself that is bound to the offer acknowledges it.
#[test]
fn an_acknowledgement_has_to_be_bound_to_the_offer() {
    let bound = |offered: &Offered| acknowledgement(&offered.body);
    let changes: [fn(String) -> String; 8] = [
        |text| text.replace(r#""sessionId":"s""#, r#""sessionId":"t""#),
        |text| text.replace(r#""nodeId":"n""#, r#""nodeId":"m""#),
        |text| text.replace(r#""sequence":0"#, r#""sequence":1"#),
        |text| text.replace(r#""id":"p""#, r#""id":"q""#),
        |text| text.replace(r#""sequence":0"#, r#""sequence":0,"more":1"#),
        |text| text.replace(r#""session":"#, r#""more":1,"session":"#),
        |_| "{}".to_owned(),
        |_| "null".to_owned(),
    ];
    for change in changes {
        let mut script = holding(4, MIN);
        let offered = offer(&script.on(Event::SessionDown));
        let answer = change(bound(&offered));
        let led = script.answers(1, &offered, Outcome::Response(Body::from_json(answer.clone())));
        assert_eq!(notes(led), [failed(0, Failure::Unbound)], "{answer}");
    }
    let mut script = holding(4, MIN);
    let offered = offer(&script.on(Event::SessionDown));
    let answer = || Outcome::Response(Body::from_json(bound(&offered)));
    assert_eq!(script.answers(2, &offered, answer()), [], "another socket says nothing about it");
    assert_eq!(script.answers(1, &offered, answer()).len(), 1);
    assert_eq!(script.answers(1, &offered, answer()), [], "and nothing is acknowledged twice");
}

/// ESC-34: a delivery that is refused, unanswered or cut off is logged, and made anew 30 s later.
#[test]
fn a_failed_delivery_is_made_anew_after_30_seconds() {
    let mut script = holding(4, MIN);
    let mut offered = offer(&script.on(Event::SessionDown));
    for _ in 0..5 {
        assert_eq!(notes(script.refuses(&offered)), [failed(0, refusal())]);
        assert_eq!(script.pass(Duration::from_secs(30) - Duration::from_millis(1)), []);
        offered = offer(&script.pass(Duration::from_millis(1)));
        assert_eq!(offered.sequence(), 0);
    }
    assert_eq!(script.pass(Duration::from_secs(8) - Duration::from_millis(1)), []);
    assert_eq!(script.pass(Duration::from_millis(1)), [Seen::Note(failed(0, Failure::Timeout))]);
    assert_eq!(script.acknowledges(&offered), [], "an answer after the budget is none");
    let offered = offer(&script.pass(Duration::from_secs(30)));
    script.roster.0.clear();
    assert_eq!(script.on(Event::Gone { node: id("n") }), [Seen::Note(failed(0, Failure::Gone))]);
    assert_eq!(script.acknowledges(&offered), []);
}

/// ESC-34, ESC-47: a node that registers again with the same binding is offered nothing that is on its way, and
/// nothing again before its time.
#[test]
fn the_same_binding_again_brings_no_offer_forward() {
    let mut script = holding(4, MIN);
    let offered = offer(&script.on(Event::SessionDown));
    assert_eq!(script.registers(1, binding("n", "s")), [], "it is on its way");
    script.refuses(&offered);
    assert_eq!(script.pass(10 * S), []);
    assert_eq!(script.registers(1, binding("n", "s")), [], "it was refused ten seconds ago");
    assert_eq!(script.pass(20 * S - Duration::from_millis(1)), []);
    assert_eq!(script.escrow.next_deadline(script.now), Some(script.now.mono + Duration::from_millis(1)));
    assert_eq!(offers(&script.pass(Duration::from_millis(1))), [(1, 0)]);
}

/// ESC-34: the log repeats a refusal's name and nothing else that a node wrote.
#[test]
fn a_refusal_is_logged_by_name_alone() {
    for (text, name) in [
        ("renewal-stale: {\\\"signature\\\":\\\"x\\\"}", "renewal-stale"),
        ("two words", "unnamed"),
        ("", "unnamed"),
    ] {
        let mut script = holding(4, MIN);
        let offered = offer(&script.on(Event::SessionDown));
        let error = Outcome::Error(Body::from_json(format!(r#"{{"text":"{text}","data":{{}}}}"#)));
        let led = notes(script.answers(1, &offered, error));
        assert_eq!(led, [failed(0, Failure::Refused(name.to_owned()))]);
    }
}

/// Everything that a node is offered which refuses all of it, from the loss of the session at `ms` on:
/// seconds after the start, and sequence.
fn refused_offers(count: u64, ms: u64, for_seconds: u64) -> Vec<(u64, u64)> {
    let mut script = holding(count, ms);
    let mut offered = script.on(Event::SessionDown);
    let mut times = Vec::new();
    for _ in 0..=for_seconds {
        for sequence in offers(&offered).into_iter().map(|(_, sequence)| sequence) {
            times.push(((script.now.wall - START) / 1000, sequence));
            let last = offered.iter().rev().find_map(|seen| match seen {
                Seen::Offered(offered) => Some(offered.clone()),
                Seen::Told(..) | Seen::Note(_) => None,
            });
            script.refuses(&last.unwrap());
        }
        offered = script.pass(S);
    }
    times
}

/// ESC-35, ESC-37: repeats end when the window before ends, and the renewal is not offered again.
#[test]
fn repeats_end_when_the_window_before_ends() {
    let offered = refused_offers(2, 11 * MIN, 20 * 60);
    let expected: Vec<(u64, u64)> = (0..8).map(|repeat| (660 + 30 * repeat, 1)).collect();
    assert_eq!(offered, expected, "until 15 min, the end of window 0");
}

/// ESC-36, ESC-37: those of the renewal that opens the run end with its own window.
#[test]
fn repeats_of_the_first_renewal_end_with_its_own_window() {
    let offered = refused_offers(1, 10 * MIN, 20 * 60);
    let expected: Vec<(u64, u64)> = (0..10).map(|repeat| (600 + 30 * repeat, 0)).collect();
    assert_eq!(offered, expected, "until 15 min, its own end");
}

/// ESC-30, ESC-35, ESC-37: a node that refuses everything costs a bounded number of offers.
#[test]
fn a_node_that_refuses_everything_costs_a_bounded_number_of_offers() {
    let offered = refused_offers(3, 7 * MIN, 40 * 60);
    let of = |sequence| {
        offered.iter().filter(|offer| offer.1 == sequence).map(|offer| offer.0).collect::<Vec<_>>()
    };
    let every_30 = |from: u64, to: u64| (from..to).step_by(30).collect::<Vec<_>>();
    assert_eq!(of(0), every_30(420, 630), "until the next window is due");
    assert_eq!(of(1), every_30(630, 900));
    assert_eq!(of(2), every_30(1230, 1500));
}

/// ESC-29, ESC-37: what is due is offered once even when no repeat is granted, and said to have ended.
#[test]
fn a_renewal_whose_repeats_are_over_is_still_offered_first() {
    let mut script = holding(4, 17 * MIN);
    let offered = offer(&script.on(Event::SessionDown));
    assert_eq!(offered.sequence(), 1);
    script.refuses(&offered);
    let ended = Note::RepeatsEnded { node: id("n"), sequence: generation(1) };
    assert_eq!(script.pass(Duration::from_secs(180)), [Seen::Note(ended)]);
    script.on(Event::SessionUp);
    assert_eq!(script.on(Event::SessionDown), [], "nor in the next outage");
}

/// ESC-29, ESC-35, ESC-37: a session that came and went in between takes no renewal from a node that refused it
/// once: it is offered in the moment of the next loss, as one that was never offered, and once where its repeats are over.
#[test]
fn what_was_refused_before_the_session_came_back_is_offered_at_the_next_loss() {
    for (refused, lost_again) in
        [(11 * MIN, 11 * MIN + 1_000), (11 * MIN, 16 * MIN), (16 * MIN, 16 * MIN + 1_000)]
    {
        let mut script = holding(5, refused);
        let offered = offer(&script.on(Event::SessionDown));
        assert_eq!(offered.sequence(), 1);
        script.refuses(&offered);
        script.on(Event::SessionUp);
        assert_eq!(script.pass(Duration::from_millis(lost_again - refused)), []);
        let again = offers(&script.on(Event::SessionDown));
        let repeats_had_ended = refused > 15 * MIN;
        assert_eq!(again, if repeats_had_ended { vec![] } else { vec![(1, 1)] }, "{refused} {lost_again}");
    }
}

/// ESC-25, ESC-38: the return of the session clears the timer and ends every offer.
#[test]
fn the_return_of_the_session_ends_all_offers() {
    let mut script = holding(4, MIN);
    script.carry(2, "m");
    script.holds_grid("m", 0, 4);
    let led = script.on(Event::SessionDown);
    let [Seen::Offered(refused), Seen::Offered(open)] = &led[..] else { panic!("{led:?}") };
    script.refuses(refused);
    assert_eq!(script.on(Event::SessionUp), []);
    assert_eq!(script.escrow.next_deadline(script.now), None);
    assert_eq!(script.acknowledges(open), [], "an answer to an ended offer is none");
    assert_eq!(offers(&script.on(Event::SessionDown)).len(), 2, "the next loss waits for no repeat");
    assert_eq!(script.on(Event::SessionUp), []);
    assert_eq!(script.pass(Duration::from_secs(60)), []);
    assert_eq!(offers(&script.on(Event::SessionDown)).len(), 2, "both are due at the next loss, at once");
}

/// ESC-41: a run that arrives in an outage has its current window offered at once.
#[test]
fn a_run_that_arrives_in_an_outage_is_offered_at_once() {
    let mut script = Script::new();
    script.carry(1, "n");
    script.on(Event::SessionDown);
    script.set_wall(4 * MIN);
    let p = projection("p", 3);
    script.arrives("h", &hold_body(&binding("n", "s"), &p, &grid("n", &p, 0, 4)));
    assert_eq!(offers(&script.on(Event::Tick)), [(1, 0)]);
    // A top-up while its offer is open: the node is asked about the new one, in the place of the old.
    script.arrives("h", &hold_body(&binding("n", "s"), &p, &grid("n", &p, 0, 5)));
    let led = script.on(Event::Tick);
    assert_eq!(script.acknowledges(&offer(&led)).len(), 1);
    assert_eq!(script.pass(Duration::from_secs(60)), []);
}

/// ESC-42: so has one that was being validated when the session went.
#[test]
fn a_run_in_validation_when_the_session_goes_is_offered_at_once() {
    let mut script = Script::new();
    script.carry(1, "n");
    script.set_wall(4 * MIN);
    let p = projection("p", 3);
    script.arrives("h", &hold_body(&binding("n", "s"), &p, &grid("n", &p, 0, 4)));
    assert_eq!(script.on(Event::SessionDown), []);
    assert_eq!(script.escrow.next_deadline(script.now), Some(script.now.mono));
    assert_eq!(offers(&script.on(Event::Tick)), [(1, 0)]);
}

/// ESC-39, ESC-43: a repeat that waits for one node delays no other node's opening, nor its own.
#[test]
fn a_repeat_delays_no_window_that_opens() {
    let mut script = holding(4, 10 * MIN + 20_000);
    script.carry(2, "m");
    let p = projection("p", 3);
    // Its second window opens a second after the first repeat of the other was armed.
    let renewals = [
        renewal("m", &p, 0, (START + 5 * MIN, START + 15 * MIN)),
        renewal("m", &p, 1, (START + 10 * MIN - 9_000, START + 20 * MIN)),
    ];
    script.holds(&hold_body(&binding("m", "s"), &p, &renewals)).unwrap();
    let led = script.on(Event::SessionDown);
    assert_eq!(offers(&led), [(2, 0), (1, 0)]);
    for seen in &led {
        let Seen::Offered(offered) = seen else { panic!("{seen:?}") };
        script.refuses(offered);
    }
    assert_eq!(offers(&script.pass(Duration::from_secs(1))), [(2, 1)], "one second later");
    assert_eq!(
        offers(&script.pass(Duration::from_secs(9))),
        [(1, 1)],
        "its own opening, before its own repeat"
    );
}

/// ESC-30: a window that opens while the one before is still unanswered is offered in its moment.
#[test]
fn an_opening_does_not_wait_for_the_answer_about_the_window_before() {
    let mut script = holding(4, 10 * MIN + 28_000);
    let first = offer(&script.on(Event::SessionDown));
    let second = offer(&script.pass(Duration::from_secs(2)));
    assert_eq!((first.sequence(), second.sequence()), (0, 1));
    assert_eq!(script.acknowledges(&first), [], "the node is asked about one alone");
    assert_eq!(script.acknowledges(&second).len(), 1);
}

/// ESC-30, ESC-43: an answer that comes between an opening and the tick for it does not lose the opening.
#[test]
fn a_refusal_just_after_an_opening_does_not_lose_it() {
    let mut script = holding(4, 10 * MIN + 28_000);
    let first = offer(&script.on(Event::SessionDown));
    script.go_to(script.now.mono + Duration::from_secs(3));
    script.refuses(&first);
    assert_eq!(offers(&script.on(Event::Tick)), [(1, 1)]);
}

/// ESC-34: a node may ask to be asked again within the budget of a push; not once the window has ended.
#[test]
fn a_node_that_asks_to_be_asked_again_is_asked_within_the_window() {
    // One window, and one far away that keeps the run.
    let mut script = Script::new();
    script.carry(1, "n");
    let p = projection("p", 3);
    let renewals = [renewal("n", &p, 0, window(0)), renewal("n", &p, 5, window(5))];
    script.holds(&hold_body(&binding("n", "s"), &p, &renewals)).unwrap();
    script.set_wall(15 * MIN - 3000);
    let offered = offer(&script.on(Event::SessionDown));
    let later = |script: &mut Script, offered: &Offered| {
        let (correlation, instance) = (offered.id.clone(), offered.instance.clone());
        let outcome = Outcome::Response(Body::empty());
        let answer = Answer { correlation, instance, outcome, retry_after_ms: Some(2000) };
        assert_eq!(script.on(Event::NodeAnswered { socket: 1, answer }), []);
    };
    later(&mut script, &offered);
    let again = offer(&script.pass(Duration::from_secs(2)));
    assert_eq!((again.sequence(), &again.id), (0, &offered.id));
    assert_ne!(again.instance, offered.instance);
    later(&mut script, &again);
    assert_eq!(script.pass(10 * S), [], "its window has ended, and so has the wait for an answer");
    assert_eq!(script.acknowledges(&again), []);
    script.set_wall(14 * MIN);
    assert_eq!(offers(&script.pass(S)), [(1, 0)], "by a clock that was set back it is due again");
}
