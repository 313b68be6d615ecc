//! `coreflow-pull-stand`: a real relay behind a loopback Cloudly, as a bench or a suite of cases for pull
//! proxies wants its target: it serves TLS on a given port with a given certificate and pulls from a given
//! upstream, until it is killed.
//!
//! A relay dials one origin for its session and for the registry, and whoever is measured against knows
//! nothing of Cloudly. So the two have to share an origin:
//! - [`Mode::Shared`]: the upstream passes `/` and `/typedrequest` on to the Cloudly at `--cloudly-port`.
//! - [`Mode::Splice`]: the upstream does not; see [`namespace`].

mod arguments;
mod namespace;

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::authority::{Authority, Issued};
use crate::cloudly::{Cloudly, Settings};
use crate::free_port::free_port;
use crate::relay::{Relay, RelaySetup};

pub use arguments::{Arguments, Mode, Unusable};

/// The relay's name: a relay's origin has a DNS name, and this one needs no resolver.
const HOST: &str = "localhost";
/// Between two looks at what the relay wrote.
const LINES: Duration = Duration::from_millis(100);

/// Serves until its future is dropped; then nothing of it is left.
///
/// # Errors
/// What could not be started, and why.
pub async fn run(arguments: &Arguments) -> Result<(), String> {
    match arguments.mode {
        Mode::Shared => {
            let port = arguments.cloudly_port.unwrap_or_else(free_port);
            let stand = Stand::start(arguments, port).await?;
            stand.open().await?;
            stand.tell().await
        }
        Mode::Splice => namespace::run(arguments).await,
    }
}

/// The two, of which Cloudly has to outlive the relay's start.
struct Stand {
    relay: Relay,
    _cloudly: Cloudly,
}

impl Stand {
    /// Starts Cloudly on `cloudly_port` and the relay, with a hub, so that all of its processes run.
    async fn start(arguments: &Arguments, cloudly_port: u16) -> Result<Self, String> {
        let read = |path: &Path| {
            std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).expect("a time of this age");
        // What Cloudly states of the term; the certificate's own is the one that counts.
        let certificate = Issued {
            chain_pem: read(&arguments.certificate)?,
            key_pem: read(&arguments.key)?,
            created: milliseconds(now),
            valid_until: milliseconds(now + Duration::from_secs(365 * 24 * 60 * 60)),
        };
        let authority = Authority::new();
        let mut setup = RelaySetup::new(&authority)
            .variable("COREFLOW_RELAY_BIND_PORT", &arguments.port.to_string())
            .variable("COREFLOW_VPN_BIND_HOSTNAME", &Ipv4Addr::LOCALHOST.to_string())
            .variable("COREFLOW_VPN_QUIC_PORT", &free_port().to_string());
        setup.port = arguments.port;
        setup.host_name = HOST.to_owned();
        setup.anchors = read(&arguments.anchors)?;
        setup.executables = Some(arguments.binaries.clone());
        let mut settings: Settings = setup.cloudly_settings();
        settings.certificates.insert(HOST.to_owned(), certificate.clone());
        settings.own_certificate = Some(certificate);
        let cloudly = Cloudly::start_on(cloudly_port, &authority, settings).await;
        let setup = setup.facing(&cloudly).variable("CLOUDLY_URL", &arguments.upstream);
        Ok(Self { relay: setup.start(), _cloudly: cloudly })
    }

    /// Waits until the relay serves.
    async fn open(&self) -> Result<(), String> {
        // A failure's lines are printed by the wait itself.
        self.relay.wait_open().await.map_err(|late| late.to_string())
    }

    /// Passes on what the relay writes.
    async fn tell(&self) -> Result<(), String> {
        loop {
            for line in self.relay.take_lines() {
                println!("{}", line.text);
            }
            tokio::time::sleep(LINES).await;
        }
    }
}
