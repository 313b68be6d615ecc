//! What vpnd asks of the supervisor: its one UDP socket (VPN-10, VPN-33, VPN-37).

use std::net::{SocketAddr, UdpSocket};

use coreflow_ipc::{
    asks::AskId,
    hello::Role,
    messages::vpnd::{FromVpnd, ToVpnd},
};
use tracing::error;

use super::Supervisor;

impl Supervisor {
    pub(super) fn said_by_vpnd(&mut self, message: FromVpnd) {
        match message {
            FromVpnd::Worker(_) | FromVpnd::Report(_) => {}
            FromVpnd::AskSocket { id } => self.bind_hub(id),
        }
    }

    fn bind_hub(&mut self, id: AskId) {
        let Some(vpn) = self.facts.as_ref().and_then(|facts| facts.vpn.as_ref()) else { return };
        let asked = SocketAddr::from((vpn.address, vpn.quic_port));
        let (answer, descriptors) = match UdpSocket::bind(asked) {
            Ok(socket) => (Ok(asked), vec![socket.into()]),
            Err(failure) => {
                let class = failure.kind().to_string();
                error!(worker = Role::Vpnd.name(), address = %asked, class, "the managed VPN hub cannot be bound");
                (Err(class), Vec::new())
            }
        };
        let process = self.workers[&Role::Vpnd].process.as_ref();
        if process.is_some_and(|process| {
            process.tell_vpnd(ToVpnd::AnswerSocket { id, answer }, descriptors).is_err()
        }) {
            self.fail(Role::Vpnd, "it does not take its messages");
        }
    }
}
