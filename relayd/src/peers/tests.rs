//! The link to vpnd, against a vpnd that the test plays itself.

use std::os::unix::net::UnixStream;

use coreflow_ipc::messages::vpn_network::{Grants, NotApplied, Prefix, SNAPSHOT_SCHEMA};

use super::*;

/// Vpnd's end of a link.
struct Vpnd {
    sender: LinkSender<VpndToRelayd>,
    receiver: LinkReceiver<RelaydToVpnd>,
}

/// Relayd's end: what it is told, and where a network is put in.
struct Relayd {
    networks: mpsc::Sender<RelaydToVpnd>,
    told: mpsc::Receiver<Told>,
}

fn held() -> Held {
    let control_prefix = Prefix { address: [10, 9, 0, 0].into(), length: 24 };
    Held { authority: "a".to_owned(), generation: 1, revision: 2, control_prefix, digest: [3; 32] }
}

fn network() -> Box<Snapshot> {
    let (members, grants) = (Vec::new(), Grants::none(0));
    Box::new(Snapshot { schema_version: SNAPSHOT_SCHEMA, network: held(), members, grants })
}

async fn linked() -> (Relayd, Vpnd) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (networks, given) = mpsc::channel(1);
    let (tell, told) = mpsc::channel(4);
    tokio::spawn(async move { hold(7, ours.into(), given, &tell).await });
    let greeted = greet(theirs.into(), Descriptors::Refused, Role::Vpnd, Role::Relayd).await;
    let (sender, receiver) = greeted.unwrap();
    (Relayd { networks, told }, Vpnd { sender, receiver })
}

impl Vpnd {
    async fn say(&mut self, message: VpndToRelayd) {
        self.sender.send(&message, &[]).await.unwrap();
    }

    async fn state(&mut self) {
        self.say(VpndToRelayd::Standing { public_key: [1; 32], held: Some(held()) }).await;
    }
}

/// VPN-41, ARC-17: vpnd states its key and what it holds, is given one network and says what became of it.
#[tokio::test]
async fn a_vpnd_states_itself_and_is_given_networks() {
    let (mut relayd, mut vpnd) = linked().await;
    vpnd.state().await;
    let Some(Told::Linked { link: 7, public_key, held: stated }) = relayd.told.recv().await else { panic!() };
    assert_eq!((public_key, stated), ([1; 32], Some(held())));
    relayd
        .networks
        .send(RelaydToVpnd::Apply { id: 5, snapshot: network() })
        .await
        .unwrap_or_else(|_| panic!());
    match vpnd.receiver.receive().await.unwrap().message {
        RelaydToVpnd::Apply { id, snapshot } => assert_eq!((id, snapshot), (5, network())),
        RelaydToVpnd::Hello(_) => panic!("a second hello"),
    }
    let outcome = Err(NotApplied::Bind("x".to_owned()));
    vpnd.say(VpndToRelayd::Applied { id: 5, outcome: outcome.clone() }).await;
    let Some(Told::Applied { link: 7, id: 5, outcome: said }) = relayd.told.recv().await else { panic!() };
    assert_eq!(said, outcome);
}

/// VPN-29: the end of vpnd is told, and so is that of a link whose place another takes.
#[tokio::test]
async fn the_end_of_a_link_is_told() {
    for vpnd_ends in [true, false] {
        let (mut relayd, mut vpnd) = linked().await;
        vpnd.state().await;
        assert!(matches!(relayd.told.recv().await, Some(Told::Linked { .. })));
        if vpnd_ends {
            drop(vpnd);
        } else {
            drop(relayd.networks);
        }
        assert!(matches!(relayd.told.recv().await, Some(Told::Lost { link: 7 })));
        assert!(relayd.told.recv().await.is_none(), "nobody holds it any more");
    }
}

/// ARC-24: a vpnd that says what it may not say then ends its link; one that was not heard of is not told of.
#[tokio::test]
async fn what_vpnd_may_not_say_ends_the_link() {
    let (mut relayd, mut vpnd) = linked().await;
    vpnd.say(VpndToRelayd::Applied { id: 1, outcome: Ok(()) }).await;
    assert!(relayd.told.recv().await.is_none());

    let (mut relayd, mut vpnd) = linked().await;
    vpnd.state().await;
    vpnd.state().await;
    assert!(matches!(relayd.told.recv().await, Some(Told::Linked { .. })));
    assert!(matches!(relayd.told.recv().await, Some(Told::Lost { .. })));
    assert!(relayd.told.recv().await.is_none());
}

/// ARC-24: an outcome of a network that vpnd was not given, or said for already, ends the link by name.
#[tokio::test]
async fn an_outcome_that_nobody_asked_for_ends_the_link() {
    for (given, said) in [(None, vec![0]), (Some(5), vec![6]), (Some(5), vec![5, 5])] {
        let (mut relayd, mut vpnd) = linked().await;
        vpnd.state().await;
        assert!(matches!(relayd.told.recv().await, Some(Told::Linked { .. })));
        if let Some(id) = given {
            let apply = RelaydToVpnd::Apply { id, snapshot: network() };
            relayd.networks.send(apply).await.unwrap_or_else(|_| panic!());
            vpnd.receiver.receive().await.unwrap();
        }
        for id in &said {
            vpnd.say(VpndToRelayd::Applied { id: *id, outcome: Ok(()) }).await;
        }
        let mut applied = 0;
        while let Some(Told::Applied { id, .. }) = relayd.told.recv().await {
            assert_eq!(Some(id), given);
            applied += 1;
        }
        assert_eq!(applied, said.len() - 1, "the last one was not asked for");
        assert!(relayd.told.recv().await.is_none(), "the link has ended");
    }
}

/// VPN-29: a link whose place another took before vpnd was heard of on it is given up at once, and not told of.
#[tokio::test(start_paused = true)]
async fn a_former_link_is_not_waited_for() {
    let (mut relayd, mut vpnd) = linked().await;
    let began = tokio::time::Instant::now();
    drop(relayd.networks);
    assert!(relayd.told.recv().await.is_none());
    assert!(began.elapsed() < STANDING_BUDGET, "it was waited for");
    assert!(vpnd.receiver.receive().await.is_err());
}

/// A vpnd that says hello and nothing more is not waited for.
#[tokio::test(start_paused = true)]
async fn a_vpnd_that_states_no_key_is_not_waited_for() {
    let (mut relayd, vpnd) = linked().await;
    assert!(relayd.told.recv().await.is_none());
    drop(vpnd);
}
