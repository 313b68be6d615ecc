//! QUIC as the tunnel uses it: datagrams for packets, one stream for the handshake, and a path MTU that is
//! searched and never presumed.
//!
//! QUIC's usual judgement of a black hole is wrong for a tunnel: congestion looks like one to it. The path
//! stays usable meanwhile, as what does not fit goes in two frames (`egress`), and is probed again soon.

use std::{sync::Arc, time::Duration};

use quinn::{
    EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt, congestion::CubicConfig,
};

use super::closing::Closable;

use crate::constants::{
    BLACK_HOLE_COOLDOWN, CONTROL_WINDOW, DATAGRAM_SEND_BUFFER, HUB_RECEIVE_BUFFER, IDLE, KEEPALIVE,
    LEAST_UDP_PAYLOAD, MOST_UDP_PAYLOAD, MTU_SEARCH_INTERVAL, NODE_RECEIVE_BUFFER,
};

/// What both kinds of endpoint do before and beside their connections. The reset key is random and dies with
/// the endpoint.
pub fn endpoint_config() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(MOST_UDP_PAYLOAD).expect("QUIC asks for 1200 bytes, and these are more");
    config
}

/// The hub's end: it lets the node open its one stream, and is silent if the node is.
pub(super) fn hub() -> Arc<TransportConfig> {
    Arc::new(config(1, None, HUB_RECEIVE_BUFFER))
}

/// The node's end: it accepts no stream, and keeps NATs and the hub awake.
pub(super) fn node() -> Arc<TransportConfig> {
    Arc::new(config(0, Some(KEEPALIVE), NODE_RECEIVE_BUFFER))
}

fn config(streams: u32, keepalive: Option<Duration>, unread: usize) -> TransportConfig {
    let mut search = MtuDiscoveryConfig::default();
    search
        .upper_bound(MOST_UDP_PAYLOAD)
        .interval(MTU_SEARCH_INTERVAL)
        .black_hole_cooldown(BLACK_HOLE_COOLDOWN);
    let window = VarInt::from_u32(CONTROL_WINDOW);
    let mut config = TransportConfig::default();
    let congestion = Arc::new(Closable(Arc::new(CubicConfig::default())));
    config
        .congestion_controller_factory(congestion)
        .initial_mtu(LEAST_UDP_PAYLOAD)
        .min_mtu(LEAST_UDP_PAYLOAD)
        .mtu_discovery_config(Some(search))
        .max_idle_timeout(Some(IdleTimeout::try_from(IDLE).expect("seconds are a timeout")))
        .keep_alive_interval(keepalive)
        .max_concurrent_bidi_streams(VarInt::from_u32(streams))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(window)
        .receive_window(window)
        .send_window(CONTROL_WINDOW.into())
        .datagram_send_buffer_size(DATAGRAM_SEND_BUFFER)
        .datagram_receive_buffer_size(Some(unread))
        .enable_segmentation_offload(true);
    config
}
