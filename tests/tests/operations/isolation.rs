//! `coreflowctl isolation` beside what `/proc` says to this test itself.

use std::fs;

use serde_json::{Value, json};

use super::{ROLES, opened};

/// The words of a member of a process's status.
fn stated(pid: u32, member: &str) -> Vec<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{member}:"))).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

/// ARC-05, ARC-11, ARC-21, ARC-23: of each process what the kernel says, and all that is promised holds; of relayd the
/// listener is among its descriptors, and of vpnd no socket of TCP.
#[tokio::test]
async fn the_isolation_is_what_the_kernel_says() {
    assert!(nix::unistd::geteuid().is_root(), "this test reads other users' descriptors: run it as root");
    let (scene, workers) = opened().await;
    let _node = scene.node("node-1").await;
    let (code, isolation) = scene.relay.ctl_json(&["isolation"]).await;
    assert_eq!(isolation["notHeld"], json!([]), "{isolation:#}");
    assert_eq!(code, Some(0));
    let processes = isolation["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 1 + ROLES.len());
    assert_eq!(
        (&processes[0]["role"], &processes[0]["pid"]),
        (&json!("supervisor"), &json!(scene.relay.pid()))
    );
    let mut users = Vec::new();
    for (role, seen) in ROLES.iter().zip(&processes[1..]) {
        let pid = workers[*role];
        assert_eq!(
            (&seen["role"], &seen["pid"], &seen["parent"]),
            (&json!(role), &json!(pid), &json!(scene.relay.pid()))
        );
        let credentials = &seen["credentials"];
        let uid: Vec<u32> = stated(pid, "Uid").iter().map(|id| id.parse().unwrap()).collect();
        assert_eq!(credentials["users"], json!(uid));
        assert_eq!(credentials["capabilities"]["bounding"], json!(stated(pid, "CapBnd")[0]));
        assert_eq!(credentials["capabilities"]["effective"], json!("0000000000000000"));
        assert_eq!(credentials["seccompFilters"].to_string(), stated(pid, "Seccomp_filters")[0]);
        assert_eq!((&credentials["noNewPrivileges"], &seen["dumpable"]), (&json!(true), &json!(false)));
        let descriptors = seen["descriptors"].as_object().unwrap();
        let listed = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        assert!(descriptors.len().abs_diff(listed) <= 2, "{} and {listed}", descriptors.len());
        let of_tcp = |kind: &&Value| kind.as_str().unwrap().starts_with("tcp");
        assert_eq!(descriptors.values().any(|kind| of_tcp(&kind)), *role == "relayd");
        let listens = format!("tcp listening on 127.0.0.1:{}", scene.setup.port);
        assert_eq!(
            descriptors.values().filter(|kind| **kind == json!(listens)).count(),
            usize::from(*role == "relayd")
        );
        assert_eq!(seen["limits"]["coreFile"], json!({"soft": 0, "hard": 0}));
        assert_eq!(seen["ownWord"].as_array().unwrap().len(), 8);
        users.push(uid[0]);
    }
    users.dedup();
    assert_eq!(users.len(), ROLES.len(), "each worker has a user of its own");
    let said = scene.relay.ctl(&["isolation"]).await;
    assert_eq!(
        (said.code, said.stdout.ends_with("all that is promised holds\n")),
        (Some(0), true),
        "{}",
        said.stdout
    );
    assert!(said.stdout.contains("landlock on"), "{}", said.stdout);
}

/// A promise that is broken is found by what is wrong, and the exit status says so: a tracer on a worker, the one thing
/// that root can change of a worker that runs.
#[tokio::test]
async fn a_broken_promise_is_found() {
    let (scene, workers) = opened().await;
    let pid = nix::unistd::Pid::from_raw(i32::try_from(workers["pulld"]).unwrap());
    // A thread traces; it waits here until the look is over.
    let (seized, is_seized) = std::sync::mpsc::channel();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let tracer = std::thread::spawn(move || {
        nix::sys::ptrace::seize(pid, nix::sys::ptrace::Options::empty()).unwrap();
        seized.send(nix::unistd::gettid()).unwrap();
        let _ = is_done.recv();
    });
    let by = is_seized.recv().unwrap();
    let (code, isolation) = scene.relay.ctl_json(&["isolation"]).await;
    done.send(()).unwrap();
    tracer.join().unwrap();
    let expected = format!("pulld: process {by} traces it");
    assert_eq!((code, &isolation["notHeld"]), (Some(3), &json!([expected])));
}
