//! `coreflow-link-tap`: see [`coreflow_tests::link_tap`].

use std::process::ExitCode;

fn main() -> ExitCode {
    coreflow_tests::link_tap::run(std::env::args().skip(1).collect())
}
