//! `coreflow-vpn-idle`: what an idle node costs the VPN hub; see [`coreflow_tests::vpn_idle`].

use std::process::ExitCode;

use coreflow_tests::vpn_idle::run;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let nodes = std::env::args().nth(1).map_or(Ok(1000), |nodes| nodes.parse());
    let Ok(nodes) = nodes else {
        eprintln!("usage: coreflow-vpn-idle [<nodes>]");
        return ExitCode::from(2);
    };
    match run(nodes).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
