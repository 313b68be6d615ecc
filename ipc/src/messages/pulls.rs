//! Relayd ↔ pulld: the exchanges of image pulls.
//!
//! Heads cross as messages, and with an answer's head a body that is small and whole at once; every
//! other body crosses one of relayd's socket pairs as plain bytes, so that its reader paces its
//! writer (PULL-18, PULL-30). Relayd keeps a few pairs in advance at pulld ([`RelaydToPulld::Stream`]):
//! each carries one body and is closed.
//!
//! The headers that may cross are members of two enums: whatever else a node or the registry sends
//! has no way to the other side (PULL-23, PULL-24, PULL-25). Nothing here has `Debug`, since an
//! exchange carries the node's pull token (PULL-28).

use bincode::{Decode, Encode};

use super::message;
use crate::{hello::Hello, peer::Greets};

/// Number of an exchange, given by relayd, never used twice on a link.
pub type PullId = u64;
/// Number of a socket pair that waits for a body, given by relayd, never used twice on a link.
pub type StreamId = u64;

/// Longest body that crosses within an answer, in bytes.
pub const WHOLE_BODY: usize = 16 << 10;
/// Most bytes of a head that crosses: the target, and the names and values of the headers.
pub const HEAD_BYTES: usize = 32 << 10;
/// Most headers of a head that crosses.
pub const HEAD_HEADERS: usize = 64;
/// Exchanges that may be under way on a link.
pub const EXCHANGES: usize = 1024;
/// Socket pairs that may wait at pulld for a body.
pub const WAITING_STREAMS: usize = 8;

/// Declares which headers cross in one direction.
macro_rules! headers {
    ($(#[$attribute:meta])* $kind:ident { $($(#[$doc:meta])* $name:ident = $text:literal,)+ }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
        pub enum $kind {
            $($(#[$doc])* $name,)+
        }

        impl $kind {
            /// Every member.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The header's name in lower case.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// The member of that name, which is in lower case; `None` for what does not cross.
            pub fn of(name: &str) -> Option<Self> {
                match name {
                    $($text => Some(Self::$name),)+
                    _ => None,
                }
            }
        }
    };
}

headers! {
    /// What a node's request may carry to the registry. `host` and `accept-encoding` are pulld's own.
    RequestHeader {
        /// The media types that the node takes, in as many lines as it sent.
        Accept = "accept",
        /// The node's own credential (PULL-05).
        Authorization = "authorization",
        /// A condition on the entity.
        IfMatch = "if-match",
        /// A condition on the date.
        IfModifiedSince = "if-modified-since",
        /// A condition on the entity.
        IfNoneMatch = "if-none-match",
        /// The condition of a range.
        IfRange = "if-range",
        /// A condition on the date.
        IfUnmodifiedSince = "if-unmodified-since",
        /// The part of a blob that is asked for.
        Range = "range",
        /// The container runtime.
        UserAgent = "user-agent",
    }
}

headers! {
    /// What the registry's answer may carry to the node. The length is a member of its own, and
    /// transfer headers are each hop's own.
    AnswerHeader {
        /// Whether ranges are served.
        AcceptRanges = "accept-ranges",
        /// How long the answer may be kept.
        CacheControl = "cache-control",
        /// A file name for a blob.
        ContentDisposition = "content-disposition",
        /// How the registry encoded the body although it was asked not to (PULL-22).
        ContentEncoding = "content-encoding",
        /// The part of the blob that the body is.
        ContentRange = "content-range",
        /// The body's media type.
        ContentType = "content-type",
        /// When the registry answered.
        Date = "date",
        /// The digest of the content.
        DockerContentDigest = "docker-content-digest",
        /// The registry's version of the protocol.
        DockerDistributionApiVersion = "docker-distribution-api-version",
        /// Whom a limit of the rate counts.
        DockerRatelimitSource = "docker-ratelimit-source",
        /// The entity.
        Etag = "etag",
        /// Until when the answer is fresh.
        Expires = "expires",
        /// When the content changed.
        LastModified = "last-modified",
        /// The next part of a listing, as written (PULL-11).
        Link = "link",
        /// Where the content is, as written (PULL-11).
        Location = "location",
        /// The filters that a listing of referrers went through.
        OciFiltersApplied = "oci-filters-applied",
        /// The manifest that a referrer names.
        OciSubject = "oci-subject",
        /// Limit of the rate.
        RatelimitLimit = "ratelimit-limit",
        /// What is left of it.
        RatelimitRemaining = "ratelimit-remaining",
        /// When to ask again.
        RetryAfter = "retry-after",
        /// Which request headers chose the answer.
        Vary = "vary",
        /// A notice of the registry for the operator of the node.
        Warning = "warning",
        /// The challenge; its realm is the one value that is rewritten (PULL-10, PULL-11).
        WwwAuthenticate = "www-authenticate",
    }
}

/// The head of a pull, as relayd took it from a node.
#[derive(Encode, Decode)]
pub struct PullRequest {
    /// `HEAD` in the place of `GET`.
    pub head: bool,
    /// Path under `/v2/` and query, byte for byte.
    pub target: String,
    /// The headers that cross, in their order, repeated ones as often as they came.
    pub headers: Vec<(RequestHeader, Vec<u8>)>,
}

/// What follows an answer's head.
#[derive(Encode, Decode)]
pub enum AnswerBody {
    /// Nothing: the answer to a HEAD, or one that never has a body. A stated length is that of another answer.
    Nothing,
    /// All of it.
    Whole(Vec<u8>),
    /// It comes over this socket pair, as plain bytes to its end; [`PulldToRelayd::Ended`] says that the end is
    /// that of the body.
    Stream(StreamId),
}

/// The registry's answer to a pull.
#[derive(Encode, Decode)]
pub struct PullAnswer {
    /// HTTP status, 200 to 599.
    pub status: u16,
    /// The headers that cross, in their order, repeated ones as often as they came.
    pub headers: Vec<(AnswerHeader, Vec<u8>)>,
    /// The length that the registry stated, unless it encoded the body (PULL-21, PULL-22).
    pub length: Option<u64>,
    /// The body.
    pub body: AnswerBody,
}

/// Why the registry gave no answer: the class alone, since the message may name what the exchange
/// carried (PULL-26, PULL-27, LOG-04).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum RegistryFailure {
    /// Its name did not resolve.
    Dns,
    /// No connection was made.
    Connect,
    /// The TLS handshake failed, its certificate among others.
    Tls,
    /// Nothing came in time.
    Timeout,
    /// What came is no HTTP, or is more than the bounds of an answer's head.
    Protocol,
    /// It closed the connection before an answer.
    Closed,
}

impl RegistryFailure {
    /// The class, as it is answered and logged.
    pub const fn class(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
            Self::Closed => "closed",
        }
    }
}

impl std::fmt::Display for RegistryFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.class())
    }
}

impl std::error::Error for RegistryFailure {}

/// Relayd → pulld.
#[derive(Encode, Decode)]
pub enum RelaydToPulld {
    /// First frame.
    Hello(Hello),
    /// Ask the registry; answered by one [`PulldToRelayd::Answer`] or [`PulldToRelayd::Failed`].
    Pull {
        /// Copied into the answer.
        id: PullId,
        /// What is asked.
        request: PullRequest,
    },
    /// The node left before the answer came; none is wanted.
    Cancel {
        /// The exchange.
        id: PullId,
    },
    /// The sending end of a socket pair for a body travels beside this; at most [`WAITING_STREAMS`] wait.
    Stream {
        /// Its number.
        stream: StreamId,
    },
}

/// Pulld → relayd.
#[derive(Encode, Decode)]
pub enum PulldToRelayd {
    /// First frame.
    Hello(Hello),
    /// The registry answered.
    Answer {
        /// The exchange.
        id: PullId,
        /// The answer.
        answer: PullAnswer,
    },
    /// The registry did not answer.
    Failed {
        /// The exchange.
        id: PullId,
        /// Why.
        failure: RegistryFailure,
    },
    /// All of a body that came over a stream was written to it; said before the stream is closed.
    Ended {
        /// The exchange.
        id: PullId,
    },
    /// A body that came over a stream was cut; said when the stream is closed.
    Cut {
        /// The exchange.
        id: PullId,
    },
}

message!(RelaydToPulld, 64 << 10, |message| match message {
    RelaydToPulld::Stream { .. } => 1,
    RelaydToPulld::Hello(_) | RelaydToPulld::Pull { .. } | RelaydToPulld::Cancel { .. } => 0,
});
message!(PulldToRelayd, 64 << 10);

impl Greets for RelaydToPulld {
    fn of_hello(hello: Hello) -> Self {
        Self::Hello(hello)
    }

    fn hello(&self) -> Option<&Hello> {
        match self {
            Self::Hello(hello) => Some(hello),
            Self::Pull { .. } | Self::Cancel { .. } | Self::Stream { .. } => None,
        }
    }
}

impl Greets for PulldToRelayd {
    fn of_hello(hello: Hello) -> Self {
        Self::Hello(hello)
    }

    fn hello(&self) -> Option<&Hello> {
        match self {
            Self::Hello(hello) => Some(hello),
            Self::Answer { .. } | Self::Failed { .. } | Self::Ended { .. } | Self::Cut { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Message;

    /// PULL-25: cookies, the node's host and transport headers are no members, in either direction.
    #[test]
    fn what_a_pull_does_not_need_has_no_member() {
        for name in [
            "cookie",
            "set-cookie",
            "host",
            "connection",
            "keep-alive",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "proxy-authorization",
            "proxy-authenticate",
            "content-length",
            "accept-encoding",
            "expect",
            "forwarded",
            "x-forwarded-for",
            "x-forwarded-host",
        ] {
            assert_eq!(RequestHeader::of(name), None, "{name}");
            assert_eq!(AnswerHeader::of(name), None, "{name}");
        }
    }

    #[test]
    fn a_header_is_found_by_its_own_name() {
        for header in RequestHeader::ALL {
            assert_eq!(RequestHeader::of(header.name()), Some(*header));
        }
        for header in AnswerHeader::ALL {
            assert_eq!(AnswerHeader::of(header.name()), Some(*header));
        }
    }

    /// PULL-23, PULL-24: a head at its bounds, with the longest body that crosses beside it, is a message.
    #[test]
    fn a_head_at_its_bounds_fits_a_message() {
        let value = vec![b'v'; HEAD_BYTES / HEAD_HEADERS];
        let headers = vec![(AnswerHeader::Link, value.clone()); HEAD_HEADERS];
        let body = AnswerBody::Whole(vec![0; WHOLE_BODY]);
        let answer = PullAnswer { status: 200, headers, length: Some(u64::MAX), body };
        assert_eq!(PulldToRelayd::Answer { id: u64::MAX, answer }.append(&mut Vec::new()), Ok(()));
        let headers = vec![(RequestHeader::Accept, value); HEAD_HEADERS];
        let request = PullRequest { head: false, target: "/v2/".into(), headers };
        assert_eq!(RelaydToPulld::Pull { id: u64::MAX, request }.append(&mut Vec::new()), Ok(()));
    }
}
