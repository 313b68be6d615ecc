//! What vpnd asks of the supervisor, its one UDP socket, and what it says of its hub (VPN-10, VPN-33, VPN-36,
//! VPN-37).

use std::{
    io,
    net::{SocketAddr, SocketAddrV4},
    os::fd::OwnedFd,
    time::Duration,
};

use coreflow_ipc::{
    asks::AskId,
    hello::Role,
    messages::{
        hub_report::HubReport,
        relayd::{ToRelayd, VpnFacts},
        vpnd::{FromVpnd, ToVpnd},
    },
    record::Budget,
};
use tracing::{debug, error, warn};

use super::Supervisor;
use crate::{
    constants::{
        HUB_ASK_BURST, HUB_ASKS_PER_SECOND, HUB_BIND_BURST, HUB_BINDS_PER_SECOND, HUB_REPORT_BURST,
        HUB_REPORTS_PER_SECOND, HUB_SOCKET_BUFFER,
    },
    hub_socket::HubSocket,
    programs::ProgramError,
    status::VpnHub,
};

/// What the supervisor knows of the hub. The socket is not among it: once it is handed over, vpnd alone holds it,
/// and it is closed with vpnd.
pub(super) struct Hub {
    /// How often it is bound for vpnd.
    binds: Budget,
    /// Why there is no hub: its executable, or the last bind that the host refused.
    refused: Option<String>,
    /// The latest report of the living vpnd.
    report: Option<HubReport>,
    /// How much the living vpnd says.
    said: Said,
}

/// How often a vpnd may say what costs the supervisor work.
struct Said {
    asks: Budget,
    reports: Budget,
}

impl Default for Said {
    fn default() -> Self {
        Self {
            asks: Budget::new(HUB_ASK_BURST, HUB_ASKS_PER_SECOND),
            reports: Budget::new(HUB_REPORT_BURST, HUB_REPORTS_PER_SECOND),
        }
    }
}

impl Said {
    /// Whether vpnd may say so now; otherwise how it broke its link's rule.
    fn admit(&mut self, message: &FromVpnd, mono: Duration) -> Result<(), &'static str> {
        let (admitted, refused) = match message {
            // What every worker says is judged where that is acted on.
            FromVpnd::Worker(_) => return Ok(()),
            FromVpnd::AskSocket { .. } => (self.asks.admit(mono), "ipc-message-too-often: AskSocket"),
            FromVpnd::Report(_) => (self.reports.admit(mono), "ipc-message-too-often: Report"),
        };
        if admitted { Ok(()) } else { Err(refused) }
    }
}

impl Default for Hub {
    fn default() -> Self {
        let binds = Budget::new(HUB_BIND_BURST, HUB_BINDS_PER_SECOND);
        Self { binds, refused: None, report: None, said: Said::default() }
    }
}

impl Hub {
    /// Nothing is known of a hub whose vpnd is gone.
    pub(super) fn vpnd_ended(&mut self) {
        self.report = None;
        self.said = Said::default();
    }

    /// The executable is none: nothing starts it, a bind fails under a name of its own, and the relay serves on
    /// (CFG-41, VPN-36).
    pub(super) fn unavailable(&mut self, error: &ProgramError) {
        let cause = error.of_hub();
        error!(worker = Role::Vpnd.name(), "the managed VPN hub cannot be bound: {cause}");
        self.refused = Some(cause);
    }

    /// What a status shows, with a hub configured.
    pub(super) fn status(&self, facts: &VpnFacts) -> VpnHub {
        VpnHub {
            configured: SocketAddr::from((facts.address, facts.quic_port)),
            refused: self.refused.clone(),
            report: self.report.clone(),
        }
    }
}

impl Supervisor {
    pub(super) fn said_by_vpnd(&mut self, message: FromVpnd) {
        if let Err(broken) = self.hub.said.admit(&message, self.mono()) {
            return self.fail(Role::Vpnd, broken);
        }
        match message {
            FromVpnd::Worker(_) => {}
            FromVpnd::AskSocket { id } => self.ask_hub_socket(id),
            FromVpnd::Report(report) => self.hub.report = Some(VpnHub::bounded(report)),
        }
    }

    /// Whether an execution of vpnd failed because of what was executed; then it is not tried again.
    pub(super) fn hub_is_no_executable(&mut self, failure: &io::Error) -> bool {
        let refused = self.programs.vpnd.as_ref().ok().and_then(|program| program.refused(failure));
        let Some(error) = refused else { return false };
        // A relayd that asked for its launch facts before takes the hub for one that can run.
        self.tell_relayd(ToRelayd::HubUnavailable(error.of_hub()), Vec::new());
        self.hub.unavailable(&error);
        self.programs.vpnd = Err(error);
        true
    }

    /// Why no hub can run at all.
    pub(super) fn hub_unavailability(&self) -> Option<String> {
        self.programs.vpnd.as_ref().err().map(ProgramError::of_hub)
    }

    /// Binds the hub's address and hands the socket over, within this turn of the loop: so one ask is answered
    /// before the next one is read.
    fn ask_hub_socket(&mut self, id: AskId) {
        let (answer, descriptors) = match self.hub_socket() {
            Ok(HubSocket { socket, address, .. }) => (Ok(address), vec![socket]),
            Err(why) => (Err(why), Vec::new()),
        };
        self.tell_vpnd(ToVpnd::AnswerSocket { id, answer }, descriptors);
    }

    fn hub_socket(&mut self) -> Result<HubSocket, String> {
        if self.stopping.is_some() {
            return Err("the relay stops".to_owned());
        }
        let vpn = self.facts.as_ref().and_then(|facts| facts.vpn.as_ref());
        let Some(VpnFacts { address, quic_port, .. }) = vpn else {
            return Err("no hub is configured".to_owned());
        };
        let address = SocketAddrV4::new(*address, *quic_port);
        if !self.hub.binds.admit(self.clock.now().mono) {
            return Err("it was tried too often; the next push tries again".to_owned());
        }
        match HubSocket::bind(address) {
            Ok(bound) => {
                self.hub.refused = None;
                told_buffers(&bound);
                Ok(bound)
            }
            Err(refused) => {
                error!(
                    worker = Role::Vpnd.name(),
                    "the managed VPN hub cannot be bound: {address}: {refused}; COREFLOW_VPN_BIND_HOSTNAME and \
                     COREFLOW_VPN_QUIC_PORT must be an address of this host and a free UDP port; each push tries \
                     again"
                );
                self.hub.refused = Some(format!("vpn-hub-bind-refused: {refused}"));
                Err(refused.to_string())
            }
        }
    }

    fn tell_vpnd(&mut self, message: ToVpnd, descriptors: Vec<OwnedFd>) {
        let process = self.workers[&Role::Vpnd].process.as_ref();
        if process.is_some_and(|process| process.tell_vpnd(message, descriptors).is_err()) {
            self.fail(Role::Vpnd, "it does not take its messages");
        }
    }
}

/// A burst that has no room is lost: small buffers cost throughput, and the operator can give more.
fn told_buffers(bound: &HubSocket) {
    let HubSocket { address, receive_buffer, send_buffer, .. } = bound;
    debug!(
        worker = Role::Vpnd.name(),
        "the managed VPN hub is bound to UDP {address}, with {receive_buffer} bytes to receive and {send_buffer} to \
         send into"
    );
    for (granted, limit) in [(receive_buffer, "net.core.rmem_max"), (send_buffer, "net.core.wmem_max")] {
        if *granted < HUB_SOCKET_BUFFER {
            warn!(
                worker = Role::Vpnd.name(),
                "the host gives the hub's socket {granted} of {HUB_SOCKET_BUFFER} bytes: bursts are lost; raise {limit}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::programs::ProgramFault;

    /// A report goes with the vpnd that made it, and why there is no hub stays.
    #[test]
    fn a_report_goes_with_its_vpnd() {
        let facts = VpnFacts { address: Ipv4Addr::LOCALHOST, quic_port: 51_820, unavailable: None };
        let mut hub = Hub { report: Some(HubReport::default()), ..Hub::default() };
        assert_eq!(hub.status(&facts).report, Some(HubReport::default()));
        hub.unavailable(&ProgramError { path: "/a/vpnd".into(), fault: ProgramFault::Missing });
        hub.vpnd_ended();
        let status = hub.status(&facts);
        assert_eq!((status.configured.to_string().as_str(), status.report), ("127.0.0.1:51820", None));
        assert_eq!(status.refused.as_deref(), Some("vpn-hub-executable-missing: /a/vpnd"));
    }
    /// Reports of each second and an ask for each push are taken for ever; a vpnd that floods the supervisor
    /// with either has broken a rule, by name, and its successor begins anew.
    #[test]
    fn a_vpnd_that_says_too_much_has_failed() {
        let (report, ask) = (FromVpnd::Report(HubReport::default()), FromVpnd::AskSocket { id: 1 });
        let mut hub = Hub::default();
        for second in 0..3600 {
            let now = Duration::from_secs(second);
            assert_eq!((hub.said.admit(&report, now), hub.said.admit(&ask, now)), (Ok(()), Ok(())));
        }
        let now = Duration::from_secs(3600);
        for (message, burst, broken) in [
            (&report, HUB_REPORT_BURST, "ipc-message-too-often: Report"),
            (&ask, HUB_ASK_BURST, "ipc-message-too-often: AskSocket"),
        ] {
            let admitted = (0..10 * burst).filter(|_| hub.said.admit(message, now).is_ok()).count();
            assert_eq!(admitted, burst as usize);
            assert_eq!(hub.said.admit(message, now), Err(broken));
        }
        hub.vpnd_ended();
        assert_eq!((hub.said.admit(&report, now), hub.said.admit(&ask, now)), (Ok(()), Ok(())));
    }
}
