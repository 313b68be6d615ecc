//! The class of a failure: all that is kept of an error whose text may name what the exchange carried
//! (PULL-26, PULL-27, LOG-04).

use std::{error::Error, io};

use coreflow_ipc::messages::pulls::RegistryFailure;

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
        source = cause.source();
    }
    if error.is_canceled() || error.is_closed() || error.is_incomplete_message() {
        return RegistryFailure::Closed;
    }
    RegistryFailure::Protocol
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
