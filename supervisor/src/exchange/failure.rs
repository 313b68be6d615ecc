//! How an identity exchange fails. Nothing here holds the bearer, the identity or any other part of an answer
//! (LOG-01, SES-16).

use std::borrow::Cow;
use std::fmt;
use std::io;

/// Why an exchange gave no identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExchangeError {
    /// Cloudly refused.
    Refused(Refusal),
    /// Cloudly answered something that is no identity of a cluster.
    Unusable {
        /// The path of the member in the answer; `answer` for the whole.
        path: &'static str,
        /// What is wrong with it.
        fault: AnswerFault,
    },
    /// Cloudly asked to wait and send again more often, or for longer, than one exchange does.
    Postponed,
    /// Cloudly was not reached, or the connection failed.
    Transport {
        /// The class of the failure.
        class: TransportClass,
        /// The system's or the protocol's own name for it, such as `ECONNREFUSED` or `502`.
        code: Option<Cow<'static, str>>,
    },
}

/// A refusal's name, of those that are known; another one is not repeated, because it is part of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// `identity-token-refused`: the bearer authenticates nothing. It fails a boot (START-18).
    IdentityTokenRefused,
    /// Cloudly does not serve `getIdentityByToken`.
    UnknownMethod,
    /// Cloudly failed to answer.
    InternalServerError,
    /// Any other.
    Other,
}

/// What is wrong with a member of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerFault {
    /// It is not JSON, or not UTF-8.
    NotJson,
    /// It is longer than an answer may be.
    TooLong,
    /// It is compressed, which was not asked for.
    Encoded,
    /// It is absent or `null`.
    Missing,
    /// It holds a member that its form does not have, or one twice.
    Foreign,
    /// It has not the type or range that its form has.
    Malformed,
    /// It belongs to another request.
    NotOurs,
    /// It is not what a cluster's relay needs: type `machine`, role `cluster`.
    Unfit,
    /// It has passed.
    Expired,
}

/// The classes of a failed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportClass {
    /// The name was not resolved.
    Dns,
    /// No address accepted a connection.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// A bound passed.
    Timeout,
    /// The connection ended before the answer did.
    Closed,
    /// The peer does not speak HTTP/1.1.
    Protocol,
    /// An HTTP status other than 2xx.
    Http,
}

impl ExchangeError {
    /// Whether the bearer itself is refused, which fails a boot (START-18).
    #[must_use]
    pub fn refuses_the_bearer(&self) -> bool {
        match self {
            Self::Refused(Refusal::IdentityTokenRefused) => true,
            Self::Refused(Refusal::UnknownMethod | Refusal::InternalServerError | Refusal::Other)
            | Self::Unusable { .. }
            | Self::Postponed
            | Self::Transport { .. } => false,
        }
    }

    pub(super) fn unusable(path: &'static str, fault: AnswerFault) -> Self {
        Self::Unusable { path, fault }
    }

    pub(super) fn transport(class: TransportClass, code: Option<Cow<'static, str>>) -> Self {
        Self::Transport { class, code }
    }

    pub(super) fn timeout() -> Self {
        Self::transport(TransportClass::Timeout, None)
    }
}

impl Refusal {
    /// The refusal of an `error.text`: what stands before its first `: `.
    pub(super) fn of_text(text: &str) -> Self {
        match text.split(": ").next().unwrap_or_default() {
            "identity-token-refused" => Self::IdentityTokenRefused,
            coreflow_ipc::typedrequest::UNKNOWN_METHOD => Self::UnknownMethod,
            coreflow_ipc::typedrequest::INTERNAL_ERROR => Self::InternalServerError,
            _ => Self::Other,
        }
    }

    /// The name as it is logged.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::IdentityTokenRefused => "identity-token-refused",
            Self::UnknownMethod => "unknown method",
            Self::InternalServerError => "internal server error",
            Self::Other => "refused by another name",
        }
    }
}

impl AnswerFault {
    /// The fault in a word or two.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotJson => "not JSON",
            Self::TooLong => "too long",
            Self::Encoded => "compressed",
            Self::Missing => "missing",
            Self::Foreign => "an unknown or repeated member",
            Self::Malformed => "malformed",
            Self::NotOurs => "of another request",
            Self::Unfit => "not a cluster's",
            Self::Expired => "expired",
        }
    }
}

impl TransportClass {
    /// The class as it is logged.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
            Self::Http => "http",
        }
    }
}

/// The system's name of an error, such as `ECONNREFUSED`.
pub(super) fn system_code(error: &io::Error) -> Option<Cow<'static, str>> {
    error.raw_os_error().map(|number| format!("{:?}", nix::errno::Errno::from_raw(number)).into())
}

/// The name of a failed handshake, without the names and keys that a certificate holds.
pub(super) fn tls_code(error: &io::Error) -> Option<Cow<'static, str>> {
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return system_code(error);
    };
    use rustls::CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext,
        UnknownIssuer,
    };
    let name = match error {
        rustls::Error::InvalidCertificate(UnknownIssuer) => "unknown-issuer",
        rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. }) => "certificate-expired",
        rustls::Error::InvalidCertificate(NotValidYet | NotValidYetContext { .. }) => {
            "certificate-not-valid-yet"
        }
        rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
            "certificate-foreign-name"
        }
        rustls::Error::InvalidCertificate(_) => "certificate-invalid",
        rustls::Error::AlertReceived(alert) => return Some(format!("alert-{alert:?}").into()),
        rustls::Error::NoApplicationProtocol => "no-application-protocol",
        _ => "handshake",
    };
    Some(name.into())
}

impl std::error::Error for ExchangeError {}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "Cloudly refused the identity exchange: {}", refusal.name()),
            Self::Unusable { path, fault } => {
                write!(f, "Cloudly's answer to the identity exchange is unusable: {path} is {}", fault.name())
            }
            Self::Postponed => f.write_str("Cloudly asked to send the identity exchange again later"),
            Self::Transport { class, code: None } => {
                write!(f, "the identity exchange failed: {}", class.name())
            }
            Self::Transport { class, code: Some(code) } => {
                write!(f, "the identity exchange failed: {} ({code})", class.name())
            }
        }
    }
}
