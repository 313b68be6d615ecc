//! What the ingress states of itself.

use coreflow_ipc::messages::standing::IngressStanding;

use super::*;

/// ING-05, ING-24, ING-26: whether an ingress is bound, and of the table its revision and how many routes it has.
#[test]
fn binding_and_revision_are_stated() {
    let stated = |bound, revision: Option<u64>| IngressStanding {
        bound,
        revision,
        routes: u32::from(revision.is_some()),
    };
    let mut script = Script::new();
    assert_eq!(script.ingress.standing(), stated(false, None));
    script.push(7);
    assert_eq!(script.ingress.standing(), stated(false, Some(7)));
    script.bind(3);
    assert_eq!(script.ingress.standing(), stated(true, Some(7)));
    script.push(6);
    assert_eq!(script.ingress.standing(), stated(true, Some(7)));
    script.on(Event::SessionDown);
    assert_eq!(script.ingress.standing(), stated(true, Some(7)));
    script.on(Event::Closed { socket: 4 });
    assert_eq!(script.ingress.standing(), stated(true, Some(7)));
    script.on(Event::Closed { socket: 3 });
    assert_eq!(script.ingress.standing(), stated(false, Some(7)));
}
