//! A worker's life, event by event.

use super::*;

const MS: Duration = Duration::from_millis(1);

fn started() -> Supervision {
    let mut worker = Supervision::default();
    assert_eq!(worker.handle(Event::Wanted, Duration::ZERO), Some(Action::Spawn));
    worker
}

/// ARC-18: the delay doubles from 0.5 s to 30 s.
#[test]
fn a_worker_that_dies_is_started_again_after_a_doubling_delay() {
    let mut worker = started();
    let mut now = Duration::ZERO;
    for delay in [500_u32, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
        assert_eq!(worker.handle(Event::Died, now), None);
        assert_eq!(worker.handle(Event::Tick, now + (delay - 1) * MS), None);
        now += delay * MS;
        assert_eq!(worker.handle(Event::Tick, now), Some(Action::Spawn));
    }
    assert_eq!(worker.restarts(), 8);
}

/// ARC-18: the delays start over after a minute alive.
#[test]
fn a_minute_alive_starts_the_delays_over() {
    for (alive, delay) in [(59_999, 1000), (60_000, 500)] {
        let mut worker = started();
        worker.handle(Event::Died, Duration::ZERO);
        worker.handle(Event::Tick, 500 * MS);
        worker.handle(Event::Greeted, 501 * MS);
        let died = (500 + alive) * MS;
        worker.handle(Event::Died, died);
        assert_eq!(worker.restarts_in(died), Some(delay * MS), "alive for {alive} ms");
    }
}

#[test]
fn a_worker_without_a_hello_is_killed() {
    let mut worker = started();
    assert_eq!(worker.handle(Event::Tick, HELLO_BOUND - MS), None);
    assert_eq!(worker.handle(Event::Tick, HELLO_BOUND), Some(Action::Kill(Why::NoHello)));
    assert_eq!(worker.handle(Event::Tick, HELLO_BOUND + MS), None, "killed once");
}

#[test]
fn a_worker_that_stops_answering_is_killed() {
    let mut worker = started();
    worker.handle(Event::Greeted, Duration::ZERO);
    assert_eq!(worker.handle(Event::Tick, PING_INTERVAL), Some(Action::Ping(1)));
    worker.handle(Event::Ponged(1), PING_INTERVAL);
    assert_eq!(worker.handle(Event::Tick, 2 * PING_INTERVAL), Some(Action::Ping(2)));
    worker.handle(Event::Ponged(1), 2 * PING_INTERVAL);
    assert_eq!(worker.handle(Event::Tick, 3 * PING_INTERVAL), Some(Action::Ping(3)));
    let silent = PING_INTERVAL + PONG_BOUND;
    assert_eq!(worker.handle(Event::Tick, silent), Some(Action::Kill(Why::NoPong)));
}

/// A machine that was paused asks before it judges.
#[test]
fn a_pause_of_the_whole_machine_kills_nobody() {
    let mut worker = started();
    worker.handle(Event::Greeted, Duration::ZERO);
    assert_eq!(worker.handle(Event::Tick, PING_INTERVAL), Some(Action::Ping(1)));
    let resumed = 3600 * 1000 * MS;
    assert_eq!(worker.handle(Event::Tick, resumed), Some(Action::Ping(2)));
    assert_eq!(worker.handle(Event::Ponged(2), resumed + MS), None);
    let mut silent = resumed;
    let killed = loop {
        silent += PING_INTERVAL;
        match worker.handle(Event::Tick, silent) {
            Some(Action::Ping(_)) => {}
            other => break other,
        }
    };
    assert_eq!((killed, silent), (Some(Action::Kill(Why::NoPong)), resumed + 4 * PING_INTERVAL));
}

#[test]
fn a_worker_that_breaks_a_rule_is_killed_once_and_started_again() {
    let mut worker = started();
    worker.handle(Event::Greeted, Duration::ZERO);
    assert_eq!(worker.handle(Event::Failed, MS), Some(Action::Kill(Why::Failed)));
    assert_eq!(worker.handle(Event::Failed, MS), None);
    worker.handle(Event::Died, 2 * MS);
    assert_eq!(worker.handle(Event::Tick, 502 * MS), Some(Action::Spawn));
}

#[test]
fn an_unwanted_worker_stays_down() {
    let mut worker = started();
    worker.handle(Event::Unwanted, MS);
    worker.handle(Event::Died, MS);
    assert_eq!(worker.handle(Event::Tick, 60_000 * MS), None);
    assert_eq!(worker.next_deadline(), None);
}

/// A restart by command ends the worker in order and starts it again at once; it is no crash, and lengthens
/// no delay.
#[test]
fn a_restart_by_command_is_no_crash() {
    let mut worker = started();
    worker.handle(Event::Greeted, MS);
    assert_eq!(worker.handle(Event::Restart(5000 * MS), MS), Some(Action::Stop));
    assert_eq!((worker.state(), worker.is_restarting()), (WorkerState::Ending, true));
    assert_eq!((worker.is_dying(), worker.next_deadline()), (false, Some(5001 * MS)));
    assert_eq!(worker.handle(Event::Restart(5000 * MS), 2 * MS), None, "once");
    assert_eq!(worker.handle(Event::Tick, 5000 * MS), None);
    assert_eq!(worker.handle(Event::Died, 5000 * MS), Some(Action::Spawn));
    assert_eq!((worker.restarts(), worker.state()), (0, WorkerState::Starting));
    worker.handle(Event::Died, 5001 * MS);
    assert_eq!(worker.restarts_in(5001 * MS), Some(RESTART_FIRST), "the delays begin with the first crash");
}

/// ARC-18: a minute alive starts the delays over also where a command ended it, in order or when a kill did already;
/// a shorter life leaves the delay as it was.
#[test]
fn a_minute_alive_until_a_restart_by_command_starts_the_delays_over() {
    for (alive, killed, delay) in
        [(59_999, false, 1000), (60_000, false, 500), (59_999, true, 1000), (60_000, true, 500)]
    {
        let mut worker = started();
        worker.handle(Event::Died, Duration::ZERO);
        worker.handle(Event::Tick, 500 * MS);
        worker.handle(Event::Greeted, 501 * MS);
        let ended = (500 + alive) * MS;
        if killed {
            worker.handle(Event::Failed, ended);
        }
        worker.handle(Event::Restart(5000 * MS), ended);
        assert_eq!(worker.handle(Event::Died, ended), Some(Action::Spawn));
        worker.handle(Event::Died, ended + MS);
        assert_eq!(
            worker.restarts_in(ended + MS),
            Some(delay * MS),
            "alive for {alive} ms, killed: {killed}"
        );
    }
}

/// One that does not end in time, or breaks a rule meanwhile, is killed once, and started again.
#[test]
fn a_worker_that_does_not_end_for_a_restart_is_killed() {
    for (event, why) in [(Event::Tick, Why::NoEnd), (Event::Failed, Why::Failed)] {
        let mut worker = started();
        worker.handle(Event::Greeted, MS);
        worker.handle(Event::Restart(5 * MS), MS);
        assert_eq!(worker.handle(event, 6 * MS), Some(Action::Kill(why)));
        assert_eq!(
            (worker.handle(event, 7 * MS), worker.is_dying(), worker.next_deadline()),
            (None, true, None)
        );
        assert_eq!(worker.handle(Event::Died, 8 * MS), Some(Action::Spawn));
    }
}

/// A worker that waits for its time is started at once, one that was killed when it has died, and one that is
/// not wanted not at all; a stop of the relay ends a restart.
#[test]
fn a_restart_takes_a_worker_as_it_finds_it() {
    let restart = Event::Restart(5 * MS);
    let mut worker = started();
    worker.handle(Event::Died, MS);
    assert_eq!(worker.handle(restart, 2 * MS), Some(Action::Spawn));
    worker.handle(Event::Failed, 3 * MS);
    assert_eq!(worker.handle(restart, 4 * MS), None);
    assert_eq!(worker.handle(Event::Died, 5 * MS), Some(Action::Spawn));
    worker.handle(restart, 6 * MS);
    worker.handle(Event::Unwanted, 7 * MS);
    assert_eq!((worker.handle(Event::Died, 8 * MS), worker.state()), (None, WorkerState::Off));
    assert_eq!(worker.handle(restart, 9 * MS), None);
}

/// START-25: the last process of a worker is asked on, and left alone for as long as it answers.
#[test]
fn a_last_process_that_answers_is_left_alone() {
    let mut worker = started();
    worker.handle(Event::Greeted, Duration::ZERO);
    assert_eq!(worker.handle(Event::Last, MS), None);
    assert_eq!(worker.state(), WorkerState::Ending);
    for number in 1..=1000 {
        let due = worker.next_deadline().unwrap();
        assert_eq!(worker.handle(Event::Tick, due), Some(Action::Ping(number)));
        worker.handle(Event::Ponged(number), due);
    }
    let ended = worker.next_deadline().unwrap();
    worker.handle(Event::Died, ended);
    assert_eq!((worker.state(), worker.next_deadline(), worker.restarts()), (WorkerState::Off, None, 0));
    assert_eq!(worker.handle(Event::Wanted, ended), None, "it was the last");
}

/// START-12, START-23: a last process that says nothing any more, no hello, or something that it may not is killed once,
/// and no other one is started.
#[test]
fn a_last_process_that_hangs_or_breaks_a_rule_is_killed() {
    let ends = |mut worker: Supervision, event, at, why| {
        assert_eq!(worker.handle(event, at), Some(Action::Kill(why)));
        assert_eq!((worker.handle(Event::Tick, at + PONG_BOUND), worker.next_deadline()), (None, None));
        assert_eq!(worker.handle(Event::Died, at + PONG_BOUND), None);
        assert_eq!((worker.state(), worker.next_deadline()), (WorkerState::Off, None));
    };
    let greeted = || {
        let mut worker = started();
        worker.handle(Event::Greeted, Duration::ZERO);
        worker.handle(Event::Last, MS);
        worker
    };
    let mut silent = greeted();
    while silent.next_deadline().unwrap() < PONG_BOUND {
        let due = silent.next_deadline().unwrap();
        assert!(matches!(silent.handle(Event::Tick, due), Some(Action::Ping(_))));
    }
    ends(silent, Event::Tick, PONG_BOUND, Why::NoPong);
    ends(greeted(), Event::Failed, 2 * MS, Why::Failed);
    let mut mute = started();
    mute.handle(Event::Last, MS);
    ends(mute, Event::Tick, HELLO_BOUND, Why::NoHello);
}

/// START-25: the end of the relay takes over no bound of a restart that is under way; one that waits for its time, or was
/// killed already, is not started again.
#[test]
fn the_end_takes_a_worker_as_it_finds_it() {
    let mut restarting = started();
    restarting.handle(Event::Greeted, Duration::ZERO);
    restarting.handle(Event::Restart(10 * MS), MS);
    restarting.handle(Event::Last, 2 * MS);
    assert!(matches!(restarting.handle(Event::Tick, 11 * MS), Some(Action::Ping(_))));
    assert_eq!(restarting.handle(Event::Restart(10 * MS), 12 * MS), None);
    assert_eq!(restarting.handle(Event::Died, 13 * MS), None);

    let mut waiting = started();
    waiting.handle(Event::Died, MS);
    waiting.handle(Event::Last, 2 * MS);
    assert_eq!((waiting.state(), waiting.handle(Event::Tick, 3600 * 1000 * MS)), (WorkerState::Off, None));

    let mut killed = started();
    killed.handle(Event::Failed, MS);
    killed.handle(Event::Restart(10 * MS), 2 * MS);
    killed.handle(Event::Last, 3 * MS);
    assert_eq!((killed.handle(Event::Died, 4 * MS), killed.state()), (None, WorkerState::Off));
}
