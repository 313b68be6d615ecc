//! Every wait, bound and number of vpnd, each with its unit and where it comes from.

use std::{ops::RangeInclusive, time::Duration};

/// Name of the tunnel protocol and its version: the ALPN of the TLS handshake, and the beginning of the
/// Noise prologue (VPN-44).
pub const PROTOCOL: &[u8] = b"coreflow-vpn/1";
/// Version in the payload of message 1.
pub const PROTOCOL_VERSION: u16 = 1;
/// Label of the TLS exporter by which the Noise handshake is bound to its TLS session.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-coreflow-vpn-1";
/// Name that a node hands its TLS library; it is neither sent nor verified.
pub const SERVER_NAME: &str = "coreflow-vpn";

/// Longest message on the control stream, in bytes, its length prefix not counted.
pub const LONGEST_CONTROL_MESSAGE: usize = 1024;

/// Inner MTU that a node is given at most, in bytes; a link that carries 1446 bytes of IPv4 carries it whole.
pub const INNER_MTU: u16 = 1380;
/// Inner MTU that a node is given at least, in bytes: QUIC and IPv6 within the tunnel need it.
pub const LEAST_INNER_MTU: u16 = 1280;

/// UDP payload that a connection starts with, in bytes; QUIC needs a path that carries it.
pub const LEAST_UDP_PAYLOAD: u16 = 1200;
/// UDP payload up to which a path is probed, in bytes: Ethernet less the headers of IPv6 and UDP.
pub const MOST_UDP_PAYLOAD: u16 = 1452;
/// Largest datagram that a peer has to take at least, in bytes: what a packet of [`LEAST_UDP_PAYLOAD`] carries, with
/// connection ids of the longest 20 bytes.
pub const LEAST_DATAGRAM: usize = 1150;
/// How long after a presumed black hole a path is probed again; plain congestion can look like one.
pub const BLACK_HOLE_COOLDOWN: Duration = Duration::from_secs(5);
/// How long after a finished search a path is probed again.
pub const MTU_SEARCH_INTERVAL: Duration = Duration::from_secs(60);

/// Unsent datagrams that a connection holds, in bytes; the oldest goes first.
pub const DATAGRAM_SEND_BUFFER: usize = 1 << 20;
/// Unread datagrams that the hub holds of one node, in bytes; the oldest goes first.
pub const HUB_RECEIVE_BUFFER: usize = 1 << 20;
/// The same of a node, which has one connection: what its socket holds may come at once, while its host takes it
/// packet by packet.
pub const NODE_RECEIVE_BUFFER: usize = SOCKET_BUFFER;
/// What a peer may send on the control stream before it is read, and an end before it is acknowledged, in
/// bytes: a message and its length, twice.
pub const CONTROL_WINDOW: u32 = 4096;
/// Buffer of a UDP socket in each direction, in bytes. With the system's default a burst overflows it, and
/// what then is lost looks like a black hole.
pub const SOCKET_BUFFER: usize = 4 << 20;
/// Wait after a receive that failed, before the next.
pub const RECEIVE_PAUSE: Duration = Duration::from_millis(10);
/// Receives that fail in a row before the socket is given up: a second's worth.
pub const MOST_RECEIVE_FAILURES: u32 = 100;
/// Datagrams that one send may carry: of the largest size they stay below the 65,507 bytes of a UDP payload,
/// beyond which a batch is lost without an error.
pub const MOST_SEGMENTS: usize = 40;

/// How often a node sends when it has nothing to say.
pub const KEEPALIVE: Duration = Duration::from_secs(4);
/// Silence after which either end gives a connection up.
pub const IDLE: Duration = Duration::from_secs(12);

/// Connections that wait for the hub's decision whether to go on with them; more are refused.
pub const MOST_INCOMING: usize = 256;
/// Bytes that such a connection may have sent ahead.
pub const INCOMING_BUFFER: u64 = 16 << 10;
/// The same, of all together.
pub const INCOMING_BUFFERS: u64 = 1 << 20;

/// Packets of which one end holds half.
pub const MOST_HALVES: usize = 8;
/// How long half a packet is held.
pub const HALF_LIFE: Duration = Duration::from_secs(1);

/// IPv4 fragments that one packet is taken apart into at most, for a path that carries it in no two frames.
pub const MOST_PIECES: usize = 4;
/// What each such fragment but the last carries at least, in bytes. QUIC's paths carry twice as much; a peer may
/// ask for less.
pub const LEAST_PIECE: usize = 512;

/// ICMP messages that one sender is sent at once.
pub const ICMP_BURST: u32 = 20;
/// Time in which one more ICMP message becomes due to it.
pub const ICMP_INTERVAL: Duration = Duration::from_millis(100);

/// A node's dial, from its first packet to the end of the Noise handshake.
pub const DIAL_BUDGET: Duration = Duration::from_secs(5);
/// First wait before a node dials again.
pub const REDIAL_FIRST: Duration = Duration::from_millis(500);
/// Longest wait before a node dials again, where the hub did not say why it should wait longer.
pub const REDIAL_LONGEST: Duration = Duration::from_secs(30);
/// Least wait of a node whose key began a newer session elsewhere.
pub const SUPERSEDED_HOLD: Duration = Duration::from_secs(60);
/// Least wait of a node that is no member at present, or that the hub cannot understand.
pub const REFUSED_HOLD: Duration = Duration::from_secs(30);
/// A session that stood this long starts a node's waits over.
pub const SESSION_PROVEN: Duration = Duration::from_secs(60);
/// How long a node's stop waits until its last packet is out.
pub const NODE_STOP_BUDGET: Duration = Duration::from_millis(500);
/// Events that a node holds for its host; those beyond are lost.
pub const NODE_EVENTS: usize = 64;
/// Packets that a node holds which it made itself, for its host.
pub const NODE_OWN_PACKETS: usize = 64;

/// Addresses at the start of the control prefix whose members are found without a search.
pub const DIRECT_ADDRESSES: usize = 1 << 16;
/// Bits of a control prefix: of fewer there is no range, with more no address beyond the network's, the hub's and the
/// broadcast's.
pub const CONTROL_PREFIX_BITS: RangeInclusive<u8> = 1..=30;
/// Longest id, in characters (contract, section 1).
pub const LONGEST_ID: usize = 128;

/// While there are sessions the wall clock is looked at so often, as no timer shows that it was set.
pub const CLOCK_LOOK: Duration = Duration::from_secs(1);

/// With so many handshakes under way an address has to show that it receives before it is worked for.
pub const RETRY_FROM: usize = 32;
/// First packets of unproven addresses that are worked for at once, before the pace counts.
pub const UNPROVEN_BURST: u32 = 64;
/// Time that one takes of the pace: 200 a second. Most fail at once, and are never under way for long.
pub const UNPROVEN_PACE: Duration = Duration::from_millis(5);
/// Handshakes that are under way at most; more are refused, or take the place of one that says nothing.
pub const MOST_HANDSHAKES: usize = 256;
/// Handshakes of one address whose address was not proven, with those that failed a moment ago; those beyond
/// have to prove it.
pub const MOST_UNPROVEN_OF_ADDRESS: usize = 8;
/// Handshakes of one address that was proven, with those that failed a moment ago; and apart from them, sessions
/// that came about a moment ago. An address may be that of a whole cluster behind a NAT.
pub const MOST_HANDSHAKES_OF_ADDRESS: usize = 16;
/// A handshake that has taken so long waits for its peer, and gives way where there is no room.
pub const SILENT_AFTER: Duration = Duration::from_secs(1);
/// A handshake that ended without a session holds its place so long, so that strangers of one address make the
/// hub work at most [`MOST_HANDSHAKES_OF_ADDRESS`] times as often.
pub const FAILED_LINGER: Duration = Duration::from_secs(1);
/// The same of one that ended with a session: 64 a second of one address.
pub const SESSION_LINGER: Duration = Duration::from_millis(250);
/// Places of each kind that are held so at most; each new one then takes that of the one that is due first.
pub const MOST_LINGERING: usize = 4096;
/// From a node's first packet to the end of its Noise handshake.
pub const HANDSHAKE_BOUND: Duration = Duration::from_secs(5);
/// Noise handshakes that are answered at once, before the pace counts.
pub const NOISE_BURST: u32 = 256;
/// Time that one Noise handshake takes of the pace: 1,000 a second, a fifth of a core.
pub const NOISE_PACE: Duration = Duration::from_millis(1);
/// Sessions that one member begins at once, before the pace counts.
pub const KEY_BURST: u32 = 5;
/// Time that one takes of the pace: each costs a view of the whole network.
pub const KEY_PACE: Duration = Duration::from_secs(1);
/// First packets that are judged before the other tasks have their turn.
pub const MOST_ARRIVALS_IN_A_ROW: usize = 32;

/// Datagrams of one node that are taken before the other tasks have their turn; what goes on of them leaves in
/// batches.
pub const MOST_IN_A_ROW: usize = 256;
/// Packets of up to so many bytes are copied before they wait for their receiver's connection, since each would
/// otherwise hold all that was received together with it.
pub const COPIED_PACKET: usize = 256;
/// With more bytes waiting every packet is copied.
pub const COPIED_BACKLOG: usize = 4 << 10;
/// Bytes that wait for all receivers together, before only those with a small queue are given more.
pub const MOST_WAITING: usize = 64 << 20;
/// When that may be reached it is looked at so often at most.
pub const BUDGET_LOOK: Duration = Duration::from_millis(10);

/// Commands that may wait for the hub's thread.
pub const COMMAND_QUEUE: usize = 16;
/// Stack of the hub's thread, in bytes.
pub const HUB_STACK: usize = 1 << 20;
/// The hub shows itself at most so often, and only when something changed.
pub const REPORT_PACE: Duration = Duration::from_secs(1);
/// A hub that stops waits at most so long for its nodes to hear of it (VPN-46).
pub const STOP_BOUND: Duration = Duration::from_millis(500);
/// Silence of the hub's thread, twice in a row, after which it is taken to hang.
pub const HUB_SILENCE: Duration = Duration::from_millis(2_500);
/// While nothing is asked of the hub it is looked after so often.
pub const HUB_LOOK: Duration = Duration::from_secs(10);
/// An ask for a socket is answered within this time, or its network is not served (VPN-10): less than relayd waits
/// for this daemon to state itself.
pub const SOCKET_WAIT: Duration = Duration::from_secs(2);
/// Answers that may wait for who asked: one is asked at a time.
pub const SOCKET_QUEUE: usize = 2;
/// Messages of the hub's holder that may wait for the supervisor's link.
pub const SAY_QUEUE: usize = 4;
/// Networks that may wait for the one before: relayd offers one at a time, a second relayd another.
pub const NETWORK_QUEUE: usize = 4;
