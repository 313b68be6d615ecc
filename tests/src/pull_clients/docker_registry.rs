//! A real docker-registry that verifies bearer tokens, and the pushing of blobs and manifests to it.

use std::net::{Ipv4Addr, SocketAddr, TcpStream as Probe};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;

use super::Failure;
use super::image::{Blob, Digesting};
use super::program::{Running, command};
use super::token::{Access, ISSUER, SERVICE, Signer};
use crate::free_port::free_port;

/// How long the registry may take to listen.
const START: Duration = Duration::from_secs(20);

/// The running registry, which speaks plain HTTP and keeps its blobs in a folder.
pub(super) struct DockerRegistry {
    address: SocketAddr,
    _running: Running,
}

impl DockerRegistry {
    /// Starts it in `folder`. Its challenges name `realm`, and it trusts `signer` alone.
    ///
    /// # Errors
    /// [`Failure`] when it does not listen.
    pub(super) async fn start(folder: &Path, realm: &str, signer: &Signer) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("docker-registry's folder: {error}"));
        std::fs::create_dir_all(folder).map_err(failed)?;
        let bundle = folder.join("signer.pem");
        std::fs::write(&bundle, &signer.certificate_pem).map_err(failed)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let configuration = json!({
            "version": "0.1",
            "log": {"level": "error", "accesslog": {"disabled": true}},
            "storage": {
                "filesystem": {"rootdirectory": folder.join("storage")},
                "maintenance": {"uploadpurging": {"enabled": false}},
            },
            "http": {"addr": address.to_string(), "secret": "of one run", "relativeurls": true},
            "auth": {"token": {
                "realm": realm,
                "service": SERVICE,
                "issuer": ISSUER,
                "rootcertbundle": bundle,
            }},
        });
        // JSON is YAML.
        let file = folder.join("configuration.yml");
        std::fs::write(&file, configuration.to_string()).map_err(failed)?;
        let mut program = command("docker-registry", folder);
        program.arg("serve").arg(&file);
        let mut running = Running::start(program, &folder.join("said"))?;
        running.wait_ready(START, || Probe::connect(address).is_ok()).await?;
        Ok(Self { address, _running: running })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who may push to `repository`.
    pub(super) fn push_to<'a>(&self, signer: &'a Signer, repository: &'a str) -> Push<'a> {
        Push { registry: self.address, signer, repository }
    }
}

/// Sends one request over a connection of its own; the body of the answer is still to come.
///
/// # Errors
/// [`Failure`] of the connection; a status is an answer.
pub(super) async fn request(
    registry: SocketAddr,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::new(format!("docker-registry: {error}"));
    let stream = TcpStream::connect(registry).await.map_err(|error| failed(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(|error| failed(&error))
}

/// A push to one repository.
pub(super) struct Push<'a> {
    registry: SocketAddr,
    signer: &'a Signer,
    repository: &'a str,
}

impl Push<'_> {
    /// The repository.
    pub(super) fn repository(&self) -> &str {
        self.repository
    }

    /// Pushes a blob piece by piece.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) async fn blob(&self, pieces: impl Iterator<Item = Bytes>) -> Result<Blob, Failure> {
        let begin = format!("/v2/{}/blobs/uploads/", self.repository);
        let (_, headers) = self.send(Method::POST, &begin, &[], Bytes::new(), StatusCode::ACCEPTED).await?;
        let mut place = location(&headers)?;
        let mut digesting = Digesting::new();
        for piece in pieces {
            digesting.take(&piece);
            let binary = [(header::CONTENT_TYPE, "application/octet-stream")];
            let (_, headers) = self.send(Method::PATCH, &place, &binary, piece, StatusCode::ACCEPTED).await?;
            place = location(&headers)?;
        }
        let blob = digesting.finish();
        let joint = if place.contains('?') { '&' } else { '?' };
        let end = format!("{place}{joint}digest={}", blob.digest);
        self.send(Method::PUT, &end, &[], Bytes::new(), StatusCode::CREATED).await?;
        Ok(blob)
    }

    /// Pushes a manifest, under its digest or a tag.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) async fn manifest(
        &self,
        media_type: &str,
        text: &str,
        tag: Option<&str>,
    ) -> Result<Blob, Failure> {
        let mut digesting = Digesting::new();
        digesting.take(text.as_bytes());
        let own = digesting.finish();
        let path = format!("/v2/{}/manifests/{}", self.repository, tag.unwrap_or(&own.digest));
        let typed = [(header::CONTENT_TYPE, media_type)];
        let text = Bytes::copy_from_slice(text.as_bytes());
        self.send(Method::PUT, &path, &typed, text, StatusCode::CREATED).await?;
        Ok(own)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(header::HeaderName, &str)],
        body: Bytes,
        expected: StatusCode,
    ) -> Result<(Bytes, HeaderMap), Failure> {
        let actions = ["pull", "push"].map(str::to_owned).to_vec();
        let access = Access { repository: self.repository.to_owned(), actions };
        let bearer = format!("Bearer {}", self.signer.token("pusher", &[access]));
        let mut asked = Request::builder()
            .method(&method)
            .uri(path)
            .header(header::HOST, self.registry.to_string())
            .header(header::AUTHORIZATION, bearer);
        for (name, value) in headers {
            asked = asked.header(name, *value);
        }
        let what = format!("docker-registry, {method} of a push");
        let asked = asked.body(Full::new(body)).map_err(|error| Failure::new(format!("{what}: {error}")))?;
        let (head, body) = request(self.registry, asked).await?.into_parts();
        let body = body.collect().await.map_err(|error| Failure::new(format!("{what}: {error}")))?;
        let body = body.to_bytes();
        if head.status != expected {
            let text = String::from_utf8_lossy(&body);
            return Err(Failure::new(format!("{what}: {} {text}", head.status)));
        }
        Ok((body, head.headers))
    }
}

fn location(headers: &HeaderMap) -> Result<String, Failure> {
    let location = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    location.map(str::to_owned).ok_or_else(|| Failure::new("docker-registry: an upload without a location"))
}
