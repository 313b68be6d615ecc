//! Every wait, bound and number of pulld, each with its unit and where it comes from.

use std::time::Duration;

/// From a pull to its answer's head, with the wait for a connection and a second try (PULL-26). Container
/// runtimes give up after as long.
pub const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// A registry that sends nothing of a body for so long, while it is waited for, has given it up. There is no bound
/// in all: a large layer on a slow line takes hours.
pub const BODY_IDLE: Duration = Duration::from_secs(30);
/// The same of relayd's reading. It is longer because a socket pair reports room only once most of what it holds
/// was read: a node that reads slowly and steadily looks still for as long as that takes it. One that takes nothing
/// at all is ended by relayd, which sees its connection.
pub const NODE_IDLE: Duration = Duration::from_secs(600);
/// A body waits so long for one of relayd's socket pairs, which replaces each as it is used. Together with
/// [`ANSWER_WAIT`] it stays below the time that relayd waits.
pub const STREAM_WAIT: Duration = Duration::from_secs(5);
/// Pulls that are under way at a stop end within this time, or are cut: with the 2 s that the last records may take it
/// stays within the 5 s that the supervisor gives a stop.
pub const STOP_DRAIN: Duration = Duration::from_millis(2500);
/// What of them waits for the link to relayd is sent within this time of their end.
pub const STOP_FLUSH: Duration = Duration::from_millis(500);
/// Messages that may wait for the link to relayd (PULL-30).
pub const LINK_QUEUE: usize = 64;
/// Relayd knows of the end of an exchange before its task here has ended, so that the pull that takes its
/// place may come early by so much.
pub const EXCHANGE_END: Duration = Duration::from_secs(1);

/// Connections that are kept while nobody uses them.
pub const KEPT_CONNECTIONS: usize = 256;
/// A connection that nobody used for so long is closed.
pub const KEPT_FOR: Duration = Duration::from_secs(60);
/// How often kept connections are looked at for those that are closed or old.
pub const KEPT_SWEEP: Duration = Duration::from_secs(5);

/// Longest head that is read of the registry, in bytes, with what of it does not cross (PULL-24). What is
/// read of a body at once is bounded by it too.
pub const ANSWER_HEAD: usize = 64 << 10;
/// Most headers that are read of an answer, with those that do not cross (PULL-24).
pub const ANSWER_HEADERS: usize = 100;

/// Bytes that are received of a registry's socket at once while a body streams: four TLS records.
pub const RECEIVE: usize = 64 << 10;
/// The same while nothing large was received on the connection.
pub const RECEIVE_FIRST: usize = 8 << 10;

/// Exchanges that share one connection of HTTP/2, if the registry admits as many.
pub const SHARED_BY: usize = 32;
/// Bytes of one body that a registry may send before they are read, with HTTP/2. A connection's own window is
/// that of all its exchanges together, so that a slow node holds up nobody but itself (PULL-30).
pub const STREAM_WINDOW: u32 = 128 << 10;

/// A connection of HTTP/2 that is in use is asked so often whether it lives, and answers within as long: that one
/// exchange waits in vain says nothing of the others on it.
pub const SHARED_PING: Duration = Duration::from_secs(10);

/// Origins of foreign realms that are remembered, each having been logged (PULL-14).
pub const FOREIGN_ORIGINS: usize = 64;
