//! The start, once the session is registered: cluster document, launch facts, certificate, listener,
//! in this order; then the relay is open (START-01, START-03, START-05, LIS-07 – LIS-16).
//!
//! What Cloudly refuses or fails to answer is asked again with a bounded backoff; what cannot succeed
//! ends the start by name.

use std::net::TcpListener;

use coreflow_ipc::{backoff::Backoff, messages::relayd::FromRelayd, now::Clock, typedrequest::Body};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::sleep,
};
use tracing::{info, warn};

use crate::{
    certificate::Loaded,
    cluster::{self, Origin, Published, Served},
    constants::{RECONNECT_FIRST, RECONNECT_LONGEST},
    contract::cluster::CertificateAnswer,
    core::{CallFailure, Endpoint, OwnCall},
    refusals::BLOCK_INVALID,
    supervisor::Supervisor,
};

/// A read for the core, with who waits for its answer.
pub struct ReadRequest {
    /// What is read.
    pub call: OwnCall,
    /// Who waits.
    pub answer: oneshot::Sender<Result<Body, CallFailure>>,
}

/// What the start leads to.
pub enum Started {
    /// The cluster's document was read; comes before everything else.
    Document(Served),
    /// The listener may accept.
    Listening {
        /// Its socket.
        listener: TcpListener,
        /// The certificate that it serves first.
        certificate: Loaded,
        /// What is registered of it.
        endpoint: Endpoint,
    },
    /// The cluster has no relay block: the relay is open without a listener (LIS-08).
    WithoutListener,
    /// The start cannot succeed.
    Failed(String),
}

/// Runs the start and reports each result.
pub async fn run(
    supervisor: Supervisor,
    reads: mpsc::Sender<ReadRequest>,
    dispatchable: watch::Receiver<bool>,
    started: mpsc::Sender<Started>,
    clock: Clock,
) {
    let mut start = Start { supervisor, reads, dispatchable, started, clock };
    if let Err(cause) = start.run().await {
        let _ = start.started.send(Started::Failed(cause)).await;
    }
}

struct Start {
    supervisor: Supervisor,
    reads: mpsc::Sender<ReadRequest>,
    dispatchable: watch::Receiver<bool>,
    started: mpsc::Sender<Started>,
    clock: Clock,
}

impl Start {
    async fn run(&mut self) -> Result<(), String> {
        let published = self.read(OwnCall::ClusterConfig, cluster::read).await;
        let _ = self.started.send(Started::Document(Served::new(published.clone()))).await;
        let origin = match published {
            Published::Relay(origin) => origin,
            Published::Nothing => {
                info!(
                    "the cluster has no relay block: its nodes target Cloudly directly, and no listener opens"
                );
                let _ = self.started.send(Started::WithoutListener).await;
                return Ok(());
            }
            Published::Invalid(reason) => return Err(format!("{BLOCK_INVALID}: {reason}")),
        };
        self.listen(origin).await
    }

    async fn listen(&mut self, origin: Origin) -> Result<(), String> {
        let facts = self.supervisor.ask_listener_facts(origin.to_string()).await?;
        origin.check_port(facts.bind_port)?;
        if !origin.names_port() {
            info!(origin = %origin, "the relay origin names no port; the bound one is not checked against it");
        }
        let domain = origin.host().to_owned();
        let call = OwnCall::Certificate { domain: domain.clone() };
        let read = |body: &Body| body.read::<CertificateAnswer>().map_err(|error| error.to_string());
        let answer = self.read(call, read).await;
        let certificate = Loaded::check(&answer.certificate, &domain, self.clock.now().wall)
            .map_err(|refused| refused.to_string())?;
        drop(answer);
        let (address, socket) = self.supervisor.ask_listener().await?;
        let listener = TcpListener::from(socket);
        let endpoint = Endpoint {
            node_id: facts.node_id,
            listen_address: address.ip().to_string(),
            listen_port: address.port(),
            origin,
            certificate: certificate.chain(),
            vpn: facts.vpn,
        };
        let _ = self.started.send(Started::Listening { listener, certificate, endpoint }).await;
        Ok(())
    }

    /// Reads until Cloudly answers with what `parse` can read.
    async fn read<T>(&mut self, call: OwnCall, parse: impl Fn(&Body) -> Result<T, String>) -> T {
        let mut backoff = Backoff::new(RECONNECT_FIRST, RECONNECT_LONGEST);
        let method = call.method();
        loop {
            // Closed only when the relay ends, and this task with it.
            let _ = self.dispatchable.wait_for(|dispatchable| *dispatchable).await;
            let (answer, answered) = oneshot::channel();
            let _ = self.reads.send(ReadRequest { call: call.clone(), answer }).await;
            let why = match answered.await {
                Ok(Ok(body)) => match parse(&body) {
                    Ok(parsed) => return parsed,
                    Err(reason) => format!("unusable: {reason}"),
                },
                Ok(Err(failure)) => failure.to_string(),
                Err(_) => "ended".to_owned(),
            };
            warn!(method, "a read of the start was {why}; it is made again");
            let what = format!("Cloudly to answer {method}");
            self.supervisor.tell(FromRelayd::Waiting { what }).await;
            sleep(backoff.advance()).await;
        }
    }
}
