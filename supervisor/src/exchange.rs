//! The identity exchange: the supervisor itself exchanges the bearer for the relay identity, over a short
//! HTTP connection of its own, and gives out the identity alone (ARC-07, SES-03, SES-07, SES-16, SES-20;
//! contract file 3.1).
//!
//! [`exchange`] does the IO; what is sent, read and judged is in the pure functions of [`envelope`]. Names
//! are resolved here as well, because relayd cannot ([`resolve`]).

mod connection;
pub mod envelope;
mod failure;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::time::{Instant, sleep, timeout};

pub use connection::{connect, permitted, speak};
pub use envelope::{ExchangedIdentity, IdentityKind, IdentityRole};
pub use failure::{AnswerFault, ExchangeError, Refusal, TransportClass};

use crate::bearer::Bearer;
use crate::configuration::CloudlyUrl;
use crate::constants::{EXCHANGE_BOUND, EXCHANGE_CONNECT_BOUND, EXCHANGE_RETRIES, RESOLVE_BOUND};
use envelope::{Answer, RequestIds};

/// The longest parts of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeBounds {
    /// Of the TCP connection, over all addresses.
    pub connect: Duration,
    /// Of the whole, with all that Cloudly asks to send again.
    pub whole: Duration,
}

impl Default for ExchangeBounds {
    fn default() -> Self {
        Self { connect: EXCHANGE_CONNECT_BOUND, whole: EXCHANGE_BOUND }
    }
}

/// Exchanges the bearer for an identity of type `machine` and role `cluster` that ends in the future.
/// `wall_clock` gives Unix milliseconds and is asked once the answer is there.
///
/// # Errors
/// Why there is no identity; [`ExchangeError::refuses_the_bearer`] tells the one that fails a boot.
pub async fn exchange(
    url: &CloudlyUrl,
    tls: &Arc<ClientConfig>,
    bearer: &Bearer,
    bounds: ExchangeBounds,
    wall_clock: impl Fn() -> u64,
) -> Result<ExchangedIdentity, ExchangeError> {
    let end = Instant::now() + bounds.whole;
    let correlation = fresh_id();
    for _ in 0..=EXCHANGE_RETRIES {
        let ids = RequestIds { correlation: correlation.clone(), instance: fresh_id() };
        let body = envelope::compose(bearer.expose(), &ids);
        let answer = connection::until(end, connection::post(url, tls, body, bounds.connect)).await?;
        match envelope::parse(&answer, &ids)? {
            Answer::Identity(identity) => return envelope::judge(identity, wall_clock()),
            Answer::Retry(wait) if wait < end.saturating_duration_since(Instant::now()) => sleep(wait).await,
            Answer::Retry(_) => break,
        }
    }
    Err(ExchangeError::Postponed)
}

/// Why a host name gave no address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolveError {
    /// There is none; with the system's code where it states one.
    NotFound(Option<Cow<'static, str>>),
    /// [`RESOLVE_BOUND`] passed.
    Timeout,
}

impl std::error::Error for ResolveError {}

impl std::fmt::Display for ResolveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound(None) => f.write_str("the name has no address"),
            Self::NotFound(Some(code)) => write!(f, "the name has no address ({code})"),
            Self::Timeout => f.write_str("the name was not resolved in time"),
        }
    }
}

/// The addresses of a host, 1 to [`RESOLVED_ADDRESSES`](crate::constants::RESOLVED_ADDRESSES); an IP literal,
/// without brackets, is its own.
///
/// # Errors
/// There is none, or the system does not answer within [`RESOLVE_BOUND`].
pub async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
    match timeout(RESOLVE_BOUND, connection::lookup(host, port)).await {
        Ok(found) => found.map_err(ResolveError::NotFound),
        Err(_) => Err(ResolveError::Timeout),
    }
}

/// `uni_` and 24 lower-case hexadecimal digits.
fn fresh_id() -> String {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).expect("the kernel's random source answers once the system has started");
    bytes.iter().fold(String::from("uni_"), |mut id, byte| {
        write!(id, "{byte:02x}").expect("a string takes every text");
        id
    })
}
