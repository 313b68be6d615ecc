//! QUIC over a socket that was handed to a confined process (ARC-12, VPN-10).
//!
//! This program starts itself again as a worker, with a bound UDP socket as its descriptor 0. The child
//! finds out what the kernel can do, confines itself as vpnd does, and serves one node over that socket.
#![expect(clippy::unwrap_used, reason = "what surprises a test fails it")]

use std::{
    env,
    io::{self, Read as _},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd as _, OwnedFd},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use coreflow_ipc::confine::{Layer, Profile, Started, State, confine};
use coreflow_vpnd::{
    constants::SERVER_NAME,
    protocol::{
        close::Close,
        noise::binding,
        socket::{Datagrams, probe},
        tls,
        transport::endpoint_config,
    },
};
use quinn::{Connection, Endpoint, ServerConfig, TokioRuntime};

const SUPERVISOR: &str = "CONFINED_SOCKET_SUPERVISOR";
const DATAGRAMS: usize = 200;
const BOUND: Duration = Duration::from_secs(30);

fn main() {
    match env::var(SUPERVISOR) {
        Ok(supervisor) => serve_confined(supervisor.parse().unwrap()),
        Err(_) => a_confined_process_serves_the_socket_it_was_handed(),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Endpoint over `socket`, and how many datagrams it sends and receives at once.
fn endpoint(socket: UdpSocket, server: Option<ServerConfig>) -> (Endpoint, String) {
    let socket = Datagrams::over(socket).unwrap();
    let batches = format!("{} {}", socket.max_transmit_segments(), socket.max_receive_segments());
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new_with_abstract_socket(endpoint_config(), server, socket, runtime);
    (endpoint.unwrap(), batches)
}

async fn read(connection: &Connection) -> Bytes {
    tokio::time::timeout(BOUND, connection.read_datagram()).await.expect("a datagram in time").unwrap()
}

/// The child: sends every datagram back, and says how many it could send and receive at once.
fn serve_confined(supervisor: u32) {
    probe();
    let report = confine(&Profile::vpnd(), &Started { supervisor }).unwrap();
    let filtered =
        report.layers.iter().any(|entry| entry.layer == Layer::Seccomp && entry.state == State::On);
    assert!(filtered, "no filter: {:?}", report.layers);
    let refused = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect_err("a confined process makes no socket");
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    runtime().block_on(async {
        let handed: UdpSocket = io::stdin().as_fd().try_clone_to_owned().unwrap().into();
        let (endpoint, batches) = endpoint(handed, Some(tls::hub_config().unwrap()));
        println!("{batches}");
        let connection = endpoint.accept().await.unwrap().await.unwrap();
        assert!(binding(&connection).is_ok());
        for _ in 0..DATAGRAMS {
            let datagram = read(&connection).await;
            connection.send_datagram(datagram).unwrap();
        }
        connection.closed().await;
    });
}

fn a_confined_process_serves_the_socket_it_was_handed() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let hub: SocketAddr = socket.local_addr().unwrap();
    let mut child = Command::new(env::current_exe().unwrap())
        .env_clear()
        .env(SUPERVISOR, std::process::id().to_string())
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    probe();
    let here = runtime().block_on(async {
        let (endpoint, batches) = endpoint(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), None);
        let dial = endpoint.connect_with(tls::node_config().unwrap(), hub, SERVER_NAME).unwrap();
        let connection = tokio::time::timeout(BOUND, dial).await.expect("a connection in time").unwrap();
        for number in 0..DATAGRAMS {
            let datagram = Bytes::from(vec![u8::try_from(number).unwrap(); 1100]);
            connection.send_datagram(datagram.clone()).unwrap();
            assert_eq!(read(&connection).await, datagram);
        }
        connection.close(Close::Ended.code(), &[]);
        endpoint.wait_idle().await;
        batches
    });
    let mut there = String::new();
    child.stdout.take().unwrap().read_to_string(&mut there).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(there.trim(), here, "the confined process sends and receives in the same batches");
    println!("a_confined_process_serves_the_socket_it_was_handed ... ok ({here})");
}
