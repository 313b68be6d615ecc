//! The bench: the real relay beside a minimal Node relay of the published packages, in the same run, on the same
//! machine, under the same load. `docs/benchmarks.md` says what each figure means.
//!
//! - [`start`], [`forwarding`], [`idle_memory`], [`handshakes`], [`recarry`]: what is measured.
//! - [`contestant`]: who is measured; [`cost`]: what the kernel says of its processes.
//! - [`node`], [`crowd`], [`cloudly`]: the load, lean enough not to be what is measured; [`exchange`] is what
//!   they say, [`websocket`] and [`head`] how.
//! - [`table`]: the figures, their ratios and the targets.

pub mod arguments;
pub mod cloudly;
pub mod contestant;
pub mod cost;
pub mod crowd;
pub mod exchange;
pub mod forwarding;
pub mod handshakes;
pub mod head;
pub mod idle_memory;
pub mod latencies;
pub mod node;
pub mod recarry;
pub mod start;
pub mod table;
pub mod websocket;

use std::fmt;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::authority::Authority;
use crate::binaries::binaries;
use arguments::{Arguments, Part};
use contestant::Ground;
use table::Table;

/// The part that did not yield its figures, and why.
#[derive(Debug)]
pub struct BenchFailure {
    part: &'static str,
    reason: String,
}

impl fmt::Display for BenchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FAILED  {}: {}", self.part, self.reason)
    }
}

impl std::error::Error for BenchFailure {}

/// Runs the parts that are asked for and prints the table, then the targets that are missed.
///
/// # Errors
/// [`BenchFailure`] at the first part that yields no figure. A missed target is a result, no failure.
pub async fn run(arguments: &Arguments) -> Result<(), BenchFailure> {
    descriptors_to_the_limit().map_err(in_part("start"))?;
    let binaries = arguments.binaries.clone().unwrap_or_else(|| binaries().to_owned());
    let binaries = binaries.canonicalize().map_err(in_part("start"))?;
    let authority = Authority::new();
    let ground = Ground { authority: &authority, binaries: &binaries, peers: &arguments.peers };
    let mut table = Table::default();
    for part in Part::ALL.into_iter().filter(|part| arguments.wants(*part)) {
        eprintln!("measuring: {}", part.name());
        let failed = in_part(part.name());
        match part {
            Part::Start => table.start(&start::measure(arguments, &ground).await.map_err(failed)?),
            Part::Forwarding => {
                table.forwarding(&forwarding::measure(arguments, &ground).await.map_err(failed)?);
            }
            Part::Memory => table.memory(&idle_memory::measure(arguments, &ground).await.map_err(failed)?),
            Part::Handshakes => {
                table.handshakes(&handshakes::measure(arguments, &ground).await.map_err(failed)?);
            }
            Part::Recarry => {
                let measured = recarry::measure(arguments, &ground).await.map_err(failed)?;
                table.recarry(&measured, arguments.recarried);
            }
        }
    }
    println!("{}", table.markdown());
    for missed in table.missed() {
        println!("missed: {missed}");
    }
    match table.missing().as_slice() {
        [] if table.is_empty() => Err(in_part("table")("no figure was measured")),
        [] => Ok(()),
        missing => Err(in_part("table")(format!("no figure for {}", missing.join("; ")))),
    }
}

fn in_part<E: fmt::Display>(part: &'static str) -> impl FnOnce(E) -> BenchFailure {
    move |reason| BenchFailure { part, reason: reason.to_string() }
}

/// A socket for each of ten thousand nodes takes more descriptors than a shell allows by default.
fn descriptors_to_the_limit() -> nix::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
}
