//! The cluster's ingress as Cloudly sees it: who may be it, and the route table that Cloudly alone can
//! compute (ING-01) and gives to the relay that it accepted and to no other (ING-13).

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::judgement::{State, exact};
use crate::authority::Issued;
use crate::envelope::{Outcome, Refusal, raw};

/// A host of the cluster, where it is served, and its certificate.
#[derive(Clone, Copy)]
pub struct Route<'a> {
    /// The host name, `*.` in front for a wildcard.
    pub host: &'a str,
    /// Where its service listens.
    pub destination: SocketAddr,
    /// What the ingress terminates its TLS with.
    pub certificate: &'a Issued,
}

/// `RouteTable` of the contract, section 5, for the default cluster.
pub fn route_table(revision: u64, routes: &[Route<'_>]) -> String {
    let id = |host: &str| format!("certificate-of-{}", host.replace('*', "any"));
    let entries: Vec<Value> = routes
        .iter()
        .map(|route| {
            json!({
                "hostName": route.host,
                "destinations": [{
                    "address": route.destination.ip().to_string(),
                    "port": route.destination.port(),
                }],
                "certificateId": id(route.host),
            })
        })
        .collect();
    let certificates: Vec<Value> = routes
        .iter()
        .map(|route| {
            json!({
                "id": id(route.host),
                "domainNames": [route.host],
                "publicKey": route.certificate.chain_pem,
                "privateKey": route.certificate.key_pem,
            })
        })
        .collect();
    json!({
        "clusterId": "cluster-1",
        "revision": revision,
        "routes": entries,
        "certificates": certificates,
    })
    .to_string()
}

impl State {
    /// ING-13: only the relay whose registration was accepted is answered.
    pub(super) fn read_routes(&self, number: u64, body: &Value) -> Outcome {
        exact(body, &[], &[], "read")?;
        if !self.connections.get(&number).is_some_and(|open| open.accepted) {
            return Err(Refusal::new("relay-not-connected"));
        }
        let table = self.settings.route_table.as_deref().unwrap_or("null");
        Ok(raw(&format!(r#"{{"routeTable":{table}}}"#)))
    }

    /// A registration of an ingress, carried by the relay.
    pub(super) fn register_ingress(&mut self, number: u64, body: &Value) -> Outcome {
        let refused = |reason: &str| Refusal {
            text: format!("cluster-ingress-registration-refused: {reason}"),
            data: json!({"reason": reason, "retryAfterMs": 60_000}),
        };
        exact(body, &["authorization", "ingressInstanceNonce", "nodeId", "protocol"], &[], "ingress")?;
        if !self.connections.get(&number).is_some_and(|open| open.accepted) {
            return Err(refused("relay-not-accepted"));
        }
        let node = body["nodeId"].as_str().unwrap_or_default();
        if self.settings.ingresses.get(node).map(String::as_str) != body["authorization"].as_str() {
            return Err(refused("ingress-unauthorized"));
        }
        let generation = self.ingress_generations.entry(node.to_owned()).or_insert(0);
        *generation += 1;
        Ok(raw(&json!({
            "protocol": self.settings.offer.json(),
            "ingress": {"id": format!("ingress-{node}"), "generation": *generation},
        })
        .to_string()))
    }
}
