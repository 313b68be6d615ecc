//! The command `coreflow`: options, one relay, and its exit code (START-11 – START-16, START-28).

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use coreflow_ipc::sys;

use crate::{
    options::{HELP, Invocation, VERSION},
    relay::{Place, Relay, Signals, stop_signals},
    run::Ended,
};

/// Runs the relay of this process: a checkout, an image or a host release, as `qenv.yml` says.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let options = match Invocation::parse(arguments) {
        Ok(Invocation::Run(options)) => options,
        Ok(Invocation::Help) => return print(HELP),
        Ok(Invocation::Version) => return print(&format!("{VERSION}\n")),
        Err(refused) => return fail(&refused.to_string()),
    };
    let place = match Place::of_process(options) {
        Ok(place) => place,
        Err(error) => return fail(&format!("the start failed: place-unknown: {}", error.kind())),
    };
    if let Err(errno) = harden() {
        return fail(&format!("the start failed: process-not-hardened: {errno}"));
    }
    match Relay::construct(&place) {
        Ok(relay) => code(&relay.run(Signals::Handled)),
        // The cause is on standard error already.
        Err(_) => ExitCode::FAILURE,
    }
}

/// Descriptors that this process inherited reach no worker (ARC-05), nothing that is executed gains a
/// privilege, no module of the host is loaded into a static executable, and a stop signal that comes before its
/// handler waits for it (START-14).
fn harden() -> Result<(), sys::Errno> {
    sys::close_from_on_exec(3)?;
    sys::set_no_new_privs()?;
    sys::look_names_up_without_modules()?;
    stop_signals().thread_block()
}

fn code(ended: &Ended) -> ExitCode {
    match ended {
        Ended::Stopped => ExitCode::SUCCESS,
        Ended::StopFailed | Ended::Interrupted | Ended::StartFailed(_) => ExitCode::FAILURE,
    }
}

fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(cause: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "{cause}");
    ExitCode::FAILURE
}
