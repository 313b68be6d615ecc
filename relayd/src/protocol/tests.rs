use coreflow_ipc::typedrequest::PeerError;

use super::*;

fn judged(kind: Kind, offered: &str) -> Result<Offer, Disagreement> {
    judge(kind, Some(&RawValue::from_string(offered.to_owned()).unwrap()))
}

fn offer(release: &str, oldest: &str) -> String {
    format!(r#"{{"release":"{release}","oldestAcceptedPeerRelease":"{oldest}"}}"#)
}

/// PROT-01, PROT-08 – PROT-11: one release, and an oldest accepted peer for each kind.
#[test]
fn each_kind_has_its_own_oldest_peer() {
    let own = |kind: Kind| kind.own_offer();
    assert_eq!(own(Kind::PalletRuntime).oldest_accepted_peer_release.to_string(), "32.10.1");
    assert_eq!(own(Kind::ClusterIngress).oldest_accepted_peer_release.to_string(), "32.0.0");
    assert_eq!(own(Kind::CloudlyClient).oldest_accepted_peer_release.to_string(), "32.0.0");
    for kind in [Kind::CloudlyClient, Kind::PalletRuntime, Kind::ClusterIngress] {
        assert_eq!(own(kind).release.to_string(), "33.1.0");
    }
    assert!(judged(Kind::PalletRuntime, &offer("32.10.1", "33.1.0")).is_ok());
    assert!(judged(Kind::PalletRuntime, &offer("32.10.0", "32.0.0")).is_err());
    assert!(judged(Kind::ClusterIngress, &offer("32.0.0", "32.0.0")).is_ok());
    assert!(judged(Kind::ClusterIngress, &offer("33.2.0", "33.1.1")).is_err());
}

/// PROT-14: the refusal states which release the peer met, with both offers as data.
#[test]
fn a_refusal_states_both_sides() {
    let disagreement = judged(Kind::PalletRuntime, &offer("31.0.0", "30.0.0")).unwrap_err();
    let Outcome::Error(error) = disagreement.refusal() else { panic!("no refusal") };
    let error = PeerError::of(&error);
    assert_eq!(
        error.text,
        "protocol-refused: palletRuntime peer speaks 31.0.0 and accepts from 30.0.0; \
         this relay speaks 33.1.0 and accepts from 32.10.1"
    );
    let data: serde_json::Value = serde_json::from_str(error.data.text()).unwrap();
    assert_eq!(
        data,
        json!({
            "kind": "palletRuntime",
            "offer": { "release": "33.1.0", "oldestAcceptedPeerRelease": "32.10.1" },
            "received": { "release": "31.0.0", "oldestAcceptedPeerRelease": "30.0.0" },
        })
    );
}

/// PROT-14: a missing or malformed offer is refused the same way, with nothing received.
#[test]
fn an_offer_that_cannot_be_read_is_refused_as_none() {
    for offered in [
        "null",
        "7",
        r#"{"release":"33.1.0"}"#,
        r#"{"release":"33.1.0","oldestAcceptedPeerRelease":"33.0"}"#,
        r#"{"release":"33.1.0","oldestAcceptedPeerRelease":"32.0.0","more":1}"#,
    ] {
        assert_eq!(judged(Kind::CloudlyClient, offered).unwrap_err().peer, None, "{offered}");
    }
    assert_eq!(judge(Kind::CloudlyClient, None).unwrap_err().peer, None);
}

#[test]
fn cloudly_s_refusal_is_read_out_of_its_data() {
    let data = Body::from_json(format!(
        r#"{{"kind":"cloudlyClient","offer":{},"received":null}}"#,
        offer("34.0.0", "34.0.0")
    ));
    assert_eq!(refused_by_cloudly(&data).peer.unwrap().release.to_string(), "34.0.0");
    assert_eq!(refused_by_cloudly(&Body::from_json("null".into())).peer, None);
}
