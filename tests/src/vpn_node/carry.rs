//! Packets between the TUN device and the tunnel, in batches: what the kernel hands over as one large segment
//! goes on as packets of the inner MTU, and what arrives in a row becomes one large segment again.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use coreflow_vpnd::node::{NodeReceiver, NodeSender};
use tun_rs::{GROTable, VIRTIO_NET_HDR_LEN};

use super::device::Device;

/// Packets that are taken at once, in either direction.
const BATCH: usize = 128;
/// Bytes that the kernel hands over at once: a segment of 64 KiB behind its header.
const LARGEST_SEGMENT: usize = VIRTIO_NET_HDR_LEN + 65_535;
/// Bytes of one segment that packets become again, at most. The kernel puts all packets of a UDP segment into their
/// socket at once: larger ones overflow a socket of the usual size before its reader runs.
const GROWN_SEGMENT: usize = 8 << 10;
/// Bytes of a packet after its segmentation, at most.
const LARGEST_PACKET: usize = 2048;

/// From the device to the tunnel, until the device fails.
pub(super) async fn up(device: Rc<Device>, mut sender: NodeSender) -> io::Error {
    let mut segment = vec![0; LARGEST_SEGMENT];
    let mut pieces = vec![vec![0; LARGEST_PACKET]; BATCH];
    let mut sizes = vec![0; BATCH];
    let mut packets = Vec::with_capacity(2 * BATCH);
    loop {
        let mut read = device.tun.recv_multiple(&mut segment, &mut pieces, &mut sizes, 0).await;
        loop {
            match read {
                Ok(count) => {
                    let pieces = pieces.iter().zip(&sizes).take(count);
                    packets.extend(pieces.map(|(piece, size)| Bytes::copy_from_slice(&piece[..*size])));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.raw_os_error().is_some() => return error,
                // No packet that the offload knows; the next one may be.
                Err(_) => {}
            }
            if packets.len() >= BATCH {
                break;
            }
            read = device.tun.try_recv_multiple(&mut segment, &mut pieces, &mut sizes, 0);
        }
        sender.send(&mut packets);
        packets.clear();
        // The tunnel's own task has to run between two batches.
        tokio::task::yield_now().await;
    }
}

/// From the tunnel to the device, until the tunnel ends.
pub(super) async fn down(device: Rc<Device>, mut receiver: NodeReceiver) -> io::Error {
    let mut grown = GROTable::default();
    let mut packets: Vec<Bytes> = Vec::with_capacity(BATCH);
    // Packets grow together within the room of the first one, which they keep.
    let room = 2 * VIRTIO_NET_HDR_LEN + GROWN_SEGMENT;
    let mut buffers: Vec<Vec<u8>> = (0..BATCH).map(|_| Vec::with_capacity(room)).collect();
    loop {
        if let Err(stopped) = receiver.receive(&mut packets, BATCH).await {
            return io::Error::other(stopped);
        }
        let count = packets.len().min(BATCH);
        for (packet, buffer) in packets.drain(..count).zip(&mut buffers) {
            buffer.clear();
            buffer.resize(VIRTIO_NET_HDR_LEN, 0);
            buffer.extend_from_slice(&packet);
        }
        // A packet that the kernel does not take is lost, as on any wire.
        drop(device.tun.send_multiple(&mut grown, &mut buffers[..count], VIRTIO_NET_HDR_LEN).await);
    }
}
