//! The peers themselves, and what each command has them do.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use super::Command;
use crate::authority::Authority;
use crate::cloudly::{Cloudly, Settings, VpnNetwork};
use crate::dial::Target;
use crate::pallet::{PalletNode, Setup};
use crate::puller::pull;
use crate::registry::{Registry, reply};
use crate::tunnel::NodeKey;
use crate::waiting::within;

/// The relay's name in its origin.
const HOST: &str = "relay.localhost.test";
/// The node.
const NODE: &str = "node-1";
/// What a node sends for its pulls, which is the registry's to judge.
const PULL_TOKEN: &str = "Bearer pull-token-of-node-1-0123456789abcdef";
/// How long a relay has until it serves: longer than a worker that hangs stays unnoticed, which is 20 s.
const SERVED: Duration = Duration::from_secs(40);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// The peers.
pub(super) struct Stand {
    authority: Authority,
    cloudly: Cloudly,
    setup: Setup,
    node: PalletNode,
    network: VpnNetwork,
    is_away: bool,
    /// Every bearer that there was, and the lines of the listener's key.
    secrets: Vec<String>,
}

impl Stand {
    pub(super) async fn start(relay_port: u16, cloudly_port: u16) -> Self {
        let authority = Authority::new();
        let certificate = authority.issue(&[HOST]);
        let mut settings = Settings::for_origin(&format!("https://{HOST}:{relay_port}"));
        let mut secrets = vec![settings.bearer.clone(), PULL_TOKEN.to_owned()];
        secrets.extend(settings.nodes.values().cloned());
        // The first and the last line of a PEM text are its labels.
        let key = certificate.key_pem.lines().filter(|line| !line.starts_with("--"));
        secrets.extend(key.map(str::to_owned));
        settings.certificates.insert(HOST.to_owned(), certificate);
        let cloudly = Cloudly::start_on(cloudly_port, &authority, settings).await;
        let registry = Registry::default();
        registry.answer(reply("200 OK", &[], b"{}"));
        cloudly.pulls_from(&registry);
        let setup = Setup::new(
            Target {
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, relay_port)),
                server_name: HOST.to_owned(),
                tls: authority.client_config(&["http/1.1"]),
            },
            NODE,
        );
        let network = VpnNetwork::of([(NODE, NodeKey::default().public().as_str())]);
        Self {
            authority,
            cloudly,
            node: PalletNode::start(setup.clone()),
            setup,
            network,
            is_away: false,
            secrets,
        }
    }

    /// Writes what the relay has to trust, and what it has to be given.
    pub(super) fn write_facts(&self, folder: &Path) -> io::Result<()> {
        self.authority.write_ca(&folder.join("authorities.pem"))?;
        std::fs::write(folder.join("bearer"), self.cloudly.change(|settings| settings.bearer.clone()))
    }

    pub(super) async fn perform(&mut self, command: Command) -> Result<String, String> {
        match command {
            Command::Served => self.served().await.map(|()| String::new()),
            Command::Pulled => self.pulled().await.map(|()| String::new()),
            Command::Networked => self.networked().await.map(|()| String::new()),
            Command::Rotate(bearer) => {
                self.cloudly.rotate_credential(&bearer);
                self.secrets.push(bearer);
                Ok(String::new())
            }
            Command::Cut => {
                self.cloudly.drop_connections();
                Ok(String::new())
            }
            Command::Away => {
                self.cloudly.go_away().await;
                self.is_away = true;
                Ok(String::new())
            }
            Command::Back if !self.is_away => Ok(String::new()),
            Command::Back => {
                self.is_away = false;
                self.cloudly.come_back().await.map(|()| String::new()).map_err(|late| late.to_string())
            }
            Command::Exchanges => Ok(self.cloudly.exchanges().to_string()),
            Command::Ends => Ok(self.node.closes().len().to_string()),
            Command::Secrets => {
                let secrets = self.secrets.iter().cloned().chain(self.cloudly.issued_jwts());
                Ok(secrets.map(|secret| secret + "\n").collect())
            }
        }
    }

    /// A node that was refused for want of a session dials no more (FWD-35); its next process does.
    async fn served(&mut self) -> Result<(), String> {
        let mut why = "nothing was tried".to_owned();
        let serving = async {
            loop {
                if self.node.ended().is_some() {
                    self.node = PalletNode::start(self.setup.clone());
                }
                match self.both_ways().await {
                    Ok(()) => return,
                    Err(failure) => why = failure,
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let served = within(SERVED, "node that is served", serving).await;
        served.map_err(|late| format!("{late}: {why}"))
    }

    /// One request of the node, and one of Cloudly's to it.
    async fn both_ways(&self) -> Result<(), String> {
        let binding = self.node.binding().ok_or("the node has no binding")?;
        let body = format!(r#"{{"session":{binding}}}"#);
        let answer = self.node.request("getRuntimeRegistryCredential", &body).await;
        answer.map_err(|failure| failure.to_string())?.outcome().map_err(|refusal| refusal.text)?;
        let body = format!(r#"{{"session":{binding},"assignment":{{"workload":"web","replicas":1}}}}"#);
        let answer = self.cloudly.push("applyRuntimeAssignment", &body).await;
        answer.map_err(|failure| failure.to_string())?.outcome().map_err(|refusal| refusal.text)?;
        Ok(())
    }

    async fn pulled(&self) -> Result<(), String> {
        let mut status = 0;
        let pulling = async {
            while status != 200 {
                tokio::time::sleep(PAUSE).await;
                let headers = [("authorization", PULL_TOKEN)];
                status = pull(&self.setup.target, "GET", "/v2/team/app/manifests/v1", &headers).await.status;
            }
        };
        let pulled = within(SERVED, "pull through the relay", pulling).await;
        pulled.map_err(|late| format!("{late}: the last status is {status}"))
    }

    /// Each try is a revision of its own: what a hub serves already is applied anew.
    async fn networked(&mut self) -> Result<(), String> {
        let mut why = "nothing was tried".to_owned();
        let applying = async {
            loop {
                self.network = self.network.clone().next();
                match self.cloudly.push_vpn_network(&self.network).await {
                    Ok(Ok(_)) => return,
                    Ok(Err(refusal)) => why = refusal.to_string(),
                    Err(failure) => why = failure.to_string(),
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let applied = within(SERVED, "network that the hub serves", applying).await;
        applied.map_err(|late| format!("{late}: {why}"))
    }
}
