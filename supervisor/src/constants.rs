//! The supervisor's constants, each with its unit and its reason.

use std::time::Duration;

/// Longest wait for a TCP connection to Cloudly, over all its addresses.
pub const EXCHANGE_CONNECT_BOUND: Duration = Duration::from_secs(5);
/// Longest wait for a TCP connection to the registry, over all its addresses; a pull waits for it.
pub const REGISTRY_CONNECT_BOUND: Duration = Duration::from_secs(5);
/// What is sent to the registry is acknowledged within this time, or the connection has failed. A connection that
/// is kept for the next pull may lead to a peer that went without a word, as after a change of the network; the pull
/// that finds out is asked again on a fresh one, for which this leaves it time within the 30 s of its answer.
/// A registry whose system acknowledges the request may take as long as it likes to answer: nothing is unacknowledged
/// then.
pub const REGISTRY_UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// The registry's addresses are used for so long after they were looked up, for dials that come in a row.
pub const REGISTRY_ADDRESSES_KEPT: Duration = Duration::from_secs(5);
/// The same of a lookup that failed: long enough for those that waited for it.
pub const REGISTRY_ADDRESSES_FAILED: Duration = Duration::from_secs(1);
/// Connections to the registry that are made at once.
pub const DIAL_BURST: u32 = 128;
/// Time between two of them in the long run: 100 a second, of which a minute's, for as long as a closed one holds
/// its local port, is a fourth of the ports that Linux gives out by default (28,232).
pub const DIAL_SPACING: Duration = Duration::from_millis(10);
/// Longest identity exchange, from the name's resolution to the judged identity, with Cloudly's `retry`
/// waits.
pub const EXCHANGE_BOUND: Duration = Duration::from_secs(10);
/// Longest body of an exchange's answer, in bytes.
pub const EXCHANGE_ANSWER_BYTES: usize = 256 * 1024;
/// How often one exchange is sent again because Cloudly's answer asks for it (contract file, section 1).
pub const EXCHANGE_RETRIES: u32 = 3;
/// Longest resolution of a host name.
pub const RESOLVE_BOUND: Duration = Duration::from_secs(5);
/// Most addresses of one host that are given out or tried.
pub const RESOLVED_ADDRESSES: usize = 16;

/// First delay before a worker that died is started again (ARC-18).
pub const RESTART_FIRST: Duration = Duration::from_millis(500);
/// Longest delay before a worker that died is started again (ARC-18).
pub const RESTART_LONGEST: Duration = Duration::from_secs(30);
/// A worker that was alive this long starts the delays over (ARC-18).
pub const RESTART_RESET: Duration = Duration::from_secs(60);
/// A started worker says hello within this time.
pub const HELLO_BOUND: Duration = Duration::from_secs(5);
/// A worker is pinged this often.
pub const PING_INTERVAL: Duration = Duration::from_secs(5);
/// A worker that did not answer a ping for this long is killed and started again.
pub const PONG_BOUND: Duration = Duration::from_secs(15);
/// pulld and vpnd end within this time of a stop (decision "Stop").
pub const STOP_BOUND: Duration = Duration::from_secs(5);
/// The listening socket is kept this long without a serving relayd (LIS-23).
pub const LISTENER_HOLD: Duration = Duration::from_secs(10);
/// Connections that may wait for a relayd that is restarted.
pub const LISTENER_BACKLOG: i32 = 4096;
/// Messages that may wait for one worker.
pub const WORKER_QUEUE: usize = 256;
/// Events of workers that may wait for the loop.
pub const EVENT_QUEUE: usize = 1024;
/// Last words of a worker that are kept, in bytes.
pub const LAST_WORDS: usize = 2048;
/// How long a debugger may take to let a dead worker go before the worker is started again without its exit status, and
/// how often it is looked after from then on.
pub const TRACED_BOUND: Duration = Duration::from_secs(1);
/// How long that is done: a debugger that holds it for longer leaves a process table entry until the relay ends.
pub const TRACED_HOLD: Duration = Duration::from_secs(24 * 3600);
/// How long the end of a dead worker's link and pipe is waited for, so that its last records are kept.
pub const DRAIN_BOUND: Duration = Duration::from_millis(500);
/// Records of one worker that are written at once.
pub const RECORD_BURST: u32 = 20_000;
/// Records of one worker that are written per second in the long run.
pub const RECORDS_PER_SECOND: u32 = 2_000;
/// Changes of one text, such as systemd's status line, that are told at once.
pub const LATEST_BURST: u32 = 8;
/// Changes of one text that are told per second in the long run; the latest wins.
pub const LATEST_PER_SECOND: u32 = 1;
/// A change beyond that is told after this time.
pub const LATEST_PACE: Duration = Duration::from_secs(1);
/// What the service manager did not take is sent again after this time.
pub const NOTIFY_AGAIN: Duration = Duration::from_millis(250);
/// Lines that may wait for the log's writer.
pub const LOG_QUEUE: usize = 32_768;
/// The last lines are written within this time of the end.
pub const LOG_FLUSH_BOUND: Duration = Duration::from_secs(1);
/// How often a full queue is looked at for room within that time.
pub const LOG_FLUSH_PAUSE: Duration = Duration::from_millis(10);

/// Bytes that the hub's UDP socket is to keep for vpnd, and as many for the network: about 3,000 full packets, or some
/// 10 ms of what the hub carries at most. With the system's default of 208 KiB a third of a flood is lost.
pub const HUB_SOCKET_BUFFER: usize = 4 << 20;
/// How often the hub's socket is bound at once: once for each network that is pushed while none is bound.
pub const HUB_BIND_BURST: u32 = 16;
/// How often it is bound per second in the long run.
pub const HUB_BINDS_PER_SECOND: u32 = 1;

/// Reports of one vpnd that are taken at once: it makes one a second at most, and so many wait for a supervisor that
/// did not run for a while.
pub const HUB_REPORT_BURST: u32 = 32;
/// Reports of one vpnd that are taken per second in the long run; a vpnd that sends more has failed.
pub const HUB_REPORTS_PER_SECOND: u32 = 2;
/// Asks of one vpnd for its socket that are answered at once, most of them without a bind: each is of a network that
/// was pushed after the former one's answer.
pub const HUB_ASK_BURST: u32 = 128;
/// The same per second in the long run; a vpnd that asks more often has failed.
pub const HUB_ASKS_PER_SECOND: u32 = 64;
/// Least time between two links of relayd to one worker while both live: a link that is lost anew at once is of a
/// worker that is broken, and holds a descriptor in the other one until that has read of its end.
pub const LINK_SPACING: Duration = Duration::from_secs(1);

/// Connections of the control socket that are served at once.
pub const CONTROL_CONNECTIONS: usize = 8;
/// Longest exchange over the control socket, from the connection to the last byte of the answer.
pub const CONTROL_EXCHANGE_BOUND: Duration = Duration::from_secs(5);
/// Longest request over the control socket, in bytes without the end of its line.
pub const CONTROL_REQUEST_BYTES: usize = 1024;
/// Longest answer over the control socket, in bytes.
pub const CONTROL_ANSWER_BYTES: usize = 512 * 1024;
/// Refused connections of other users are told at most this often.
pub const CONTROL_REFUSED_PACE: Duration = Duration::from_secs(60);
/// How long an accept that failed is not made again.
pub const CONTROL_ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// How long `coreflowctl` waits for the relay's answer: longer than the relay takes for one.
pub const CONTROL_ASK_BOUND: Duration = Duration::from_secs(8);
/// Most entries of a status that block hops: each of the four hops has two kinds, and room to spare.
pub const STATUS_REFUSALS: usize = 16;
/// Longest line of such an entry, in characters.
pub const STATUS_LINE: usize = 1000;
/// Longest release of a stated offer, in characters.
pub const STATUS_RELEASE: usize = 64;
/// Longest text on what the relay waits for, in characters.
pub const STATUS_WAITING: usize = 300;
/// Longest id of a reference in a status, in characters.
pub const STATUS_ID: usize = 300;
/// Longest node id and longest name of a reason in a status, in characters.
pub const STATUS_NAME: usize = 128;
/// Most nodes of a roster, which is more than the listener has sockets: an answer that goes on is no roster.
pub const ROSTER_NODES: usize = 32_768;
/// Most reasons of one kind in a status: dropped packets have some ten, ended sessions too.
pub const STATUS_REASONS: usize = 32;

/// How long a worker is waited for that was asked for an operator's look; a client's exchange is longer.
pub const WORKER_ANSWER_BOUND: Duration = Duration::from_secs(2);
/// Asks of one worker that may be unanswered, those among them that are not waited for any more: one for each
/// connection of the control socket.
pub const WORKER_ASKS: usize = CONTROL_CONNECTIONS;
/// How long an ask that was given up takes one of these places: longer than a worker lives that reads nothing.
pub const WORKER_ASK_KEPT: Duration = Duration::from_secs(30);
/// relayd ends within this time of a restart by command, with Cloudly's requests in flight answered: what the unit
/// gives a stop (`TimeoutStopSec=`). The other workers have [`STOP_BOUND`].
pub const RELAYD_RESTART_BOUND: Duration = Duration::from_secs(30);
/// Traces that are written at once; the other connections of the control socket stay free.
pub const CONTROL_TRACES: usize = 4;
/// Messages of a link that a trace keeps for a client that reads slowly; it loses what goes beyond, and is told how
/// much.
pub const TRACE_KEPT: usize = 512;
/// Most layers of a worker's confinement that are kept: there are eight.
pub const CONFINED_LAYERS: usize = 16;
