//! What a client of a service in the cluster sees: a page over TLS, by the route table that the ingress pulled
//! from the relay, with Cloudly there and without, and another page once Cloudly computed another table.

use std::time::Duration;

use serde_json::{Value, json};

use super::{DemoFailure, step};
use crate::authority::{Authority, Issued};
use crate::cloudly::{Cloudly, Route, route_table};
use crate::dial::Target;
use crate::https::https_request;
use crate::ingress::{ClusterIngress, Destination, Setup};

const HOST: &str = "shop.example.test";
/// What the two services answer.
const PAGES: [&str; 2] = ["the first page", "the second page"];
const PULL: &str = "getClusterIngressRouteTable";
const WAIT: Duration = Duration::from_secs(10);

/// The ingress, and two services of which the host is one after the other.
pub(super) struct Ingress {
    authority: Authority,
    certificate: Issued,
    services: [Destination; 2],
    ingress: ClusterIngress,
}

impl Ingress {
    /// Has Cloudly compute a route table, and an ingress serve by it.
    pub(super) async fn tell(cloudly: &Cloudly, relay: Target) -> Result<Self, DemoFailure> {
        let authority = Authority::new();
        let certificate = authority.issue(&[HOST]);
        let [first, second] = PAGES;
        let services = [Destination::start(first).await, Destination::start(second).await];
        let ingress = ClusterIngress::start(Setup::new(relay, "edge-1")).await;
        let told = Self { authority, certificate, services, ingress };
        let pulled = told.follow(cloudly, 1);
        step("the ingress registered and pulled Cloudly's route table", pulled).await?;
        step("it served a page by it, over TLS", told.page(1)).await?;
        Ok(told)
    }

    /// The relay gives the table, and the ingress serves by it, without Cloudly.
    pub(super) async fn alone(&self) -> Result<(), DemoFailure> {
        step("the relay gave the ingress its table without Cloudly", self.pull(1)).await?;
        step("the page was served without Cloudly", self.page(1)).await
    }

    /// Cloudly computes another table, and the ingress follows it.
    pub(super) async fn renew(&self, cloudly: &Cloudly) -> Result<(), DemoFailure> {
        let followed = self.follow(cloudly, 2);
        step("Cloudly computed another table, and the ingress pulled it", followed).await?;
        step("another page is served by it", self.page(2)).await
    }

    fn table(&self, revision: u64) -> String {
        let service = &self.services[index(revision)];
        let route = Route { host: HOST, destination: service.address(), certificate: &self.certificate };
        route_table(revision, &[route])
    }

    async fn follow(&self, cloudly: &Cloudly, revision: u64) -> Result<(), String> {
        self.ingress.wait_registered(1).await.map_err(|late| late.to_string())?;
        let pushed = cloudly.push_routes(&self.table(revision)).await;
        pushed.map_err(|failure| failure.to_string())?.outcome().map_err(|refusal| refusal.to_string())?;
        self.ingress.wait_applied(revision).await.map_err(|late| late.to_string())
    }

    async fn pull(&self, revision: u64) -> Result<(), String> {
        let carrier = self.ingress.carrier().ok_or("the ingress is not connected")?;
        let answer = carrier.call(PULL, &json!({"appliedRevision": null}).to_string(), WAIT).await;
        let answer = answer.map_err(|failure| failure.to_string())?;
        let answer = answer.outcome().map_err(|refusal| refusal.to_string())?;
        let answer: Value = serde_json::from_str(answer.get()).map_err(|error| error.to_string())?;
        let given = &answer["routeTable"]["revision"];
        (*given == json!(revision)).then_some(()).ok_or_else(|| format!("its revision is {given}"))
    }

    async fn page(&self, revision: u64) -> Result<(), String> {
        let tls = self.authority.client_config(&["http/1.1"]);
        let target = Target { address: self.ingress.address(), server_name: HOST.to_owned(), tls };
        let answer = https_request(&target, "GET", "/", &[], "").await.map_err(|error| error.to_string())?;
        let page = PAGES[index(revision)];
        let served = String::from_utf8_lossy(&answer.body);
        (answer.status == 200 && served == page).then_some(()).ok_or_else(|| format!("it is {served:?}"))
    }
}

/// Which of the services a revision routes to.
fn index(revision: u64) -> usize {
    usize::from(revision > 1)
}
