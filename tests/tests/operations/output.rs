//! Where the output of `coreflowctl` goes nowhere.

use std::fs::File;

use super::*;

/// How a look ends whose standard output is `stdout`, and what it says of it.
async fn ended(relay: &Relay, arguments: &[&str], stdout: Stdio) -> (Option<i32>, String) {
    let mut command = Command::new(binaries().join("coreflowctl"));
    command.args(arguments).env_clear().stdout(stdout).stderr(Stdio::piped());
    if arguments[0] != "completions" {
        command.arg("--socket").arg(relay.control_socket());
    }
    let child = command.spawn().unwrap();
    let output = tokio::task::spawn_blocking(|| child.wait_with_output()).await.unwrap().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// OPS-02: a reader that has read enough is no failure of the relay; a file that takes no more is one, by name. A watch
/// and a trace end by either.
#[tokio::test]
async fn a_reader_that_is_gone_is_no_failure_and_a_full_file_is() {
    let (scene, _) = opened().await;
    for arguments in [
        &["status"][..],
        &["status", "--watch", "1"],
        &["nodes", "--json"],
        &["metrics"],
        &["trace", "relayd"],
        &["completions", "bash"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let gone = ended(&scene.relay, arguments, writer.into()).await;
        let full = File::options().write(true).open("/dev/full").unwrap();
        let full = ended(&scene.relay, arguments, full.into()).await;
        assert_eq!(gone, (Some(0), String::new()), "{arguments:?}");
        assert_eq!(full, (Some(1), "output-failed: no storage space\n".to_owned()), "{arguments:?}");
    }
}
