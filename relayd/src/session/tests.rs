use super::*;

const MS: Duration = Duration::from_millis(1);
const HOUR: u64 = 3_600_000;

/// A session under a script, with both clocks in the script's hand.
struct Script {
    session: Session,
    now: Now,
}

impl Script {
    fn new() -> Self {
        Self { session: Session::default(), now: Now { wall: 1_000_000, mono: Duration::ZERO } }
    }

    fn on(&mut self, event: Event) -> Vec<Action> {
        self.session.handle(&event, self.now, u32::MAX)
    }

    fn pass(&mut self, time: Duration) -> Vec<Action> {
        self.now.mono += time;
        self.now.wall += u64::try_from(time.as_millis()).unwrap();
        self.on(Event::Tick)
    }

    fn announced(&mut self, connection: Connection, announced: Announced) -> Vec<Action> {
        self.on(Event::Announced { connection, announced })
    }

    fn grant(&mut self, life_ms: u64) -> Vec<Action> {
        self.on(Event::IdentityGranted { expires_at: self.now.wall + life_ms })
    }

    /// A session that stands on its first connection with an hour of identity.
    fn standing() -> Self {
        let mut script = Self::new();
        script.on(Event::Started);
        script.grant(HOUR);
        script.on(Event::Connected { connection: 1 });
        script.announced(1, Announced::Accepted);
        script
    }
}

/// SES-01, SES-03, SES-04: identity first, then the connection, then the registration on it; only
/// then is the session dispatchable.
#[test]
fn a_session_is_dispatchable_once_it_is_registered() {
    let mut script = Script::new();
    assert_eq!(script.on(Event::Started), [Action::AskIdentity]);
    assert_eq!(script.grant(HOUR), [Action::Dial { connection: 1 }]);
    assert_eq!(script.on(Event::Connected { connection: 1 }), [Action::Announce { connection: 1 }]);
    assert!(!script.session.dispatchable());
    assert_eq!(script.announced(1, Announced::Accepted), [Action::Registered { count: 1, renewed: false }]);
    assert!(script.session.dispatchable());
}

/// OUT-02, SES-18: what is stated is whether requests can be sent, how many connections there were, and until when
/// the identity holds that is used.
#[test]
fn the_session_states_how_it_stands() {
    let mut script = Script::new();
    let ends = script.now.wall + HOUR;
    let stated = |dispatchable, connections, identity_ends_at| SessionStanding {
        dispatchable,
        connections,
        identity_ends_at,
    };
    script.on(Event::Started);
    assert_eq!(script.session.standing(), stated(false, 0, None));
    script.grant(HOUR);
    script.on(Event::Connected { connection: 1 });
    assert_eq!(script.session.standing(), stated(false, 0, Some(ends)));
    script.announced(1, Announced::Accepted);
    assert_eq!(script.session.standing(), stated(true, 1, Some(ends)));
    script.on(Event::Closed { connection: 1 });
    assert_eq!(script.session.standing(), stated(false, 1, Some(ends)));
    script.pass(500 * MS);
    script.on(Event::Connected { connection: 2 });
    script.announced(2, Announced::Failed);
    assert_eq!(script.session.standing(), stated(false, 1, None), "that identity is used no more");
}

/// SES-08, SES-13, OUT-03: the identity is renewed before it ends, on the unbroken socket.
#[test]
fn an_identity_is_renewed_five_minutes_ahead_on_the_same_socket() {
    let mut script = Script::standing();
    assert_eq!(script.pass(55 * 60_000 * MS - MS), []);
    assert_eq!(script.pass(MS), [Action::AskIdentity]);
    assert_eq!(script.grant(HOUR), [Action::Announce { connection: 1 }]);
    assert_eq!(script.announced(1, Announced::Accepted), [Action::Registered { count: 1, renewed: true }]);
    assert_eq!(script.session.next_deadline(script.now), Some(script.now.mono + 55 * 60_000 * MS));
}

/// SES-08: a short life is renewed a quarter ahead, and a jump of the wall clock is noticed.
#[test]
fn a_clock_that_jumps_an_hour_makes_the_renewal_due() {
    let mut script = Script::standing();
    script.now.wall += HOUR;
    assert_eq!(script.on(Event::Tick), [Action::AskIdentity]);
    let mut script = Script::standing();
    script.now.wall -= 900_000;
    assert_eq!(script.pass(54 * 60_000 * MS), []);
    assert_eq!(script.pass(60_000 * MS), [Action::AskIdentity], "the monotonic clock decides");
}

/// SES-08, SES-09: an identity that a jump of the wall clock has ended is not dialled with again; one that a jump
/// back lets live longer is, and is renewed by the monotonic clock.
#[test]
fn a_clock_that_jumps_an_hour_decides_which_identity_is_dialled_with() {
    let mut script = Script::standing();
    script.on(Event::Closed { connection: 1 });
    script.now.wall += HOUR;
    assert_eq!(script.pass(500 * MS), [Action::AskIdentity]);
    assert_eq!(script.grant(HOUR), [Action::Dial { connection: 2 }]);

    script.on(Event::Connected { connection: 2 });
    script.announced(2, Announced::Accepted);
    script.now.wall -= HOUR;
    script.on(Event::Closed { connection: 2 });
    assert_eq!(script.pass(1000 * MS), [Action::Dial { connection: 3 }]);
    script.on(Event::Connected { connection: 3 });
    script.announced(3, Announced::Accepted);
    assert_eq!(script.pass(55 * 60_000 * MS - 1001 * MS), []);
    assert_eq!(script.pass(MS), [Action::AskIdentity]);
}

/// SES-09, PROT-28, SES-20: no wait of the session follows the wall clock, whichever way that jumps.
#[test]
fn a_clock_that_jumps_an_hour_changes_no_wait() {
    let jumps: [fn(&mut u64); 2] = [|wall| *wall += HOUR, |wall| *wall -= HOUR];
    let at = |wall| {
        let mut script = Script::new();
        script.now.wall = wall;
        script.on(Event::Started);
        script
    };
    for jump in jumps {
        let mut denied = at(2 * HOUR);
        denied.on(Event::IdentityDenied);
        jump(&mut denied.now.wall);
        assert_eq!(denied.pass(499 * MS), []);
        assert_eq!(denied.pass(MS), [Action::AskIdentity]);

        let mut refused = at(2 * HOUR);
        refused.grant(HOUR);
        refused.on(Event::Connected { connection: 1 });
        refused.announced(1, Announced::NotServed);
        jump(&mut refused.now.wall);
        assert_eq!(refused.pass(REFUSED_OFFER_RETRY - MS), []);
        assert_eq!(refused.pass(MS), [Action::Announce { connection: 1 }]);
    }
}

/// SES-20, SES-08: a denied renewal keeps the session and is asked again with the backoff.
#[test]
fn a_denied_renewal_keeps_the_session() {
    let mut script = Script::standing();
    script.pass(55 * 60_000 * MS);
    for wait in [500, 1000, 2000] {
        assert_eq!(script.on(Event::IdentityDenied), []);
        assert!(script.session.dispatchable());
        assert_eq!(script.pass((wait - 1) * MS), []);
        assert_eq!(script.pass(MS), [Action::AskIdentity]);
    }
}

/// SES-09, SES-20: a session that is lost while its identity is renewed waits for that very answer, and
/// asks for no second identity beside it.
#[test]
fn a_session_lost_during_a_renewal_asks_once() {
    let mut script = Script::standing();
    assert_eq!(script.pass(55 * 60_000 * MS), [Action::AskIdentity]);
    assert_eq!(script.on(Event::Closed { connection: 1 }), [Action::Lost]);
    assert_eq!(script.pass(500 * MS), [], "the first ask is still open");
    assert_eq!(script.grant(HOUR), [Action::Dial { connection: 2 }]);
    let mut script = Script::standing();
    script.pass(55 * 60_000 * MS);
    script.on(Event::Closed { connection: 1 });
    script.pass(500 * MS);
    assert_eq!(script.on(Event::IdentityDenied), []);
    assert_eq!(script.pass(1000 * MS), [Action::AskIdentity]);
}

/// SES-09: the wait before the next dial doubles up to a minute and starts over only after a session
/// that proved itself.
#[test]
fn reconnects_back_off_until_a_session_has_proved_itself() {
    let mut script = Script::standing();
    let mut connection = 1;
    for wait in [500_u32, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000] {
        assert_eq!(script.on(Event::Closed { connection }), [Action::Lost]);
        assert!(!script.session.dispatchable());
        assert_eq!(script.pass((wait - 1) * MS), []);
        connection += 1;
        assert_eq!(script.pass(MS), [Action::Dial { connection }]);
        script.on(Event::Connected { connection });
        script.announced(connection, Announced::Accepted);
    }
    script.pass(SESSION_PROVEN);
    script.on(Event::Closed { connection });
    assert_eq!(script.pass(500 * MS), [Action::Dial { connection: connection + 1 }]);
    assert_eq!(script.session.count(), connection);
}

/// SES-01, SES-09: a Cloudly that drops ten connections, each as soon as the session is registered on it, is
/// dialled ten times in four minutes (two, where each jitter is the least), one connection at a time, with the one
/// identity that is still good.
#[test]
fn ten_flaps_cost_ten_dials_in_minutes_and_no_identity() {
    let mut script = Script::standing();
    let begun = script.now.mono;
    for connection in 1..=10 {
        assert_eq!(script.on(Event::Closed { connection }), [Action::Lost]);
        let due = script.session.next_deadline(script.now).unwrap();
        assert_eq!(script.pass(due - script.now.mono), [Action::Dial { connection: connection + 1 }]);
        script.on(Event::Connected { connection: connection + 1 });
        script.announced(connection + 1, Announced::Accepted);
    }
    assert_eq!(script.now.mono - begun, 243_500 * MS);
}

/// SES-13, OUT-02: a reconnect raises the count.
#[test]
fn a_reconnect_raises_the_count() {
    let mut script = Script::standing();
    script.on(Event::Closed { connection: 1 });
    script.pass(500 * MS);
    script.on(Event::Connected { connection: 2 });
    assert_eq!(script.announced(2, Announced::Accepted), [Action::Registered { count: 2, renewed: false }]);
}

/// PROT-17, PROT-28, PROT-30: a refused offer keeps the socket open and is made again after five
/// minutes.
#[test]
fn a_refused_offer_is_made_again_on_the_same_socket() {
    let mut script = Script::new();
    script.on(Event::Started);
    script.grant(HOUR);
    script.on(Event::Connected { connection: 1 });
    assert_eq!(script.announced(1, Announced::NotServed), []);
    assert_eq!(script.session.connection(), Some(1));
    assert_eq!(script.pass(REFUSED_OFFER_RETRY - MS), []);
    assert_eq!(script.pass(MS), [Action::Announce { connection: 1 }]);
    assert_eq!(script.announced(1, Announced::Accepted), [Action::Registered { count: 1, renewed: false }]);
}

/// A refused registration of the session needs a fresh identity.
#[test]
fn a_failed_announcement_exchanges_again() {
    let mut script = Script::new();
    script.on(Event::Started);
    script.grant(HOUR);
    script.on(Event::Connected { connection: 1 });
    assert_eq!(script.announced(1, Announced::Failed), [Action::Hangup { connection: 1 }]);
    assert_eq!(script.pass(500 * MS), [Action::AskIdentity]);
}

/// SES-14, SES-15, REG-58: a parked relay leaves its socket open, renews nothing and dials no more.
#[test]
fn a_parked_session_stays_open_and_schedules_nothing() {
    let mut script = Script::standing();
    assert_eq!(script.on(Event::Park), []);
    assert!(script.session.dispatchable());
    assert_eq!(script.session.next_deadline(script.now), None);
    assert_eq!(script.pass(24 * 60 * 60_000 * MS), []);
    assert_eq!(script.on(Event::Closed { connection: 1 }), [Action::Lost]);
    assert!(!script.session.dispatchable());
    assert_eq!(script.pass(24 * 60 * 60_000 * MS), []);
}

/// START-22: a stop closes the session.
#[test]
fn a_stop_hangs_up() {
    let mut script = Script::standing();
    assert_eq!(script.on(Event::Stop), [Action::Hangup { connection: 1 }, Action::Lost]);
    assert_eq!(script.on(Event::Closed { connection: 1 }), []);
    assert_eq!(script.session.next_deadline(script.now), None);
}

/// An event of an earlier connection changes nothing.
#[test]
fn a_stale_event_is_ignored() {
    let mut script = Script::standing();
    script.on(Event::Closed { connection: 1 });
    script.pass(500 * MS);
    assert_eq!(script.on(Event::Closed { connection: 1 }), []);
    assert_eq!(script.on(Event::Connected { connection: 1 }), []);
    assert_eq!(script.announced(1, Announced::Accepted), []);
    assert_eq!(script.session.connection(), Some(2));
}
