//! The class of a failure: all that is kept of an error whose text may name what the exchange carried
//! (PULL-26, PULL-27, LOG-04).

use std::{error::Error, io};

use coreflow_ipc::messages::pulls::RegistryFailure;
use h2::Reason;

/// The class of what ended an exchange over HTTP.
pub(crate) fn of_http(error: &hyper::Error) -> RegistryFailure {
    if error.is_timeout() {
        return RegistryFailure::Timeout;
    }
    // A head beyond the bounds is among these.
    if error.is_parse() {
        return RegistryFailure::Protocol;
    }
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return of_io(io);
        }
        // It names no cause of its own, also where it has one.
        if let Some(error) = cause.downcast_ref::<h2::Error>() {
            return of_http2(error);
        }
        source = cause.source();
    }
    if error.is_canceled() || error.is_closed() || error.is_incomplete_message() {
        return RegistryFailure::Closed;
    }
    RegistryFailure::Protocol
}

/// The class of what ended a stream or a connection of HTTP/2.
fn of_http2(error: &h2::Error) -> RegistryFailure {
    if let Some(io) = error.get_io() {
        return of_io(io);
    }
    let gave_up = error.is_go_away()
        || matches!(error.reason(), Some(Reason::NO_ERROR | Reason::REFUSED_STREAM | Reason::CANCEL));
    // What the registry says, not what was found wrong with what it says.
    if error.is_remote() && gave_up { RegistryFailure::Closed } else { RegistryFailure::Protocol }
}

/// The class of a connection's failure after its handshake.
fn of_io(error: &io::Error) -> RegistryFailure {
    if error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<rustls::Error>) {
        return RegistryFailure::Tls;
    }
    match error.kind() {
        io::ErrorKind::TimedOut => RegistryFailure::Timeout,
        // Chunks that are none.
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => RegistryFailure::Protocol,
        _ => RegistryFailure::Closed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_record_is_one_of_tls_and_a_reset_a_close() {
        let broken = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::DecryptError);
        assert_eq!(of_io(&broken), RegistryFailure::Tls);
        assert_eq!(of_io(&io::ErrorKind::ConnectionReset.into()), RegistryFailure::Closed);
        assert_eq!(of_io(&io::ErrorKind::UnexpectedEof.into()), RegistryFailure::Closed);
        assert_eq!(of_io(&io::ErrorKind::InvalidData.into()), RegistryFailure::Protocol);
    }
}
