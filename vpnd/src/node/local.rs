//! The node's end of the wire: one endpoint for all its dials. One that ended, since its socket failed, dials nothing
//! any more; the next dial makes another in its place.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::{Arc, Mutex, MutexGuard},
};

use quinn::{ClientConfig, ConnectError, Connecting, Endpoint, TokioRuntime};

use super::Why;
use crate::{
    constants::SERVER_NAME,
    protocol::{socket::Datagrams, transport::endpoint_config},
};

/// The endpoint that there is.
pub(super) struct Local {
    state: Mutex<State>,
}

struct State {
    /// None while no other could be made in the place of one that ended.
    endpoint: Option<Endpoint>,
    /// What it binds.
    address: SocketAddr,
}

impl Local {
    /// Binds `address`; within a tokio runtime.
    ///
    /// # Errors
    ///
    /// It cannot be bound.
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let endpoint = Some(bound(address)?);
        Ok(Self { state: Mutex::new(State { endpoint, address }) })
    }

    /// Goes on from `address`, with what there is on the way.
    ///
    /// # Errors
    ///
    /// It cannot be bound; nothing changed.
    pub(super) fn rebind(&self, address: SocketAddr) -> io::Result<()> {
        let mut state = self.state();
        match &state.endpoint {
            Some(endpoint) => endpoint.rebind_abstract(Datagrams::over(UdpSocket::bind(address)?)?)?,
            None => state.endpoint = Some(bound(address)?),
        }
        state.address = address;
        Ok(())
    }

    /// Where datagrams leave from.
    ///
    /// # Errors
    ///
    /// What the system said, or there is no endpoint.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        let state = self.state();
        state.endpoint.as_ref().ok_or(io::ErrorKind::NotConnected)?.local_addr()
    }

    /// The endpoint, if there is one.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        self.state().endpoint.clone()
    }

    /// Begins a connection to `hub`, from another endpoint if this one ended.
    pub(super) fn connect(&self, client: &ClientConfig, hub: SocketAddr) -> Result<Connecting, Why> {
        let connect = |endpoint: &Endpoint| endpoint.connect_with(client.clone(), hub, SERVER_NAME);
        let mut state = self.state();
        match state.endpoint.as_ref().map(connect) {
            Some(Err(ConnectError::EndpointStopping)) | None => {}
            Some(connecting) => return connecting.map_err(local),
        }
        // Its socket has to be closed before the same address can be bound.
        state.endpoint = None;
        let another = bound(state.address).map_err(local)?;
        connect(state.endpoint.insert(another)).map_err(local)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of it panics")
    }
}

fn bound(address: SocketAddr) -> io::Result<Endpoint> {
    let socket = Datagrams::over(UdpSocket::bind(address)?)?;
    Endpoint::new_with_abstract_socket(endpoint_config(), None, socket, Arc::new(TokioRuntime))
}

fn local(why: impl ToString) -> Why {
    Why::Local(why.to_string())
}
