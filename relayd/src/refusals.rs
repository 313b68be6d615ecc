//! Every refusal that this worker states or recognises, by name: the one table.
//!
//! A refusal's text is `<name>` or `<name>: <reason>`; a reader matches the part before `: `.

use coreflow_ipc::typedrequest::{
    Body, INTERNAL_ERROR, Outcome, PeerError, UNKNOWN_METHOD, plain_refusal, refusal,
};
use serde_json::json;

use crate::constants::INGRESS_RETRY_AFTER;

/// Two offers disagree (PROT-14).
pub const PROTOCOL_REFUSED: &str = "protocol-refused";
/// A request found no Cloudly session (FWD-10).
pub const SESSION_UNAVAILABLE: &str = "relay-session-unavailable";
/// A request is not of the socket's current session (FWD-13 – FWD-16).
pub const SESSION_FOREIGN: &str = "runtime-session-foreign";
/// A forward ran past its budget (FWD-08, FWD-09, FWD-21).
pub const FORWARD_TIMEOUT: &str = "relay-forward-timeout";
/// A push for a node that is not carried (FWD-25).
pub const NODE_NOT_CONNECTED: &str = "relay-node-not-connected";
/// More requests in flight than a socket may have.
pub const TOO_MANY_IN_FLIGHT: &str = "relay-too-many-in-flight";
/// A hold on the node listener (LIS-22).
pub const ESCROW_CLOUDLY_ONLY: &str = "escrow-cloudly-only";
/// A hold that fails its validation; states the path (ESC-08 – ESC-10).
pub const ESCROW_RUN_INVALID: &str = "escrow-run-invalid";
/// A hold for a node that is not carried (ESC-11).
pub const ESCROW_NODE_NOT_CARRIED: &str = "escrow-node-not-carried";
/// A hold of another session than the node's (ESC-13 – ESC-15).
pub const ESCROW_RUN_FOREIGN_SESSION: &str = "escrow-run-foreign-session";
/// A run that is older than what is known of its projection (ESC-19, ESC-20).
pub const ESCROW_RUN_STALE: &str = "escrow-run-stale";
/// A run of a projection that cannot be ordered against the known one (ESC-23, ESC-24).
pub const ESCROW_RUN_UNORDERED: &str = "escrow-run-unordered";
/// A retired method (RET-02).
pub const RETIRED: &str = "coreflow-retired";
/// No desired state is replayed (XTR-03).
pub const DESIRED_STATE_REPLAY_UNSUPPORTED: &str = "relay-desired-state-replay-unsupported";
/// Network state is Cloudly's to sign (XTR-04).
pub const NETWORK_SIGNING_NOT_OWNED: &str = "relay-network-signing-not-owned";
/// The served nodes are not published (XTR-05).
pub const NODE_ROSTER_UNSUPPORTED: &str = "relay-node-roster-unsupported";
/// The credential was rotated away; the relay parks (REG-55).
pub const CREDENTIAL_STALE: &str = "relay-credential-generation-stale";
/// The node is not enrolled (REG-32).
pub const NODE_UNKNOWN: &str = "relay-node-unknown";
/// Nobody enabled a relay for the cluster (ESC-50).
pub const CLUSTER_NOT_ENABLED: &str = "relay-cluster-not-enabled";
/// The node belongs to another cluster (ESC-50).
pub const NODE_FOREIGN: &str = "relay-node-foreign";
/// The credential was not accepted, or Cloudly could not read its records (ESC-56).
pub const IDENTITY_UNVERIFIED: &str = "relay-identity-unverified";
/// An older registration arrived after a newer one (ESC-50).
pub const SEQUENCE_NOT_ADVANCING: &str = "relay-sequence-not-advancing";

/// The relay block fails `validateClusterRelay` (LIS-09).
pub const BLOCK_INVALID: &str = "relay-block-invalid";
/// The origin names a port that is not the bound one (LIS-11).
pub const ORIGIN_PORT_FOREIGN: &str = "relay-origin-port-foreign";
/// The relay block changed while the relay runs (LIS-19).
pub const BLOCK_CHANGED: &str = "relay-block-changed";
/// A certificate that is not served (LIS-13 – LIS-16).
pub const CERTIFICATE_REFUSED: &str = "relay-certificate-refused";
/// An upgrade at `/` that is not the protocol's (LIS-03).
pub const UPGRADE_REFUSED: &str = "relay-upgrade-refused";
/// A pull by another method than GET and HEAD.
pub const PULL_METHOD_REFUSED: &str = "pull-method-refused";
/// A path that the listener does not serve (LIS-05).
pub const PULL_PATH_REFUSED: &str = "pull-path-refused";
/// An upgrade while as many nodes are connected as may.
pub const LISTENER_FULL: &str = "relay-listener-full";
/// A pull on a connection beyond those that may pull at once.
pub const PULL_CONNECTIONS_FULL: &str = "pull-connections-full";
/// A pull whose headers are more or longer than may cross (PULL-23).
pub const PULL_HEADERS_REFUSED: &str = "pull-headers-refused";
/// A pull to which the registry gave no answer; states the class (PULL-26).
pub const PULL_REGISTRY_UNREACHABLE: &str = "pull-registry-unreachable";
/// A pull while no pull worker serves.
pub const PULL_WORKER_UNAVAILABLE: &str = "pull-worker-unavailable";

/// A route table failed `validateClusterRouteTable` (ING-09).
pub const ROUTE_TABLE_INVALID: &str = "cluster-route-table-invalid";
/// The table is asked for by another connection, or there is no ingress to ask (ING-28, ING-30).
pub const INGRESS_NOT_BOUND: &str = "cluster-ingress-not-bound";
/// An ingress is not registered, with a reason and when to come again (ING-31).
pub const INGRESS_REGISTRATION_REFUSED: &str = "cluster-ingress-registration-refused";
/// A request of the bound ingress is not the contract's.
pub const INGRESS_REQUEST_INVALID: &str = "cluster-ingress-request-invalid";
/// A network failed `validateClusterVpnNetwork`, or its body is not the contract's (VPN-07).
pub const NETWORK_INVALID: &str = "vpn-network-invalid";
/// A network of another authority, or one whose control prefix moved (VPN-20, VPN-21).
pub const NETWORK_AUTHORITY_FOREIGN: &str = "vpn-network-authority-foreign";
/// A network that the hub has passed (VPN-22).
pub const NETWORK_REVISION_STALE: &str = "vpn-network-revision-stale";
/// This relay has no hub (VPN-45).
pub const HUB_ABSENT: &str = "vpn-hub-absent";
/// No vpnd serves: why a network is not applied (VPN-29).
pub const HUB_UNAVAILABLE: &str = "vpn-hub-unavailable";
/// The hub did not take a network in time.
pub const HUB_TIMEOUT: &str = "vpn-hub-timeout";
/// As many networks wait for the hub as may.
pub const HUB_BUSY: &str = "vpn-hub-busy";
/// What the log says in the place of a peer's refusal that has no name.
pub const UNNAMED: &str = "a refusal without a name";

/// The refusals of a registration that Cloudly states by name (REG-26).
pub const REGISTRATION: [&str; 6] = [
    CLUSTER_NOT_ENABLED,
    NODE_FOREIGN,
    NODE_UNKNOWN,
    IDENTITY_UNVERIFIED,
    SEQUENCE_NOT_ADVANCING,
    CREDENTIAL_STALE,
];

/// The name in a peer's refusal, where it looks like one: a peer's other words are not repeated.
pub fn refusal_name(error: &Body) -> String {
    let error = PeerError::of(error);
    let name = error.name();
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
    let kebab = (1..=64).contains(&name.len()) && name.bytes().all(plain);
    let known = kebab || [INTERNAL_ERROR, UNKNOWN_METHOD].contains(&name);
    if known { name } else { UNNAMED }.to_owned()
}

/// A node's registration waited and found no session; states the wait that was granted.
pub fn session_unavailable(waited_ms: u128) -> Outcome {
    plain_refusal(&format!("{SESSION_UNAVAILABLE}: no Cloudly session after waiting {waited_ms} ms"))
}

/// What of a request's binding is not the socket's current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// Another socket registered the binding, or none did (FWD-13).
    Socket,
    /// The session was superseded, or the request states none (FWD-14).
    Session,
    /// The binding names another cluster (FWD-15).
    Cluster,
    /// The registration is older than the current one (FWD-16).
    Registration,
}

impl Foreign {
    /// The refusal that states it.
    pub fn refusal(self) -> Outcome {
        let which = match self {
            Self::Socket => "socket",
            Self::Session => "session",
            Self::Cluster => "cluster",
            Self::Registration => "registration",
        };
        plain_refusal(&format!("{SESSION_FOREIGN}: {which}"))
    }
}

/// A forward of `method` was not answered within its budget.
pub fn forward_timeout(method: &str, budget_ms: u128) -> Outcome {
    plain_refusal(&format!("{FORWARD_TIMEOUT}: {method} after {budget_ms} ms"))
}

/// A push for a node without a socket.
pub fn node_not_connected(node: &str) -> Outcome {
    plain_refusal(&format!("{NODE_NOT_CONNECTED}: node {node} is not connected to this relay"))
}

/// A route table is invalid at `path`, which quotes no material (ING-10).
pub fn route_table_invalid(path: &str) -> Outcome {
    plain_refusal(&format!("{ROUTE_TABLE_INVALID}: {path}"))
}

/// A network is invalid at `path`, which quotes no value (VPN-07).
pub fn network_invalid(path: &str) -> Outcome {
    plain_refusal(&format!("{NETWORK_INVALID}: {path}"))
}

/// Why this relay itself refuses an ingress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IngressRefused {
    /// There is no Cloudly session, or the registration cannot be carried to Cloudly (ING-32, ING-33).
    NotReady,
    /// `validateClusterIngressRegistration` refused the body (ING-34).
    RegistrationInvalid,
}

impl IngressRefused {
    /// `error.data.reason`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotReady => "not-ready",
            Self::RegistrationInvalid => "registration-invalid",
        }
    }

    /// The refusal, in the shape of Cloudly's own.
    pub fn refusal(self) -> Outcome {
        let reason = self.reason();
        let retry = u64::try_from(INGRESS_RETRY_AFTER.as_millis()).expect("a few seconds fit");
        let data = json!({ "reason": reason, "retryAfterMs": retry });
        refusal(&format!("{INGRESS_REGISTRATION_REFUSED}: {reason}"), data)
    }
}
