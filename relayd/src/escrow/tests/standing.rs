//! What the escrow counts, and what it states of what it holds.

use coreflow_ipc::messages::standing::EscrowStanding;

use super::*;
use crate::{
    constants::OFFER_REPEAT,
    refusals::{CLUSTER_NOT_ENABLED, CREDENTIAL_STALE},
};

fn standing(script: &Script) -> EscrowStanding {
    script.escrow.standing(script.now.wall)
}

fn counts(offered: u64, acknowledged: u64) -> Counts {
    Counts { offered, acknowledged }
}

/// ESC-26: what is due is due by the relay's wall clock; a window counts until it has ended.
#[test]
fn windows_and_what_is_due_follow_the_clock() {
    let mut script = Script::new();
    let open = EscrowStanding { custody: "open".to_owned(), ..EscrowStanding::default() };
    assert_eq!(standing(&script), open);
    script.carry(1, "n");
    script.carry(2, "m");
    script.holds_grid("n", 0, 4);
    script.holds_grid("m", 2, 20);
    let last_ends_at = Some(window(21).1);
    for (ms, windows, due) in [
        (0, 24, 0),
        (MIN / 2 - 1, 24, 0),
        (MIN / 2, 24, 1),
        (15 * MIN - 1, 24, 1),
        (15 * MIN, 23, 1),
        (21 * MIN, 23, 2),
        (45 * MIN, 18, 1),
        (225 * MIN - 1, 1, 1),
        (225 * MIN, 0, 0),
    ] {
        script.set_wall(ms);
        let held = EscrowStanding { runs: 2, windows, due, last_ends_at, ..open.clone() };
        assert_eq!(standing(&script), held, "{ms}");
    }
}

/// Each offer counts, made anew or not, and each acknowledgement; a refusal counts as neither.
#[test]
fn offers_and_acknowledgements_are_counted_alone() {
    let mut script = Script::new();
    script.carry(1, "n");
    script.holds_grid("n", 0, 4);
    script.set_wall(MIN);
    script.on(Event::Tick);
    assert_eq!((script.escrow.counts(), standing(&script).offers), (counts(0, 0), 0));
    let offered = offer(&script.on(Event::SessionDown));
    assert_eq!((script.escrow.counts(), standing(&script).offers), (counts(1, 0), 1));
    script.refuses(&offered);
    assert_eq!((script.escrow.counts(), standing(&script).offers), (counts(1, 0), 0));
    let again = script.pass(OFFER_REPEAT);
    assert_eq!((script.escrow.counts(), standing(&script).offers), (counts(2, 0), 1));
    script.acknowledges(&offer(&again));
    assert_eq!((script.escrow.counts(), standing(&script).offers), (counts(2, 1), 0));
    script.on(Event::SessionUp);
    assert_eq!(script.escrow.counts(), counts(2, 1));
}

/// ESC-50: the refusal that ended custody is stated by its name.
#[test]
fn what_ended_custody_is_stated() {
    let mut script = Script::new();
    script.carry(1, "n");
    script.holds_grid("n", 0, 4);
    let named = |custody: &str| EscrowStanding { custody: custody.to_owned(), ..EscrowStanding::default() };
    script.on(Event::RegistrationRefused { text: format!("{CLUSTER_NOT_ENABLED}: c") });
    assert_eq!(standing(&script), named(CLUSTER_NOT_ENABLED));
    script.on(Event::RegistrationAccepted);
    assert_eq!(standing(&script), named("open"));
    script.on(Event::Parked);
    assert_eq!(standing(&script), named(CREDENTIAL_STALE));
    script.on(Event::Stop);
    assert_eq!(standing(&script), named("stop"));
    assert_eq!(Escrow::resume(true).standing(0), named(CREDENTIAL_STALE));
}
