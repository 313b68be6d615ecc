//! The way of a node to its image, from the assignment that names the relay to the layer that comes through it
//! (PULL).

use coreflow_tests::cloudly::Step;
use coreflow_tests::pallet::{PalletNode, Setup};
use coreflow_tests::pull_bed::{DIGEST, PullBed};
use coreflow_tests::registry::reply;
use serde_json::{Value, json};

const APPLY: &str = "applyRuntimeAssignment";

/// PULL-03, PULL-04, PULL-05, PULL-09: an assignment reaches the node with the pull endpoint that Cloudly stated,
/// the reference being the same as in one without; the credential that Cloudly gave this node for it is the one
/// the registry sees, under the reference's own path; and the next node's is the next node's.
#[tokio::test]
async fn a_node_pulls_from_the_endpoint_of_its_assignment() {
    let bed = PullBed::open().await;
    bed.cloudly.wait_accepted(1).await.unwrap();
    bed.registry.answer(reply("200 OK", &[("Docker-Content-Digest", DIGEST)], b"layer"));
    let (registry, endpoint) = ("registry.test", bed.setup.origin());
    let image = format!("{registry}/team/app@{DIGEST}");
    for id in ["node-1", "node-2"] {
        let node = PalletNode::start(Setup::new(bed.setup.target(), id));
        node.wait_registered(1).await.unwrap();
        let binding: Value = serde_json::from_str(&node.binding().unwrap()).unwrap();
        let workloads = [json!({"image": image, "pullEndpoint": endpoint}), json!({"image": image})];
        for (number, workload) in workloads.iter().enumerate() {
            let assignment = json!({"id": format!("assignment-{number}"), "workload": workload});
            let body = json!({"session": binding, "assignment": assignment}).to_string();
            bed.cloudly.push(APPLY, &body).await.unwrap().outcome().unwrap();
            let pushed = node.wait_push(APPLY, number + 1).await.unwrap().message;
            assert_eq!(pushed.request(), body, "carried as it is");
        }
        let token = format!("registry-token-of-{id}");
        bed.cloudly
            .once("getRuntimeRegistryCredential", Step::Answer(json!({"registryToken": token}).to_string()));
        let asked =
            node.request("getRuntimeRegistryCredential", &json!({"session": binding}).to_string()).await;
        let credential: Value = serde_json::from_str(asked.unwrap().outcome().unwrap().get()).unwrap();
        let authorization = format!("Bearer {}", credential["registryToken"].as_str().unwrap());

        let pushed: Value = serde_json::from_str(node.pushes()[0].message.request()).unwrap();
        let workload = &pushed["assignment"]["workload"];
        assert_eq!(workload["pullEndpoint"], json!(endpoint));
        let reference = workload["image"].as_str().unwrap().strip_prefix(&format!("{registry}/")).unwrap();
        let (repository, digest) = reference.split_once('@').unwrap();
        let path = format!("/v2/{repository}/blobs/{digest}");
        for answer in bed.over_both("GET", &path, &[("Authorization", &authorization)]).await {
            assert_eq!(
                (answer.text().as_str(), answer.get("docker-content-digest")),
                ("layer", Some(DIGEST))
            );
            let seen = bed.registry.last();
            assert_eq!(
                (seen.target.as_str(), seen.all("authorization")),
                (path.as_str(), vec![&*authorization])
            );
        }
    }
}
