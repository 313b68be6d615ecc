//! The head of the registry's answer: what of it crosses, and the length of its body (PULL-11, PULL-21,
//! PULL-22, PULL-24, PULL-25).

use coreflow_ipc::messages::pulls::{AnswerHeader, HEAD_BYTES, HEAD_HEADERS, RegistryFailure};
use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING},
    response::Parts,
};

use crate::{challenge, notices::Notices, origin::Origin, registry::Registry};

/// What crosses of an answer's head.
pub struct AnswerHead {
    /// HTTP status, 200 to 599.
    pub status: u16,
    /// The headers that cross.
    pub headers: Vec<(AnswerHeader, Vec<u8>)>,
    /// The length that is stated to the node.
    pub length: Option<u64>,
    /// The length of the body as it comes, if the registry stated it.
    pub coming: Option<u64>,
    /// No body comes.
    pub bodyless: bool,
}

/// Selects what crosses of `parts`, the answer to a HEAD if `to_head`.
///
/// # Errors
/// [`RegistryFailure::Protocol`]: it is no answer, contradicts itself or is beyond the bounds.
pub fn selected(
    parts: &Parts,
    to_head: bool,
    registry: &Registry,
    notices: &Notices,
) -> Result<AnswerHead, RegistryFailure> {
    let status = parts.status.as_u16();
    if !(200..600).contains(&status) {
        return Err(RegistryFailure::Protocol);
    }
    let (mut headers, mut bytes) = (Vec::new(), 0);
    for (name, value) in &parts.headers {
        let Some(header) = AnswerHeader::of(name.as_str()) else { continue };
        let value = crossing(header, value.as_bytes(), registry, notices);
        bytes += header.name().len() + value.len();
        headers.push((header, value));
    }
    if headers.len() > HEAD_HEADERS || bytes > HEAD_BYTES {
        return Err(RegistryFailure::Protocol);
    }
    let coming = stated_length(&parts.headers)?;
    let bodyless = to_head || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let length = coming.filter(|_| !is_encoded(&parts.headers));
    Ok(AnswerHead { status, headers, length, coming, bodyless })
}

/// The value of `header` as it crosses: a challenge with its realm moved, anything else as it came.
fn crossing(header: AnswerHeader, value: &[u8], registry: &Registry, notices: &Notices) -> Vec<u8> {
    match header {
        AnswerHeader::WwwAuthenticate => {
            let (moved, realms) = challenge::rewritten(value, &registry.origin, &registry.relay);
            realms.iter().for_each(|realm| notices.realm(realm));
            return moved;
        }
        AnswerHeader::Location if is_at(value, &registry.origin) => notices.own_location(&registry.origin),
        AnswerHeader::Link if links_to(value, &registry.origin) => notices.own_link(&registry.origin),
        AnswerHeader::AcceptRanges
        | AnswerHeader::CacheControl
        | AnswerHeader::ContentDisposition
        | AnswerHeader::ContentEncoding
        | AnswerHeader::ContentRange
        | AnswerHeader::ContentType
        | AnswerHeader::Date
        | AnswerHeader::DockerContentDigest
        | AnswerHeader::DockerDistributionApiVersion
        | AnswerHeader::DockerRatelimitSource
        | AnswerHeader::Etag
        | AnswerHeader::Expires
        | AnswerHeader::LastModified
        | AnswerHeader::Link
        | AnswerHeader::Location
        | AnswerHeader::OciFiltersApplied
        | AnswerHeader::OciSubject
        | AnswerHeader::RatelimitLimit
        | AnswerHeader::RatelimitRemaining
        | AnswerHeader::RetryAfter
        | AnswerHeader::Vary
        | AnswerHeader::Warning => {}
    }
    value.to_vec()
}

fn is_at(url: &[u8], registry: &Origin) -> bool {
    Origin::of_url(url).is_some_and(|(origin, _)| origin == *registry)
}

/// Whether a target of the links, each in angle brackets, is at `registry`.
fn links_to(links: &[u8], registry: &Origin) -> bool {
    let targets = links.split(|byte| *byte == b'<').skip(1);
    targets.filter_map(|link| link.split(|byte| *byte == b'>').next()).any(|target| is_at(target, registry))
}

/// The length that all of the lines state; chunks have none, whatever is stated beside them (RFC 9112, 6.3).
/// The answer to a HEAD states that of another answer, and nobody else compares its lines.
fn stated_length(headers: &HeaderMap) -> Result<Option<u64>, RegistryFailure> {
    if headers.contains_key(TRANSFER_ENCODING) {
        return Ok(None);
    }
    let mut length = None;
    for line in headers.get_all(CONTENT_LENGTH) {
        for part in line.as_bytes().split(|byte| *byte == b',') {
            let text = std::str::from_utf8(part.trim_ascii()).map_err(|_| RegistryFailure::Protocol)?;
            // A number's own parser takes a sign.
            if !text.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(RegistryFailure::Protocol);
            }
            let stated = text.parse().map_err(|_| RegistryFailure::Protocol)?;
            if length.replace(stated).is_some_and(|before| before != stated) {
                return Err(RegistryFailure::Protocol);
            }
        }
    }
    Ok(length)
}

/// Whether the registry encoded the body although it was asked not to.
fn is_encoded(headers: &HeaderMap) -> bool {
    let mut values =
        headers.get_all(CONTENT_ENCODING).iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    values.any(|value| {
        !matches!(value.trim_ascii(), b"") && !value.trim_ascii().eq_ignore_ascii_case(b"identity")
    })
}

#[cfg(test)]
mod tests;
