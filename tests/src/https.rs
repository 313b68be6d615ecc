//! A plain HTTPS client for one request, HTTP/1.1 or HTTP/2 as ALPN settles it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Version};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::dial::{DialFailure, Target, tls};

/// How long request and whole answer may take.
const BOUND: Duration = Duration::from_secs(30);

/// A whole answer.
#[derive(Debug, Clone)]
pub struct HttpAnswer {
    /// The protocol it came over.
    pub version: Version,
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Why there is no whole answer.
#[derive(Debug)]
pub enum HttpFailure {
    /// The server was not reached.
    Dial(DialFailure),
    /// The request could not be built.
    Request(http::Error),
    /// The connection failed before the answer was whole.
    Broken(hyper::Error),
    /// The answer took longer than thirty seconds.
    Late,
}

impl fmt::Display for HttpFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dial(failure) => failure.fmt(f),
            Self::Request(error) => write!(f, "no request: {error}"),
            Self::Broken(error) => write!(f, "no whole answer: {error}"),
            Self::Late => write!(f, "no whole answer within {} ms", BOUND.as_millis()),
        }
    }
}

impl std::error::Error for HttpFailure {}

/// Sends one request on a connection of its own and reads the whole answer. HTTP/2 is spoken
/// when the client configuration offers `h2` and the server takes it.
///
/// # Errors
/// [`HttpFailure`]; a status is an answer, not an error.
pub async fn https_request(
    target: &Target,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<HttpAnswer, HttpFailure> {
    let exchange = exchange(target, method, path, headers, Bytes::copy_from_slice(body.as_bytes()));
    tokio::time::timeout(BOUND, exchange).await.unwrap_or(Err(HttpFailure::Late))
}

async fn exchange(
    target: &Target,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Result<HttpAnswer, HttpFailure> {
    let stream = tls(target).await.map_err(HttpFailure::Dial)?;
    let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let authority = format!("{}:{}", target.server_name, target.address.port());
    let mut request = Request::builder().method(method);
    request = if two {
        request.uri(format!("https://{authority}{path}"))
    } else {
        request.uri(path).header(http::header::HOST, authority)
    };
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body)).map_err(HttpFailure::Request)?;
    let io = TokioIo::new(stream);
    let response = if two {
        let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
            .await
            .map_err(HttpFailure::Broken)?;
        tokio::spawn(connection);
        sender.send_request(request).await
    } else {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(io).await.map_err(HttpFailure::Broken)?;
        tokio::spawn(connection);
        sender.send_request(request).await
    };
    let (head, body) = response.map_err(HttpFailure::Broken)?.into_parts();
    let body = body.collect().await.map_err(HttpFailure::Broken)?.to_bytes();
    Ok(HttpAnswer { version: head.version, status: head.status.as_u16(), headers: head.headers, body })
}

#[cfg(test)]
mod tests {
    use hyper::service::service_fn;
    use tokio::net::TcpListener;

    use super::*;
    use crate::authority::{Authority, server_config};

    /// Both protocols carry method, path, header, status and body.
    #[tokio::test]
    async fn one_request_over_either_protocol() {
        let authority = Authority::new();
        let name = "relay.localhost.test";
        let acceptor =
            tokio_rustls::TlsAcceptor::from(server_config(&authority.issue(&[name]), &["h2", "http/1.1"]));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let stream = acceptor.accept(stream).await.unwrap();
                let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
                    let heard = format!(
                        "{} {} {:?}",
                        request.method(),
                        request.uri().path(),
                        request.headers()["x-seen"]
                    );
                    http::Response::builder()
                        .status(418)
                        .header("x-heard", heard)
                        .body(Full::new(Bytes::from("tea")))
                });
                tokio::spawn(async move {
                    let io = TokioIo::new(stream);
                    if two {
                        drop(
                            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                                .serve_connection(io, service)
                                .await,
                        );
                    } else {
                        drop(hyper::server::conn::http1::Builder::new().serve_connection(io, service).await);
                    }
                });
            }
        });
        for (alpn, version) in
            [(&["h2"][..], Version::HTTP_2), (&["http/1.1"], Version::HTTP_11), (&[], Version::HTTP_11)]
        {
            let target = Target { address, server_name: name.to_owned(), tls: authority.client_config(alpn) };
            let answer = https_request(&target, "PUT", "/v2/", &[("x-seen", "yes")], "body").await.unwrap();
            assert_eq!((answer.version, answer.status, &answer.body[..]), (version, 418, &b"tea"[..]));
            assert_eq!(answer.headers["x-heard"], r#"PUT /v2/ "yes""#);
        }
    }
}
