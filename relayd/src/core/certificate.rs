//! The renewal of the listener's certificate over the session: what is fetched has to pass every check of
//! the first one, for the same domain; what fails leaves the serving one (XTR-08, XTR-09, XTR-11 –
//! XTR-13).

use std::time::Duration;

use coreflow_ipc::now::Now;
use tracing::{debug, info, warn};

use super::{Core, Effect, OwnCall, Turn, calls, calls::Purpose};
use crate::{certificate::Loaded, contract::cluster::CertificateAnswer, registration::Answered};

impl Core {
    /// When a renewal is due; none is without a session, parked, or during the stop (XTR-13).
    pub(super) fn certificate_deadline(&self, now: Now) -> Option<Duration> {
        let may = self.session.dispatchable() && !self.session.parked() && !self.stopping;
        may.then(|| self.renewal.next_deadline(now)).flatten()
    }

    pub(super) fn renew_certificate(&mut self, turn: &mut Turn) {
        if self.certificate_deadline(turn.now).is_none() || !self.renewal.begin(turn.now) {
            return;
        }
        let (Some(endpoint), Some(identity), Some(connection)) =
            (&self.endpoint, &self.identity, self.session.connection())
        else {
            return;
        };
        let domain = endpoint.origin.host().to_owned();
        let body = calls::get_certificate(identity, &domain);
        let method = OwnCall::Certificate { domain }.method();
        self.call(connection, method, body, Purpose::RenewCertificate, turn);
    }

    pub(super) fn certificate_answered(&mut self, answered: &Answered, turn: &mut Turn) {
        let endpoint = self.endpoint.as_mut().expect("only a listener's certificate is renewed");
        let domain = endpoint.origin.host();
        let loaded = match answered {
            Answered::Response(body) => body
                .read::<CertificateAnswer>()
                .map_err(|error| format!("unusable: {error}"))
                .and_then(|answer| {
                    Loaded::check(&answer.certificate, domain, turn.now.wall).map_err(|why| why.to_string())
                }),
            Answered::Refused(error) => Err(format!("refused: {}", error.text)),
            Answered::Failed(class) => Err(format!("failed: {class}")),
        };
        match loaded {
            Err(why) => {
                warn!(domain, "the certificate is not renewed, the former one stays: {why}");
                self.renewal.again(turn.now, turn.random);
            }
            // One that was issued earlier is no renewal; it comes of a Cloudly that is behind.
            Ok(loaded) if !loaded.chain().renews(&endpoint.certificate, turn.now.wall) => {
                debug!(domain, "Cloudly has no newer certificate yet");
                self.renewal.again(turn.now, turn.random);
            }
            Ok(loaded) => {
                endpoint.certificate = loaded.chain();
                let term = endpoint.certificate.term;
                info!(domain, valid_until = term.ends, "the listener's certificate is renewed");
                self.renewal.serves(term, turn.now, turn.random);
                turn.effects.push(Effect::Serve(loaded));
            }
        }
    }
}
