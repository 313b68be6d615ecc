//! Every wait, bound and number of relayd, each with its unit and where it comes from.

use std::time::Duration;

use coreflow_ipc::messages::pulls::{EXCHANGES, WAITING_STREAMS};

/// The contract release that this build implements and offers (PROT-01).
pub const RELEASE: &str = "33.1.0";
/// Oldest Cloudly that the session admits.
pub const OLDEST_CLOUDLY: &str = "32.0.0";
/// Oldest Pallet node (PROT-10).
pub const OLDEST_PALLET: &str = "32.10.1";
/// Oldest cluster ingress (PROT-11).
pub const OLDEST_INGRESS: &str = "32.0.0";

/// `protocol.refusedOfferRetryIntervalMs`: a refused offer is made again (PROT-28).
pub const REFUSED_OFFER_RETRY: Duration = Duration::from_millis(300_000);

/// A node registration waits this long for a Cloudly session (FWD-07).
pub const REGISTRATION_WAIT: Duration = Duration::from_millis(5_000);
/// A node registration is answered within this time of its arrival, the wait included (FWD-08).
pub const REGISTRATION_BUDGET: Duration = Duration::from_secs(9);
/// Every other forward to Cloudly (FWD-09).
pub const FORWARD_BUDGET: Duration = Duration::from_secs(8);
/// A push to a node (FWD-21).
pub const PUSH_BUDGET: Duration = Duration::from_secs(8);
/// A call to the ingress: a hint, or its traffic statistics (ING-29).
pub const INGRESS_CALL_BUDGET: Duration = Duration::from_secs(8);
/// `retryAfterMs` of this relay's own refusals of an ingress (ING-32, ING-33, ING-34).
pub const INGRESS_RETRY_AFTER: Duration = Duration::from_millis(5_000);
/// The relay's own calls on its session; Cloudly bounds its side at the same (FWD-37).
pub const CALL_BUDGET: Duration = Duration::from_secs(10);
/// From the arrival of a network to its answer, a wait for those before it included (VPN-34): below Cloudly's own
/// bound (FWD-37), so that it hears why.
pub const NETWORK_BUDGET: Duration = Duration::from_secs(8);
/// Networks that may wait for their validation, and as many validated ones for the one that the hub is being given.
pub const NETWORKS_WAITING: usize = 4;
/// Bytes of the networks that wait for their validation; one largest message always fits.
pub const NETWORKS_BYTES: usize = 128 << 20;
/// A read of the network that brought no decision is made again; a new link causes a read at most as often.
pub const NETWORK_RETRY: Duration = Duration::from_secs(30);
/// A read of the route table that failed is made again, while the session stands and Cloudly pushes none (ING-11).
pub const ROUTE_TABLE_RETRY: Duration = Duration::from_secs(30);
/// So long a hub is advertised whose link is gone: one between two that live is made anew within it.
pub const HUB_KEY_HOLD: Duration = Duration::from_secs(3);
/// So long the first registration waits for the key of a configured hub (VPN-41).
pub const HUB_KEY_WAIT: Duration = Duration::from_secs(3);
/// A key that changes again is registered after so long, doubled with each change (VPN-42).
pub const HUB_CHANGE_FIRST: Duration = Duration::from_secs(1);
/// Longest of these waits; a key that stood as long beyond its wait starts them over.
pub const HUB_CHANGE_LONGEST: Duration = Duration::from_secs(60);
/// So long a vpnd that said hello has for its key and what it holds.
pub const STANDING_BUDGET: Duration = Duration::from_secs(5);
/// What vpnd said that may wait for the core.
pub const HUB_QUEUE: usize = 16;
/// A registration whose call failed is sent again, while the session stands.
pub const REGISTRATION_RETRY: Duration = Duration::from_secs(30);
/// How often a request is sent again because its answer asked for it.
pub const RETRIES: u8 = 3;

/// First wait before Cloudly is dialled again (SES-09).
pub const RECONNECT_FIRST: Duration = Duration::from_millis(500);
/// Longest wait before Cloudly is dialled again (SES-09).
pub const RECONNECT_LONGEST: Duration = Duration::from_secs(60);
/// A session that stood this long starts the backoff over.
pub const SESSION_PROVEN: Duration = Duration::from_secs(20);
/// Resolving, TCP, TLS and upgrade of the session together.
pub const DIAL_BUDGET: Duration = Duration::from_secs(15);
/// Longest lead of an identity renewal before the identity ends (SES-08).
pub const RENEWAL_LEAD: Duration = Duration::from_secs(300);
/// Shortest wait before an identity is renewed, however short its life or wrong this host's clock is.
pub const RENEWAL_SHORTEST: Duration = Duration::from_secs(1);
/// An ask of the supervisor that needs the network.
pub const ASK_BUDGET: Duration = Duration::from_secs(15);
/// Silence on the Cloudly session after which a ping is sent, and then after which it is closed.
pub const SESSION_PING: Duration = Duration::from_secs(20);
/// Silence on a node's socket after which a ping is sent, and then after which it is closed.
pub const NODE_PING: Duration = Duration::from_secs(45);

/// Longest lead of a certificate's renewal before its end (XTR-12); shorter-lived ones have a third of
/// their time.
pub const CERTIFICATE_LEAD_LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// First wait before a certificate is asked for again, and every one after its end (XTR-12).
pub const CERTIFICATE_RETRY_FIRST: Duration = Duration::from_secs(60);
/// Longest wait before a certificate is asked for again (XTR-12).
pub const CERTIFICATE_RETRY_LONGEST: Duration = Duration::from_secs(3600);
/// Shortest wait before a certificate is asked for again, however near its end is.
pub const CERTIFICATE_RETRY_SHORTEST: Duration = Duration::from_secs(5);

/// Spacing of the closes that make nodes register again (OUT-06).
pub const RECARRY_SPACING: Duration = Duration::from_millis(75);
/// All of these closes fit into this window (OUT-07).
pub const RECARRY_WINDOW: Duration = Duration::from_secs(5);

/// Largest message from a node or an ingress, in bytes.
pub const NODE_MESSAGE_LIMIT: usize = 16 << 20;
/// Largest message on a socket that no node or ingress is carried on yet, in bytes: a registration. Anybody
/// can hold such a socket, and what is unfinished on it is in memory.
pub const UNPROVEN_MESSAGE_LIMIT: usize = 256 << 10;
/// Longest frame to a node, in bytes: a TLS record. A longer message is sent in several, so that a socket
/// that once carried a large push keeps no buffer of that size.
pub const NODE_FRAME: usize = 16 << 10;
/// Longest frame to Cloudly, in bytes. A longer message is sent in several, each of which has
/// [`SESSION_PING`] to be taken: an uplink of 26 kbit/s is enough.
pub const CLOUDLY_FRAME: usize = 64 << 10;
/// Largest message from Cloudly, in bytes.
pub const CLOUDLY_MESSAGE_LIMIT: usize = 100 << 20;
/// Messages that may wait for one node socket to take them: every answer that may be due at once, and as many
/// pushes and refusals beside them.
pub const NODE_QUEUE: usize = 4 * NODE_IN_FLIGHT;
/// Bytes that may wait for one node socket to take them; one largest push always fits.
pub const NODE_QUEUE_BYTES: usize = 104 << 20;
/// Messages that may wait for the Cloudly socket: more than [`FORWARDS_BYTES`] admits, so that the bytes
/// are the bound, also when ten thousand nodes register at once.
pub const CLOUDLY_QUEUE: usize = 1 << 20;
/// Bytes that may wait for the Cloudly socket.
pub const CLOUDLY_QUEUE_BYTES: usize = 256 << 20;
/// Events that may wait for the core.
pub const CORE_QUEUE: usize = 4096;
/// Events of the peers, Cloudly's and the nodes' each, that are taken in one go.
pub const EVENTS_AT_ONCE: usize = 32;
/// Requests of one node that may be in flight to Cloudly.
pub const NODE_IN_FLIGHT: usize = 256;
/// Bytes of one node's requests that may be in flight to Cloudly; one largest message always fits.
pub const NODE_IN_FLIGHT_BYTES: usize = 32 << 20;
/// Requests of one socket without a carried node that may be in flight to Cloudly.
pub const STRANGER_IN_FLIGHT: usize = 8;
/// Bytes of them.
pub const STRANGER_IN_FLIGHT_BYTES: usize = 1 << 20;
/// Bytes of all such sockets together, out of [`FORWARDS_BYTES`]: ten thousand nodes that register at once
/// fit, and no stranger takes what carried nodes have.
pub const STRANGERS_BYTES: usize = 32 << 20;
/// What a forward costs beside its body: the envelope around it, in bytes.
pub const FORWARD_OVERHEAD: usize = 256;
/// Bytes of all nodes' requests that may be in flight to Cloudly: half of what may wait for its socket,
/// so that no number of nodes can fill that.
pub const FORWARDS_BYTES: usize = CLOUDLY_QUEUE_BYTES / 2;
/// Largest body of an ingress registration that is carried to Cloudly, in bytes.
pub const INGRESS_REGISTRATION_BYTES: usize = 64 << 10;
/// Ingress registrations that may be in flight to Cloudly, one for each connection: with the forwards they
/// leave room in what may wait for its socket.
pub const INGRESS_REGISTRATIONS: usize = 1024;
/// Traffic statistics that may be asked of the ingress at once; a page is at most one message.
pub const INGRESS_QUESTIONS: usize = 16;
/// Bytes of nodes' messages that may wait for the core; beyond it their sockets wait.
pub const NODE_INBOUND_BYTES: usize = 64 << 20;
/// How long a socket stays open after its node, or the ingress, registered on another one.
pub const SUPERSEDED_GRACE: Duration = Duration::from_secs(30);
/// Statements of readiness at once, and then one each second: a peer's offer is cheap to make.
pub const READINESS_BURST: u32 = 8;
/// Lines about one hop's refused offers: at most one in this time.
pub const OFFER_LINES: Duration = Duration::from_secs(10);
/// Longest time without a look at the clocks: a jump of the wall clock is noticed within it.
pub const CLOCK_LOOK: Duration = Duration::from_secs(30);
/// Descriptors that the listener leaves to the session, its dials, the links and what comes and goes.
pub const DESCRIPTORS_KEPT: usize = 256;
/// Node sockets that may be open at once, where the limit of open files has room for them.
pub const NODE_SOCKETS: usize = 20_000;
/// Connections that may be on their way to their first request or upgrade at once.
pub const HANDSHAKES: usize = 2048;
/// Connections that may pull at once.
pub const PULL_CONNECTIONS: usize = 1024;
/// TLS, and a first request or the upgrade, together.
pub const CONNECTION_BUDGET: Duration = Duration::from_secs(10);
/// So long a connection on its way keeps its place against a newcomer of the same address: TLS and the
/// upgrade are four round trips.
pub const CONNECTION_GRACE: Duration = Duration::from_secs(1);
/// A node's socket that is not carried by then is closed; it counts while there is a session to register on
/// (OUT-09). A registration takes [`REGISTRATION_BUDGET`] at most, and a node may try more than once.
pub const UNREGISTERED: Duration = Duration::from_secs(30);
/// So long a socket that is not carried keeps its place against a newcomer: one registration.
pub const NODE_GRACE: Duration = REGISTRATION_BUDGET;
/// The head of each further request on a connection, and an answer to a ping of h2.
pub const HEAD_BUDGET: Duration = Duration::from_secs(10);
/// A link to another worker that ended is asked for anew after so long.
pub const LINK_AGAIN: Duration = Duration::from_secs(1);
/// Requests to pulld that may wait for their sending, with what belongs to them.
pub const PULL_QUEUE: usize = 2 * EXCHANGES + WAITING_STREAMS;
/// Longest wait for the head of the registry's answer: pulld's own bounds, of a connection and of the
/// answer, and some more.
pub const PULL_ANSWER_BUDGET: Duration = Duration::from_secs(45);
/// Bytes of a pull's body that are read at once.
pub const PULL_CHUNK: usize = 64 << 10;
/// Bytes of a refused request's body that are read before it is answered, and for how long.
pub const REFUSED_BODY: usize = 64 << 10;
/// See [`REFUSED_BODY`].
pub const REFUSED_BODY_BUDGET: Duration = Duration::from_secs(2);
/// A connection whose node takes nothing of a pull's body for so long is closed.
pub const PULL_STALL: Duration = Duration::from_secs(30);
/// How often a body on its way is looked at for what its node has taken of it.
pub const PULL_LOOK: Duration = Duration::from_secs(5);
/// A connection of pulls on which nothing moves for so long is closed.
pub const PULL_IDLE: Duration = Duration::from_secs(60);
/// Closing a socket in order.
pub const CLOSE_BUDGET: Duration = Duration::from_secs(2);

/// `maximumEscrowedRenewals`: renewals of one run (ESC-09).
pub const ESCROWED_RENEWALS: usize = 32;
/// `maximumEscrowHorizonMs`: how far a run may reach, in milliseconds from its arrival (ESC-10).
pub const ESCROW_HORIZON_MS: u64 = 14_400_000;
/// Longest window of a renewal, in milliseconds (ESC-60).
pub const LEASE_WINDOW_MS: u64 = 900_000;
/// `defaultLeaseEscrowTiming`: how long a window has been open before it is offered, in milliseconds
/// (ESC-28).
pub const ADMISSION_MARGIN_MS: u64 = 30_000;
/// A refused or failed delivery of a renewal is made again (ESC-34).
pub const OFFER_REPEAT: Duration = Duration::from_secs(30);
/// Longest body of a hold, in bytes, and so the most that the renewals of one run take: 32 renewals of
/// 2 KiB, where a signature takes 88 bytes.
pub const ESCROW_HOLD_BYTES: usize = 64 << 10;
/// Holds that may wait for their validation; a further one has the first applied at once.
pub const ESCROW_HOLDS: usize = 64;
/// Runs that are held at once: as many as nodes can be carried (ESC-01).
pub const ESCROWED_RUNS: usize = NODE_SOCKETS;
/// The wall clock moved by more than this against the monotonic one: every run is looked at anew.
pub const CLOCK_JUMP: Duration = Duration::from_secs(1);
