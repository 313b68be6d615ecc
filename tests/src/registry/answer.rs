//! Raw answers of a registry.

/// The head of an answer: `status` is code and words, as `200 OK`; the headers stand as they are given.
pub fn head(status: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\n{lines}\r\n").into_bytes()
}

/// An answer with `body`, whose length is stated unless the headers state one.
pub fn reply(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let length = body.len().to_string();
    let mut headers = headers.to_vec();
    if headers.iter().all(|(name, _)| !name.eq_ignore_ascii_case("content-length")) {
        headers.push(("Content-Length", &length));
    }
    [head(status, &headers), body.to_vec()].concat()
}
