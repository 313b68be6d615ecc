//! Which method is served where: the table of both routers (LIS-02, LIS-24, FWD-01, FWD-18, FWD-27, ING-35,
//! RET-05, VPN-14).

use std::time::Duration;

use crate::constants::{FORWARD_BUDGET, REGISTRATION_BUDGET};

/// A hold of DNS lease renewals, which Cloudly sends the relay (ESC-03).
pub const HOLD: &str = "holdRuntimeNetworkDnsLeaseRenewals";
/// The delivery of a DNS lease renewal to a node: by Cloudly, or by the escrow in an outage (ESC-31).
pub const RENEWAL: &str = "applyRuntimeNetworkDnsLeaseRenewal";

/// A network projection for a node, whose acknowledgement the escrow goes by (FWD-32).
pub const PROJECTION: &str = "applyRuntimeNetworkProjection";

/// The whole network of the managed VPN hub, which Cloudly sends the relay (VPN-14).
pub const APPLY_NETWORK: &str = "applyClusterVpnNetwork";

/// What a node's request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeMethod {
    /// `registerPalletRuntimeSession`: judged, and answered with a binding.
    Register,
    /// A request of a registered session.
    OfSession,
    /// A hold, which only Cloudly may send (LIS-22).
    Hold,
}

/// The ten methods that a node sends its controller, and one that is refused by a name of its own.
pub fn node_method(method: &str) -> Option<NodeMethod> {
    match method {
        "registerPalletRuntimeSession" => Some(NodeMethod::Register),
        "getRuntimeManagedVpnCredential"
        | "getRuntimeRegistryCredential"
        | "reportRuntimeNetworkProtection"
        | "reportRuntimeAssignmentObservation"
        | "reportRuntimeAssignmentTerminalReceipt"
        | "getRuntimeSecretRecipientState"
        | "beginRuntimeSecretRecipientEnrollment"
        | "completeRuntimeSecretRecipientEnrollment"
        | "getRuntimeSecretMaterial" => Some(NodeMethod::OfSession),
        HOLD => Some(NodeMethod::Hold),
        _ => None,
    }
}

impl NodeMethod {
    /// How long an answer to the node may take, from the arrival of its request.
    pub fn budget(self) -> Duration {
        match self {
            Self::Register => REGISTRATION_BUDGET,
            Self::OfSession | Self::Hold => FORWARD_BUDGET,
        }
    }
}

/// Whether Cloudly's `method` is carried down to the node that its session names.
pub fn is_push(method: &str) -> bool {
    matches!(method, "applyRuntimeAssignment" | "applyRuntimeNetworkSigningAuthority" | PROJECTION | RENEWAL)
}

/// What the cluster ingress asks, on the listener and router of the nodes (LIS-24, ING-35).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IngressMethod {
    /// `registerClusterIngress`: judged, and carried to Cloudly.
    Register,
    /// `getClusterIngressRouteTable`: answered on the bound connection alone.
    RouteTable,
}

/// The two methods of the ingress.
pub fn ingress_method(method: &str) -> Option<IngressMethod> {
    match method {
        "registerClusterIngress" => Some(IngressMethod::Register),
        "getClusterIngressRouteTable" => Some(IngressMethod::RouteTable),
        _ => None,
    }
}

/// What Cloudly dispatches to this relay for its ingress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IngressDispatch {
    /// `pushClusterRouteTable`: taken into custody.
    RouteTable,
    /// `getClusterTrafficStatistics`: carried to the bound ingress, both ways opaque.
    Statistics,
}

/// The two methods of Cloudly that are about the ingress. `coreflowGetTrafficStats` is gone (RET-06).
pub fn ingress_dispatch(method: &str) -> Option<IngressDispatch> {
    match method {
        "pushClusterRouteTable" => Some(IngressDispatch::RouteTable),
        "getClusterTrafficStatistics" => Some(IngressDispatch::Statistics),
        _ => None,
    }
}
