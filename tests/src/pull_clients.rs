//! `cargo pull-clients`: skopeo, podman, buildah and containerd's ctr pull images of a real docker-registry
//! through the real relay, by digest, by tag and through an index, with tokens that they ask the relay for;
//! one layer of 300 MB, and one that is cut in its middle and resumed. One line a pull; a program that is
//! missing fails the run.

mod client;
mod docker_registry;
mod evidence;
mod image;
mod origin;
mod program;
mod pull;
mod relayed;
mod stock;
mod token;
mod way;

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use pull::Stage;

/// How a run is done.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// With no relay between the clients and the registry.
    pub direct: bool,
    /// The directory of the relay's executables; they are built without it.
    pub binaries: Option<PathBuf>,
}

/// What did not happen, and why.
#[derive(Debug)]
pub struct Failure {
    what: String,
}

impl Failure {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// What else fails in a run is told in its own words.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

/// Does every pull, a line each.
///
/// # Errors
/// [`Failure`] when the parties do not come to stand, or with the number of pulls that failed.
pub async fn run(options: &Options) -> Result<(), Failure> {
    program::present()?;
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::new("podman, buildah and containerd unpack images as root; run this as root"));
    }
    let begin = Instant::now();
    let stage = Stage::start(options).await?;
    println!("ok  the registry, its images and what leads to it ({:.1} s)", begin.elapsed().as_secs_f32());
    let failed = stage.pull_all().await;
    println!("{:.1} s in all", begin.elapsed().as_secs_f32());
    match failed {
        0 => Ok(()),
        failed => Err(Failure::new(format!("{failed} failed"))),
    }
}
