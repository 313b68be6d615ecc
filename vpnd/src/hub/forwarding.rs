//! What becomes of a packet: to whom it goes, or why to nobody. A pure judgement of one packet by one view,
//! which is all the isolation there is between the nodes (VPN-01, VPN-06, VPN-16).

use std::net::Ipv4Addr;

use super::view::{SessionId, View};
use crate::protocol::{
    icmp::ERRORS,
    ipv4::{Header, ICMP},
};

/// Why a packet goes to nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A datagram that is no frame of the protocol.
    UnknownFrame,
    /// Half a packet whose other half did not come.
    FragmentLost,
    /// No IPv4 packet.
    Malformed,
    /// Its source is not the sender's.
    SourceForeign,
    /// An ICMP error about a packet that did not go from the receiver to the sender, or one in pieces, of which
    /// that cannot be said.
    QuotedForeign,
    /// It is for nobody by nature: the hub, a broadcast, a multicast, loopback, `0.0.0.0/8`.
    DestinationSpecial,
    /// It is for no member.
    DestinationUnknown,
    /// It is for its own sender.
    ToItself,
    /// No grant leads from the sender to the receiver.
    NoGrant,
    /// The receiver has no session.
    NoSession,
    /// It does not fit the receiver's path in any number of pieces that it allows.
    TooBig,
    /// The receivers' queues hold all they may together, and its receiver's more than its share.
    HubFull,
    /// None of these: it went on, and for it its receiver's full queue gave up one or more that had.
    LegFull,
    /// The receiver's connection takes none any more.
    LegGone,
}

impl Reason {
    /// Every reason, in the order of [`Reason::number`].
    pub const ALL: [Self; 14] = [
        Self::UnknownFrame,
        Self::FragmentLost,
        Self::Malformed,
        Self::SourceForeign,
        Self::QuotedForeign,
        Self::DestinationSpecial,
        Self::DestinationUnknown,
        Self::ToItself,
        Self::NoGrant,
        Self::NoSession,
        Self::TooBig,
        Self::HubFull,
        Self::LegFull,
        Self::LegGone,
    ];

    /// Its place in [`Reason::ALL`].
    pub fn number(self) -> usize {
        self as usize
    }

    /// The name in counters and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownFrame => "unknown-frame",
            Self::FragmentLost => "fragment-lost",
            Self::Malformed => "malformed",
            Self::SourceForeign => "source-foreign",
            Self::QuotedForeign => "quoted-foreign",
            Self::DestinationSpecial => "destination-special",
            Self::DestinationUnknown => "destination-unknown",
            Self::ToItself => "to-itself",
            Self::NoGrant => "no-grant",
            Self::NoSession => "no-session",
            Self::TooBig => "too-big",
            Self::HubFull => "hub-full",
            Self::LegFull => "leg-full",
            Self::LegGone => "leg-gone",
        }
    }
}

/// A packet that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Onward {
    /// The place of whom it is for.
    pub to: usize,
    /// The session of whom it is for.
    pub session: SessionId,
    /// Its header.
    pub header: Header,
}

/// Judges a packet of the member at `from`.
///
/// # Errors
/// It goes to nobody.
pub fn judge(view: &View, from: usize, packet: &[u8]) -> Result<Onward, Reason> {
    let header = Header::parse(packet).map_err(|_| Reason::Malformed)?;
    let (network, routes) = (view.network(), view.network().routes());
    if network.is_special(header.source) || !routes.owns(from, header.source) {
        return Err(Reason::SourceForeign);
    }
    if network.is_special(header.destination) {
        return Err(Reason::DestinationSpecial);
    }
    let to = routes.member(header.destination).ok_or(Reason::DestinationUnknown)?;
    if to == from {
        return Err(Reason::ToItself);
    }
    if !network.granted(from, to) {
        return Err(Reason::NoGrant);
    }
    if header.protocol == ICMP {
        let quoted = |source, destination| routes.owns(to, source) && routes.owns(from, destination);
        judge_icmp(&header, &packet[header.header_length..header.total_length], quoted)?;
    }
    let session = view.session(to).ok_or(Reason::NoSession)?;
    Ok(Onward { to, session, header })
}

/// Bytes of ICMP before the quoted packet.
const ICMP_HEADER: usize = 8;
/// Bytes of the quoted packet that are judged: its header without options.
const QUOTED: usize = 20;

/// An error has to be about a packet that its receiver sent to its sender, and to come in one piece: what a host
/// puts together was judged by nobody.
fn judge_icmp(
    header: &Header,
    payload: &[u8],
    is_theirs: impl Fn(Ipv4Addr, Ipv4Addr) -> bool,
) -> Result<(), Reason> {
    if header.fragment_offset > 0 {
        // Where a quote would be nothing is laid over what came before.
        let behind = usize::from(header.fragment_offset) * 8 >= ICMP_HEADER + QUOTED;
        return if behind { Ok(()) } else { Err(Reason::QuotedForeign) };
    }
    let Some(kind) = payload.first() else {
        // The type would come with a later fragment, by which nothing is judged.
        return if header.more_fragments { Err(Reason::Malformed) } else { Ok(()) };
    };
    if !ERRORS.contains(kind) {
        return Ok(());
    }
    if header.more_fragments {
        return Err(Reason::QuotedForeign);
    }
    let quoted = payload.get(ICMP_HEADER..).and_then(<[u8]>::first_chunk::<QUOTED>);
    let Some(quoted) = quoted else { return Err(Reason::QuotedForeign) };
    let address = |at: usize| Ipv4Addr::new(quoted[at], quoted[at + 1], quoted[at + 2], quoted[at + 3]);
    let theirs = quoted[0] >> 4 == 4 && is_theirs(address(12), address(16));
    if theirs { Ok(()) } else { Err(Reason::QuotedForeign) }
}

#[cfg(test)]
mod tests;
