//! The small bodies of both hops, of Cloudly, the nodes and the ingress: whatever reads one reads the members that the
//! text states, and what is written again is read as the same (PROT-12, REG-37, REG-38, REG-39, FWD-12, FWD-31,
//! ING-34).
#![no_main]

use coreflow_ipc::typedrequest::Body;
use coreflow_relayd::{
    contract::{
        cluster::CertificateAnswer,
        identity::SessionRegistered,
        ingress::{CarriedRouteTable, GetIngressRouteTable, IngressRegistered, IngressRegistration},
        offer::{Offer, Release},
        renewal::Digest,
        runtime::{Addressed, Binding, Bound, Offered},
        values::{Generation, Id, LARGEST_INTEGER, Reference},
        vpn_network::CarriedNetwork,
    },
    hub::read_carried,
    protocol::{self, Kind},
    registration::acceptance,
};
use libfuzzer_sys::fuzz_target;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// How often a member stands in the outermost object of `text`, by a reader of another kind.
fn states(body: &Body, name: &str) -> bool {
    body.read::<Value>().ok().is_none_or(|value| value.get(name).is_some())
}

/// What is read and written is read as the same.
fn crosses<T: DeserializeOwned + Serialize + PartialEq>(read: &T) {
    let again: T = Body::of(read).read().unwrap_or_else(|error| panic!("what was written is read: {error}"));
    assert!(again == *read);
}

fn of_cloudly(body: &Body) {
    if let Ok(SessionRegistered { protocol }) = body.read() {
        crosses(&protocol);
    }
    if let Ok(accepted) = acceptance::read(body) {
        crosses(&accepted.protocol);
        crosses(&accepted.credential);
        crosses(&accepted.registration);
        for member in ["protocol", "origin", "credential", "registration"] {
            assert!(states(body, member));
        }
    }
    if let Ok(CertificateAnswer { certificate }) = body.read() {
        assert!(states(body, "certificate") && body.text().len() > certificate.private_key.len());
    }
    if let Ok(registered) = body.read::<IngressRegistered>() {
        crosses(&registered.ingress);
        assert!(
            states(body, "ingress") && (!registered.states_revision || states(body, "routeTableRevision"))
        );
    }
    if let Ok(CarriedRouteTable { route_table }) = body.read() {
        assert!(body.text().contains(route_table.get()));
    }
    if let Ok(CarriedNetwork { network }) = body.read() {
        assert!(body.text().contains(network.get()));
        assert_eq!(matches!(read_carried(body), Ok(None)), network.get() == "null");
    }
}

fn of_nodes(body: &Body) {
    if let Ok(bound) = body.read::<Bound>() {
        crosses(&bound.session);
        assert!(
            body.read::<Addressed>()
                .is_ok_and(|addressed| addressed.session.node_id == bound.session.node_id)
        );
    }
    if let Ok(registration) = body.read::<IngressRegistration>() {
        crosses(&registration.protocol);
        assert!(states(body, "authorization") && states(body, "ingressInstanceNonce"));
    }
    if let Ok(GetIngressRouteTable { applied_revision }) = body.read() {
        assert!(states(body, "appliedRevision"));
        assert!(applied_revision.is_none_or(|revision| revision.get() <= LARGEST_INTEGER));
    }
    let offered: Option<Offered<'_>> = body.read().ok();
    for kind in [Kind::CloudlyClient, Kind::PalletRuntime, Kind::ClusterIngress] {
        let own = kind.own_offer();
        match protocol::judge(kind, offered.as_ref().and_then(|offered| offered.protocol)) {
            Ok(peer) => {
                assert!(own.oldest_accepted_peer_release <= peer.release);
                assert!(peer.oldest_accepted_peer_release <= own.release);
            }
            Err(refused) => assert!(!refused.line().chars().any(char::is_control)),
        }
    }
}

/// Values that have one form.
fn values(text: &str) {
    if let Some(id) = Id::parse(text) {
        assert!(
            id.as_str() == text
                && text.len() <= 128
                && !text.contains(|c: char| c.is_whitespace() || c == '/')
        );
    }
    if let Some(release) = Release::parse(text) {
        assert_eq!(release.to_string(), text);
    }
    if Digest::parse(text).is_some() {
        assert!(text.len() == 71 && !text.bytes().any(|byte| byte.is_ascii_uppercase()));
    }
    if let Some(generation) = text.parse().ok().and_then(Generation::parse) {
        assert!(generation.get() < 1 << 53);
    }
}

fuzz_target!(|text: &str| {
    let body = Body::from_json(text.to_owned());
    of_cloudly(&body);
    of_nodes(&body);
    for read in
        [body.read::<Offer>().map(|read| crosses(&read)), body.read::<Binding>().map(|read| crosses(&read))]
    {
        assert!(read.is_err() || text.trim_ascii_start().starts_with('{'));
    }
    if let Ok(reference) = body.read::<Reference>() {
        crosses(&reference);
    }
    values(text);
});
