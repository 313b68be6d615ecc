//! More than the hub, or one of its nodes, can take.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use coreflow_tests::field::flood::{Forger, initials, strangers};
use coreflow_tests::field::traffic::{PACKETS_A_SECOND, Sink, Stream};
use coreflow_tests::field::{Field, UPLINK};
use nix::sys::signal::Signal;

use crate::{A, B, BOUND, C, STAND};

const PORT: u16 = 9_000;
/// Forged handshakes in a second.
const RATE: u32 = 2_000;
/// Handshakes of which each is another's forged copy; the hub remembers none of them that long.
const DISTINCT: usize = 500;
/// Sessions with a key that nobody knows.
const STRANGERS: usize = 200;
/// Addresses that they come from: of one the hub takes few at a time.
const STRANGERS_ADDRESSES: u8 = 40;
/// How long a member may take to connect through a flood.
const CONNECT: Duration = Duration::from_secs(3);
/// What the hub may send to an address that it has not heard from, as a multiple of what came from there
/// (RFC 9000, section 8.1).
const AMPLIFIED: u64 = 3;
/// What one slow receiver may cost the hub: its datagrams that wait, and the kernel's.
const SLOW_KIB: u64 = 8 << 10;

/// VPN-01: while 2,000 handshakes in a second come from forged addresses and 200 strangers open whole TLS
/// sessions, a member connects within 3 s, an open tunnel loses less than 1 %, and the forged addresses are sent
/// no more than three times what came from them. No stranger is answered.
#[test]
fn a_flood_of_handshakes_keeps_no_member_out() {
    let mut field = Field::idle(STAND, 1500);
    for node in [A, B] {
        field.start(node);
    }
    for node in [A, B] {
        field.nodes[node].program().wait("up ", BOUND);
    }
    field.wait_reach(A, B, BOUND);
    // What is said to a forged address comes back to where the flood comes from, and is counted there.
    let attacker = &field.nodes[C];
    field.ground.ip(&["route", "add", "198.18.0.0/15", "via", &attacker.underlay.to_string()]);
    let addresses: Vec<_> =
        (0..STRANGERS_ADDRESSES).map(|last| Ipv4Addr::new(10, 77, 3, 100 + last)).collect();
    for address in &addresses {
        attacker.ground.ip(&["address", "add", &format!("{address}/24"), "dev", UPLINK]);
    }
    let forged = initials(DISTINCT);
    let sink = Sink::at(&field.nodes[B].ground, PORT);
    let live = Stream::paced(&field.nodes[A].ground, SocketAddrV4::new(field.nodes[B].address, PORT));
    let before = [attacker.ground.counter(UPLINK, "tx_bytes"), attacker.ground.counter(UPLINK, "rx_bytes")];

    let forger = Forger::start(&attacker.ground, forged, RATE);
    let began = Instant::now();
    while forger.sent() < u64::from(RATE) {
        assert!(began.elapsed() < BOUND, "only {} forged packets went out", forger.sent());
        std::thread::sleep(Duration::from_millis(10));
    }
    let sent = forger.sent();
    // The member connects in the middle of it.
    field.nodes[B].program = None;
    field.start(B);
    field.nodes[B].program().wait("up ", CONNECT);
    let middle = live.next();
    let counted = [
        field.nodes[C].ground.counter(UPLINK, "tx_bytes"),
        field.nodes[C].ground.counter(UPLINK, "rx_bytes"),
    ];
    let [out, back] = [counted[0] - before[0], counted[1] - before[1]];
    assert!(out > sent * 1200, "the flood did not leave: {out} bytes of {sent} packets");
    assert!(back <= out * AMPLIFIED, "{back} bytes came back for {out}");

    let became = strangers(&field.nodes[C].ground, &addresses, field.hub_key(), STRANGERS, 8);
    assert_eq!(became.answered, 0, "{became:?}");
    assert!(usize::try_from(became.not_admitted).unwrap() > STRANGERS / 2, "{became:?}");
    sink.wait(middle + 5 * PACKETS_A_SECOND, BOUND);
    let last = live.next();
    assert!(forger.sent() > sent, "the flood went on all the while");
    drop(forger);
    live.stop();
    sink.wait(last - 1, BOUND);
    let came = sink.numbers().range(middle..last).count();
    let lost = usize::try_from(last - middle).unwrap() - came;
    assert!(lost * 100 < usize::try_from(last - middle).unwrap(), "{lost} of {} lost", last - middle);
    // When it is over, a stranger is told what strangers are told; its address has to wait for its turn.
    let until = Instant::now() + BOUND;
    loop {
        let calm = strangers(&field.nodes[C].ground, &addresses[..1], field.hub_key(), 1, 1);
        assert_eq!((calm.answered, calm.other_codes), (0, 0), "{calm:?}");
        if calm.not_admitted == 1 {
            break;
        }
        assert!(Instant::now() < until, "no stranger is told anything: {}", field.hub.report());
    }
}

/// VPN-01: a node that takes nothing under a flood costs the hub a bounded amount of memory and the others none
/// of their packets, and is served again once it takes.
#[test]
fn a_node_that_takes_nothing_harms_nobody_else() {
    let field = Field::up(STAND);
    for (from, to) in [(A, B), (A, C)] {
        field.wait_reach(from, to, BOUND);
    }
    let before = field.hub.program.resident();
    let sink = Sink::at(&field.nodes[C].ground, PORT);
    field.nodes[B].signal(Signal::SIGSTOP);
    let to_b = SocketAddrV4::new(field.nodes[B].address, PORT);
    let flood = Stream::start(&field.nodes[A].ground, to_b, Duration::from_micros(250), 1200);
    let other = Stream::paced(&field.nodes[C].ground, SocketAddrV4::new(field.nodes[A].address, PORT));
    let other_sink = Sink::at(&field.nodes[A].ground, PORT);
    let live = Stream::paced(&field.nodes[A].ground, SocketAddrV4::new(field.nodes[C].address, PORT));
    // Less than the idle timeout, in which B's session would end.
    sink.wait(1_200, BOUND);
    let resident = field.hub.program.resident();
    let flooded = flood.stop();
    field.nodes[B].signal(Signal::SIGCONT);
    assert!(u64::from(flooded) * 1200 > 4 << 20, "{flooded} packets are no flood");
    assert!(resident <= before + SLOW_KIB, "the hub grew from {before} to {resident} KiB");
    field.wait_reach(A, B, Duration::from_secs(2));
    for (stream, sink) in [(live, &sink), (other, &other_sink)] {
        let sent = stream.stop();
        sink.wait(sent.saturating_sub(20), BOUND);
        let lost = usize::try_from(sent).unwrap() - sink.numbers().len();
        assert!(lost * 100 < usize::try_from(sent).unwrap(), "{lost} of {sent} lost");
    }
}
