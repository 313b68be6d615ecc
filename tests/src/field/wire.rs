//! A device as its driver sees it: whole packets go out as they are, whatever address they claim, and each that
//! passes can be looked at.
#![expect(unsafe_code, reason = "a packet socket's address has no safe constructor")]

use std::io::{ErrorKind, Read};
use std::mem::size_of;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

use super::namespace::Namespace;

/// What the kernel buffers of what passes.
const BUFFER: usize = 4 << 20;
/// Bytes of a packet at most, one that is not segmented yet among them.
const LARGEST: usize = 65_536;

/// IPv4 on one device without a link header, such as a TUN device.
pub struct Wire {
    socket: Socket,
}

impl Wire {
    /// Listens on `device` from here on.
    ///
    /// # Panics
    /// When the namespace has no such device, or without root.
    pub fn on(ground: &Namespace, device: &str) -> Self {
        let socket = ground.inside(|| {
            let index = nix::net::if_::if_nametoindex(device)?;
            let protocol = u16::try_from(libc::ETH_P_IP).expect("the number of IPv4 fits").to_be();
            let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(protocol))))?;
            socket.set_recv_buffer_size(BUFFER)?;
            socket.bind(&address(index, protocol))?;
            Ok::<_, std::io::Error>(socket)
        });
        Self { socket: socket.unwrap_or_else(|error| panic!("{device}: {error}")) }
    }

    /// Sends a packet, or what looks like one.
    ///
    /// # Panics
    /// When the device takes none, as one that is down.
    pub fn send(&self, packet: &[u8]) {
        self.socket.send(packet).unwrap_or_else(|error| panic!("sending {} bytes: {error}", packet.len()));
    }

    /// Waits for a packet of which `wanted` holds, past all others.
    pub fn wait(&self, bound: Duration, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let until = Instant::now() + bound;
        let mut buffer = vec![0; LARGEST];
        loop {
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.socket.set_read_timeout(Some(left)).expect("a timeout of a socket");
            match (&self.socket).read(&mut buffer) {
                Ok(length) if wanted(&buffer[..length]) => return Some(buffer[..length].to_vec()),
                Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return None;
                }
                Ok(_) | Err(_) if Instant::now() >= until => return None,
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// All packets that have passed by now.
    pub fn passed(&self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while let Some(packet) = self.wait(Duration::ZERO, |_| true) {
            packets.push(packet);
        }
        packets
    }
}

/// The address of a device by its number.
fn address(index: u32, protocol: u16) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: `sockaddr_ll` is a socket address, for which the storage has size and alignment.
    let link = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    link.sll_family = u16::try_from(libc::AF_PACKET).expect("a family's number fits");
    link.sll_protocol = protocol;
    link.sll_ifindex = index.cast_signed();
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).expect("an address is short");
    // SAFETY: the storage holds a `sockaddr_ll` of that length, all of it initialised.
    unsafe { SockAddr::new(storage, length) }
}

/// Whether a packet holds `mark` anywhere.
pub fn holds(packet: &[u8], mark: &[u8]) -> bool {
    packet.windows(mark.len()).any(|window| window == mark)
}
