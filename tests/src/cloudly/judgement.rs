//! What Cloudly knows, and how it judges a request by itself. No socket, no task, no wait.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::corestore::Corestore;
use super::pulls::Pulls;
use super::record::Call;
use super::runtime::Issue;
use super::script::Script;
use super::standing::StandingRelay;
use super::{Connections, Settings, SigningAuthority, Stage};
use crate::authority::Authority;
use crate::carrier::{CallFailure, Carrier};
use crate::envelope::{Message, Outcome, Refusal, UNKNOWN_METHOD, random_hex, raw};
use crate::offer::Offer;

/// One WebSocket connection and what was registered on it. All of it ends with the connection
/// (OUT-01).
pub(super) struct Connection {
    pub(super) carrier: Carrier,
    /// The credential generation of the identity that registered a session; `None` before.
    pub(super) session: Option<u64>,
    last_sequence: Option<u64>,
    /// Whether a relay registration was accepted on it.
    pub(super) accepted: bool,
    /// The binding in force by node id.
    pub(super) bindings: BTreeMap<String, Issue>,
}

impl Connection {
    pub(super) fn new(carrier: Carrier) -> Self {
        Self { carrier, session: None, last_sequence: None, accepted: false, bindings: BTreeMap::new() }
    }

    pub(super) fn binding_of(&self, node: &str) -> Option<String> {
        self.bindings.get(node).map(|issue| issue.binding.to_string())
    }
}

pub(super) struct Identity {
    expires_at: u64,
    credential_generation: u64,
}

/// Everything Cloudly knows.
pub(super) struct State {
    pub(super) authority: Authority,
    pub(super) settings: Settings,
    /// Who signs for the nodes' networks.
    pub(super) signing: SigningAuthority,
    pub(super) script: Script,
    /// Who serves what is the registry's; nobody until a test says so.
    pub(super) pulls: Option<Pulls>,
    pub(super) calls: Vec<Call>,
    pub(super) strays: Vec<String>,
    pub(super) unreadable: Vec<String>,
    pub(super) connections: Connections,
    pub(super) connections_seen: u64,
    /// How often a dial got as far as each stage.
    pub(super) reached: BTreeMap<Stage, u64>,
    /// By jwt; jwts rise with each issue.
    pub(super) identities: BTreeMap<String, Identity>,
    /// Acceptances so far, which is also the registration record's generation.
    pub(super) acceptances: u64,
    /// The relay that stands for the cluster (REG-65).
    pub(super) standing: Option<StandingRelay>,
    /// Bindings issued so far by node id.
    pub(super) issues: BTreeMap<String, u64>,
    /// Answers that wait for the next answer of their method.
    pub(super) held: BTreeMap<String, Vec<(Carrier, String)>>,
    pub(super) deliveries: Vec<(String, Result<Message, CallFailure>)>,
    /// Ingress registrations accepted so far by node id.
    pub(super) ingress_generations: BTreeMap<String, u64>,
    /// What has to do with Corestore.
    pub(super) corestore: Corestore,
}

impl State {
    pub(super) fn new(authority: Authority, settings: Settings) -> Self {
        Self {
            authority,
            settings,
            signing: SigningAuthority::generate("signing-authority-1", 1),
            script: Script::default(),
            pulls: None,
            calls: Vec::new(),
            strays: Vec::new(),
            unreadable: Vec::new(),
            connections: BTreeMap::new(),
            connections_seen: 0,
            reached: BTreeMap::new(),
            identities: BTreeMap::new(),
            acceptances: 0,
            standing: None,
            issues: BTreeMap::new(),
            held: BTreeMap::new(),
            deliveries: Vec::new(),
            ingress_generations: BTreeMap::new(),
            corestore: Corestore::default(),
        }
    }

    pub(super) fn registered_carrier(&self) -> Option<Carrier> {
        let registered = |open: &&Connection| open.session.is_some();
        self.connections.values().rev().find(registered).map(|open| open.carrier.clone())
    }

    pub(super) fn carriers(&self) -> Vec<Carrier> {
        self.connections.values().map(|open| open.carrier.clone()).collect()
    }

    pub(super) fn cut_all(&mut self) {
        for open in std::mem::take(&mut self.connections).into_values() {
            open.carrier.cut();
        }
    }

    /// Cloudly's answer by itself. `connection` is `None` on the HTTP exchange, which serves one
    /// method; the socket serves all others.
    pub(super) fn judge(&mut self, connection: Option<u64>, message: &Message) -> Outcome {
        let body: Value = serde_json::from_str(message.request()).unwrap_or_default();
        let Some(number) = connection else {
            return match message.method.as_str() {
                "getIdentityByToken" => self.exchange(&body),
                _ => Err(Refusal::new(UNKNOWN_METHOD)),
            };
        };
        match message.method.as_str() {
            "registerCloudlyClientSession" => self.register_session(number, &body),
            "registerClusterRelay" => self.register_relay(number, &body),
            "getClusterConfig" => {
                self.verify(&body["identity"])?;
                Ok(raw(&self.config_text()))
            }
            "getCertificateForDomain" => self.certificate(&body),
            "getClusterRouteTable" => self.read_routes(number, &body),
            "registerClusterIngress" => self.register_ingress(number, &body),
            "getClusterVpnNetwork" => self.read_vpn_network(number, &body),
            "registerPalletRuntimeSession" => self.register_node(number, message, &body),
            method if super::runtime::CARRIED.contains(&method) => self.carried(number, message, &body),
            method => self.judge_corestore(number, method, &body),
        }
    }

    fn exchange(&mut self, body: &Value) -> Outcome {
        if body["token"].as_str() != Some(self.settings.bearer.as_str()) {
            return Err(Refusal::new("identity-token-refused"));
        }
        let jwt = format!("jwt-{:06}-{}", self.identities.len() + 1, random_hex::<16>());
        let lifetime = u64::try_from(self.settings.identity_lifetime.as_millis()).unwrap_or(u64::MAX);
        let expires_at = self.now_ms().saturating_add(lifetime);
        let credential_generation = self.settings.credential_generation;
        self.identities.insert(jwt.clone(), Identity { expires_at, credential_generation });
        Ok(raw(&json!({"identity": {
            "name": "relay of the test cluster",
            "userId": format!("user-{}", self.settings.cluster_id),
            "type": self.settings.identity_type,
            "role": self.settings.identity_role,
            "expiresAt": expires_at,
            "jwt": jwt,
        }})
        .to_string()))
    }

    /// Cloudly's clock, Unix milliseconds.
    pub(super) fn now_ms(&self) -> u64 {
        now_ms().saturating_add_signed(self.settings.clock_ahead_ms)
    }

    /// The credential generation of a valid identity.
    fn verify(&self, identity: &Value) -> Result<u64, Refusal> {
        let issued = identity["jwt"].as_str().and_then(|jwt| self.identities.get(jwt));
        match issued {
            Some(issued) if issued.expires_at > self.now_ms() => Ok(issued.credential_generation),
            Some(_) => Err(Refusal::new("identity-unverified: expired")),
            None => Err(Refusal::new("identity-unverified: never issued")),
        }
    }

    /// The offer comes first, before anything else of the body is read (PROT-34).
    fn judge_offer(&self, body: &Value) -> Result<(), Refusal> {
        let received = Offer::read(body.get("protocol"));
        if received.as_ref().is_some_and(|peer| self.settings.offer.serves(peer)) {
            return Ok(());
        }
        let (text, data) = self.settings.offer.refusal("cloudlyClient", received.as_ref());
        Err(Refusal { text, data })
    }

    fn register_session(&mut self, number: u64, body: &Value) -> Outcome {
        self.judge_offer(body)?;
        exact(body, &["clientType", "identity", "protocol"], &[], "session")?;
        if body["clientType"] != "coreflow" {
            return Err(Refusal::new("session-invalid: clientType"));
        }
        let generation = self.verify(&body["identity"])?;
        if let Some(open) = self.connections.get_mut(&number) {
            open.session = Some(generation);
        }
        Ok(raw(&json!({"protocol": self.settings.offer.json()}).to_string()))
    }

    fn register_relay(&mut self, number: u64, body: &Value) -> Outcome {
        self.judge_offer(body)?;
        // XTR-07: there is no place for the nodes that it serves.
        exact(body, &["protocol", "registrationSequence", "relay"], &[], "registration")?;
        let relay = &body["relay"];
        exact(relay, &["listenAddress", "listenPort", "nodeId", "version"], &["vpnHub"], "registration")?;
        if let Some(hub) = relay.get("vpnHub") {
            exact(hub, &["address", "publicKey", "quicPort"], &[], "registration")?;
        }
        let unverified = || Refusal::new("relay-identity-unverified");
        let open = self.connections.get_mut(&number).ok_or_else(unverified)?;
        let authenticated = open.session.ok_or_else(unverified)?;
        if self.settings.records_unreadable {
            return Err(unverified());
        }
        let Some(sequence) = body["registrationSequence"].as_u64() else {
            return Err(Refusal::new("registration-invalid: registrationSequence"));
        };
        if open.last_sequence.is_some_and(|last| sequence <= last) {
            return Err(Refusal::new("relay-sequence-not-advancing"));
        }
        open.last_sequence = Some(sequence);
        if authenticated != self.settings.credential_generation {
            return Err(Refusal::new("relay-credential-generation-stale"));
        }
        if self.settings.relay_block.is_none() {
            return Err(Refusal::new("relay-cluster-not-enabled"));
        }
        let node = relay["nodeId"].as_str().unwrap_or_default();
        if self.settings.foreign_nodes.contains(node) {
            return Err(Refusal::new("relay-node-foreign"));
        }
        if node != self.settings.relay_node && !self.settings.nodes.contains_key(node) {
            return Err(Refusal::new("relay-node-unknown"));
        }
        let address: Option<Ipv4Addr> = relay["listenAddress"].as_str().and_then(|text| text.parse().ok());
        let publishable = |address: Ipv4Addr| !(self.settings.refuses_loopback && address.is_loopback());
        let Some(address) = address.filter(|address| publishable(*address)) else {
            return Err(Refusal::new("relay-bind-unpublishable"));
        };
        self.standing = Some(StandingRelay::of(relay, address, number));
        open.accepted = true;
        self.acceptances += 1;
        Ok(raw(&json!({
            "protocol": self.settings.offer.json(),
            "origin": self.settings.origin,
            "credential": {"id": self.settings.credential_id, "generation": authenticated},
            "registration": {"id": self.settings.registration_id, "generation": self.acceptances},
        })
        .to_string()))
    }

    fn certificate(&mut self, body: &Value) -> Outcome {
        self.verify(&body["identity"])?;
        let domain = body["domainName"].as_str().unwrap_or_default().to_owned();
        if body["type"] != "ssl" || domain.is_empty() {
            return Err(Refusal::new("certificate-request-invalid"));
        }
        let authority = &self.authority;
        let issued =
            self.settings.certificates.entry(domain.clone()).or_insert_with(|| authority.issue(&[&domain]));
        Ok(raw(&json!({"certificate": {
            "id": format!("certificate-{domain}"),
            "domainName": domain,
            "created": issued.created,
            "validUntil": issued.valid_until,
            "privateKey": issued.key_pem,
            "publicKey": issued.chain_pem,
            "csr": "",
        }})
        .to_string()))
    }
}

/// An object with these members and no other; a refusal names the first that is wrong.
pub(crate) fn exact(value: &Value, required: &[&str], optional: &[&str], what: &str) -> Result<(), Refusal> {
    let wrong = |key: &str| Err(Refusal::new(format!("{what}-invalid: {key}")));
    let Some(members) = value.as_object() else { return wrong("not an object") };
    if let Some(missing) = required.iter().find(|key| !members.contains_key(**key)) {
        return wrong(missing);
    }
    let known = |key: &&String| !required.contains(&key.as_str()) && !optional.contains(&key.as_str());
    match members.keys().find(known) {
        Some(unknown) => wrong(unknown),
        None => Ok(()),
    }
}

fn now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    u64::try_from(since_epoch.as_millis()).expect("the clock is before the year 500 million")
}
