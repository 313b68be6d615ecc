//! What nodes do to the relay.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::envelope::{Ids, answer};
use crate::soak::body::{PUSHES, REQUESTS};
use crate::soak::fault::{NodeFault, REGISTER_TWICE};
use crate::soak::ledger::Party;
use crate::soak::stage::{Stage, look_until};

/// What is no envelope, or none that anybody waits for.
pub(super) const GARBAGE: [&str; 6] = [
    "",
    "not json",
    "[1,2,3]",
    r#"{"method":"applyRuntimeAssignment","request":{}}"#,
    r#"{"method":"x","request":{},"correlation":{"id":"uni_1","phase":"neither"}}"#,
    r#"{"method":"x","request":{"deep":[[[[[[[[[[]]]]]]]]]]},"correlation":{"id":7,"phase":"request"}}"#,
];

pub(super) async fn perform(stage: &Stage, number: usize, fault: &NodeFault) -> bool {
    let node = stage.fleet.node(number);
    if *fault == NodeFault::RegisterTwice {
        register_twice(stage, number).await;
        return true;
    }
    let Some(carrier) = node.carrier() else { return false };
    match fault {
        NodeFault::Cut => carrier.cut(),
        NodeFault::Close => carrier.close(Some(1000)).await,
        NodeFault::HalfOpen(time) => {
            carrier.stall(*time).await;
            stage.standing_still(Party::Node(number), sleep(*time)).await;
        }
        NodeFault::SlowReader(time) => {
            let slowly = async {
                let begin = Instant::now();
                while begin.elapsed() < *time {
                    carrier.stall(Duration::from_millis(300)).await;
                    sleep(Duration::from_millis(320)).await;
                }
            };
            stage.standing_still(Party::Node(number), slowly).await;
        }
        NodeFault::Garbage => {
            for text in GARBAGE {
                carrier.send_text(text.to_owned()).await;
            }
            carrier.send_binary(vec![0xff; 300]).await;
            for method in [PUSHES[0], REQUESTS[0]] {
                carrier.send_text(answer(method, r#"{"forged":true}"#, &Ids::fresh())).await;
            }
        }
        NodeFault::RegisterTwice => {}
    }
    true
}

/// As when a process manager starts the new process before it ends the old one.
async fn register_twice(stage: &Stage, number: usize) {
    let second = stage.fleet.second(number);
    look_until(REGISTER_TWICE, || second.binding()).await;
    stage.fleet.replace(number, second);
    // The old process may have been on its way back at its end and have taken the place of the new one,
    // which then stands there with a binding that is no longer in force. A process manager sees that its
    // service is not healthy.
    sleep(Duration::from_secs(1)).await;
    let (issued, own) =
        (stage.cloudly.binding_of(stage.fleet.id(number)), stage.fleet.node(number).binding());
    if issued.is_some() && issued != own {
        stage.fleet.restart(number, "superseded by its own former process");
    }
}
