//! The answers to pulls: the registry's, and the relay's own refusals by name, as bodies that clients of
//! registries read (contract section 7).

use bytes::Bytes;
use coreflow_ipc::messages::pulls::{PullAnswer, RegistryFailure};
use http::{
    HeaderName, HeaderValue, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER},
};

use super::{PullBody, PullFailure, WholeBody};
use crate::refusals::{PULL_CONNECTIONS_FULL, PULL_REGISTRY_UNREACHABLE, PULL_WORKER_UNAVAILABLE};

/// A refusal by name.
pub fn refusal(status: StatusCode, name: &str, reason: &str) -> Response<PullBody> {
    let message = format!("{name}: {reason}");
    let body = serde_json::json!({ "errors": [{ "code": "UNSUPPORTED", "message": message }] }).to_string();
    let length = body.len();
    let mut response = Response::new(PullBody::Whole(WholeBody::own(Bytes::from(body))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    response
}

/// A refusal of what may be asked again.
pub fn unavailable(name: &str, reason: &str) -> Response<PullBody> {
    let mut refusal = refusal(StatusCode::SERVICE_UNAVAILABLE, name, reason);
    refusal.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    refusal
}

/// The relay's own answer to a pull that the registry did not answer (PULL-26).
pub fn failed(failure: PullFailure) -> Response<PullBody> {
    match failure {
        PullFailure::Registry(failure) => {
            refusal(StatusCode::BAD_GATEWAY, PULL_REGISTRY_UNREACHABLE, failure.class())
        }
        PullFailure::WorkerUnavailable => {
            unavailable(PULL_WORKER_UNAVAILABLE, "the pull worker does not serve")
        }
        PullFailure::Full => unavailable(PULL_CONNECTIONS_FULL, "as many pulls are under way as may"),
    }
}

/// The registry's answer (PULL-24, PULL-25).
///
/// # Errors
/// It is none that HTTP knows.
pub fn passed(answer: PullAnswer, body: PullBody) -> Result<Response<PullBody>, PullFailure> {
    response(answer, body).ok_or(PullFailure::Registry(RegistryFailure::Protocol))
}

fn response(answer: PullAnswer, body: PullBody) -> Option<Response<PullBody>> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(answer.status).ok().filter(|status| !status.is_informational())?;
    let headers = response.headers_mut();
    headers.reserve(answer.headers.len() + 1);
    for (header, value) in answer.headers {
        let value = HeaderValue::from_maybe_shared(Bytes::from(value)).ok()?;
        headers.append(HeaderName::from_static(header.name()), value);
    }
    if let Some(length) = answer.length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use coreflow_ipc::messages::pulls::{AnswerBody, AnswerHeader};

    use super::*;

    fn answer(status: u16, headers: Vec<(AnswerHeader, Vec<u8>)>, length: Option<u64>) -> PullAnswer {
        PullAnswer { status, headers, length, body: AnswerBody::Nothing }
    }

    fn answered(answer: PullAnswer) -> Response<PullBody> {
        passed(answer, PullBody::Nothing).unwrap_or_else(failed)
    }

    /// PULL-21, PULL-22, PULL-24: the headers that crossed, repeated ones as they came, and the length only
    /// where one is stated.
    #[test]
    fn the_registrys_head_is_the_answers() {
        let challenges = ["Basic realm=\"a\"", "Bearer realm=\"b\""];
        let headers =
            challenges.map(|value| (AnswerHeader::WwwAuthenticate, value.as_bytes().to_vec())).to_vec();
        let response = answered(answer(401, headers, Some(1234)));
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        let both: Vec<_> = response.headers().get_all("www-authenticate").iter().collect();
        assert_eq!(both, challenges);
        assert_eq!(response.headers()[CONTENT_LENGTH], "1234");
        let response = answered(answer(200, Vec::new(), None));
        assert!(response.headers().is_empty());
    }

    /// PULL-26: a failure is answered with its class; what pulld makes up is one as well.
    #[test]
    fn a_failure_is_answered_by_its_class() {
        let split = vec![(AnswerHeader::Etag, b"a\r\nset-cookie: b".to_vec())];
        for (response, status, name) in [
            (failed(PullFailure::Registry(RegistryFailure::Dns)), 502, "pull-registry-unreachable: dns"),
            (answered(answer(99, Vec::new(), None)), 502, "pull-registry-unreachable: protocol"),
            (answered(answer(101, Vec::new(), None)), 502, "pull-registry-unreachable: protocol"),
            (answered(answer(200, split, None)), 502, "pull-registry-unreachable: protocol"),
            (failed(PullFailure::WorkerUnavailable), 503, "pull-worker-unavailable: "),
            (failed(PullFailure::Full), 503, "pull-connections-full: "),
        ] {
            assert_eq!(response.status().as_u16(), status);
            let retry = (status == 503).then(|| HeaderValue::from_static("1"));
            assert_eq!(response.headers().get(RETRY_AFTER), retry.as_ref());
            let PullBody::Whole(body) = response.into_body() else { panic!("{name}") };
            let text = std::str::from_utf8(body.bytes()).unwrap();
            let start = format!(r#"{{"errors":[{{"code":"UNSUPPORTED","message":"{name}"#);
            assert!(text.starts_with(&start), "{text}");
        }
    }
}
