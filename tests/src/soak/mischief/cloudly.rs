//! What Cloudly does to the relay.

use std::time::Duration;

use tokio::time::sleep;

use crate::cloudly::{Front, Gate, Step};
use crate::envelope::{Ids, Retry, answer};
use crate::soak::body::REQUESTS;
use crate::soak::fault::CloudlyFault;
use crate::soak::ledger::Party;
use crate::soak::stage::Stage;

const EXCHANGE: &str = "getIdentityByToken";
const ANNOUNCE: &str = "registerCloudlyClientSession";
const REGISTER_NODE: &str = "registerPalletRuntimeSession";

pub(super) async fn perform(stage: &Stage, fault: &CloudlyFault) -> bool {
    let cloudly = &stage.cloudly;
    match fault {
        CloudlyFault::Drop => cloudly.drop_connections(),
        CloudlyFault::Close(code) => cloudly.close_connections(*code).await,
        CloudlyFault::GoAway(time) => {
            cloudly.go_away().await;
            sleep(*time).await;
            if let Err(late) = cloudly.come_back().await {
                stage.fail(format!("the loopback Cloudly cannot come back: {late}"));
            }
        }
        CloudlyFault::Silent(time) => behind(stage, Front::Silent, *time).await,
        CloudlyFault::BadGateway(time) => behind(stage, Front::HtmlBadGateway, *time).await,
        CloudlyFault::StopReading(time) => {
            let Some(carrier) = cloudly.carrier() else { return false };
            carrier.stall(*time).await;
            stage.standing_still(Party::Cloudly, sleep(*time)).await;
        }
        CloudlyFault::WithholdAnswers(time) => {
            let gate = Gate::default();
            let methods = || REQUESTS.into_iter().chain([REGISTER_NODE]);
            for method in methods() {
                cloudly.always(method, Step::When(gate.clone(), Box::new(Step::Ordinary)));
            }
            sleep(*time).await;
            methods().for_each(|method| cloudly.ordinary(method));
            gate.open();
        }
        CloudlyFault::BreakOff => cloudly.once(REQUESTS[0], Step::CutMidAnswer),
        CloudlyFault::RefuseExchange(time) => {
            cloudly.always(EXCHANGE, Step::refuse("identity-token-refused"));
            end_with_the_identity(stage);
            sleep(*time).await;
            cloudly.ordinary(EXCHANGE);
        }
        CloudlyFault::OutOfContract(method, time) => {
            cloudly.once(method, Step::Answer(r#"{"unexpected":[1]}"#.to_owned()));
            if *method == EXCHANGE {
                end_with_the_identity(stage)
            } else {
                cloudly.drop_connections()
            }
            sleep(*time).await;
            cloudly.ordinary(method);
            cloudly.drop_connections();
        }
        CloudlyFault::AskAgain => {
            stage.books().ask_again();
            let retry = Retry { wait_for_ms: 200, reason: "soak".to_owned() };
            cloudly.once(REQUESTS[1], Step::ComeAgain(retry));
        }
        CloudlyFault::Garbage => {
            let Some(carrier) = cloudly.carrier() else { return false };
            for text in super::nodes::GARBAGE {
                carrier.send_text(text.to_owned()).await;
            }
            carrier.send_binary(vec![0xff, 0, 0xfe]).await;
            carrier.send_text(answer(ANNOUNCE, "{}", &Ids::fresh())).await;
            carrier.send_text(answer(REQUESTS[0], r#"{"forged":true}"#, &Ids::fresh())).await;
        }
    }
    true
}

/// Something else stands at Cloudly's address for a time; the connections of before are gone.
async fn behind(stage: &Stage, front: Front, time: Duration) {
    stage.cloudly.change(|settings| settings.front = front);
    stage.cloudly.drop_connections();
    sleep(time).await;
    stage.cloudly.change(|settings| settings.front = Front::Serving);
    // What had connected to the silent front stays silent; it is no part of what follows.
    stage.cloudly.drop_connections();
}

/// The connections end, and the next announcement is refused: the relay needs a fresh identity.
fn end_with_the_identity(stage: &Stage) {
    stage.cloudly.once(ANNOUNCE, Step::refuse("identity-unverified: expired"));
    stage.cloudly.drop_connections();
}
