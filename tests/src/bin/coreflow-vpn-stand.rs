//! `coreflow-vpn-stand`: the VPN hub without a relay around it; see [`coreflow_tests::vpn_stand`].

use std::process::ExitCode;

fn main() -> ExitCode {
    match coreflow_tests::vpn_stand::run(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
