//! The workers of a relay that root started: ARC-21.
//!
//! Only root starts one. As another user these tests fail; none of them is left out.
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

#[path = "scene/scene.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod scene;

use coreflow_tests::cloudly::Cloudly;
use coreflow_tests::free_port::free_port;
use coreflow_tests::relay::RelaySetup;
use coreflow_tests::waiting::{BOUND, poll};
use scene::Scene;

const USERS: [(&str, &str); 3] = [("relayd", "60801"), ("pulld", "60802"), ("vpnd", "60803")];

/// A member of what the kernel shows of a process.
fn shown(pid: u32, name: &str) -> Vec<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().split_whitespace().map(str::to_owned).collect()
}

/// ARC-21: each worker runs under a user and a group of its own in all four senses, without another group, a
/// capability or a way to one, after a restart too; the log says under which; the supervisor stays what it was.
#[tokio::test(flavor = "multi_thread")]
async fn workers_of_root_have_users_of_their_own() {
    assert!(nix::unistd::geteuid().is_root(), "only root starts workers under other users: run it as root");
    let scene = Scene::start(|_: &Cloudly, setup: RelaySetup| {
        setup
            .variable("COREFLOW_VPN_BIND_HOSTNAME", "127.0.0.1")
            .variable("COREFLOW_VPN_QUIC_PORT", &free_port().to_string())
    })
    .await;
    scene.relay.wait_open().await.unwrap();
    let named = "each worker has a user of its own, relayd as 60801, pulld as 60802, vpnd as 60803";
    scene.relay.wait_line(named).await.unwrap();
    let all = || Some(scene.relay.workers()).filter(|workers| workers.len() == USERS.len());
    for round in 0..2 {
        let workers = poll(BOUND, "relayd, pulld and vpnd", all).await.unwrap();
        for (role, user) in USERS {
            let pid = workers[role];
            // The user is changed before the program is executed, which its name shows.
            assert_eq!(shown(pid, "Uid"), [user; 4], "{role}");
            assert_eq!(shown(pid, "Gid"), [user; 4], "{role}");
            assert_eq!(shown(pid, "Groups"), [] as [&str; 0], "{role}");
            for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                assert_eq!(shown(pid, set), ["0000000000000000"], "{set} of {role}");
            }
        }
        assert_eq!(shown(scene.relay.pid(), "Uid"), ["0"; 4]);
        if round == 0 {
            for (role, _) in USERS {
                let killed = scene.relay.kill_worker(role);
                scene.relay.wait_worker(role, killed).await.unwrap();
            }
        }
    }
    // Every worker says what confines it, and on this kernel nothing is missing.
    for (role, _) in USERS {
        let report =
            format!("INFO {role}: the worker is confined by parent-death, no-new-privileges, descriptors");
        scene.relay.wait_line(&report).await.unwrap();
    }
}
