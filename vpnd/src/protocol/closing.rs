//! Ending a connection so that its peer hears why.
//!
//! QUIC lets the end of a connection be sent whatever the congestion window says. quinn does not, while
//! datagrams wait to be sent: the window holds them back, and the end with them, and as nothing that arrives opens
//! the window of a closed connection any more, the peer never hears of it. So a connection that is closed here has
//! a window without a limit, in which its end alone is sent.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use quinn::{
    Connection,
    congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig},
};
use quinn_proto::RttEstimator;

use super::close::Close;

/// The window of a connection that is closed, in bytes: beyond 32 bits nothing is paced either.
const UNLIMITED: u64 = 1 << 40;

/// Closes `connection`; what still waits to be sent on it is not sent.
pub fn close(connection: &Connection, why: Close) {
    if let Ok(congestion) = connection.congestion_state().into_any().downcast::<Congestion>() {
        congestion.closing.store(true, Relaxed);
    }
    connection.close(why.code(), &[]);
}

/// Makes the congestion control of connections that [`close`] can end: CUBIC, as quinn has it.
pub(super) struct Closable(pub(super) Arc<CubicConfig>);

impl ControllerFactory for Closable {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let control = Arc::clone(&self.0).build(now, current_mtu);
        Box::new(Congestion { control, closing: Arc::default() })
    }
}

/// One path's congestion control.
struct Congestion {
    control: Box<dyn Controller>,
    /// The same of every copy.
    closing: Arc<AtomicBool>,
}

impl Controller for Congestion {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.control.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.control.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.control.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.control.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.control.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        if self.closing.load(Relaxed) { UNLIMITED } else { self.control.window() }
    }

    fn metrics(&self) -> ControllerMetrics {
        self.control.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { control: self.control.clone_box(), closing: Arc::clone(&self.closing) })
    }

    fn initial_window(&self) -> u64 {
        self.control.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
