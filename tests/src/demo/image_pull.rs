//! What a node's container runtime sees of the relay: the challenge, the token, the manifest, the layer, and the
//! answer to a write. Each step fails where the registry, asked directly, would have said something else, or
//! would have heard of it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::{DemoFailure, step};
use crate::cloudly::{Cloudly, Step};
use crate::dial::Target;
use crate::https::{HttpAnswer, https_request};
use crate::pallet::PalletNode;
use crate::registry::{Registry, reply};
use crate::waiting::{BOUND, within};

const CREDENTIAL: &str = "getRuntimeRegistryCredential";
const SECRET: &str = "the-node's-registry-secret";
const TOKEN: &str = "a-token-for-pulls";
const MANIFEST: &str = "/v2/team/app/manifests/v1";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// Bytes of the layer: far more than any buffer on its way.
const LAYER: usize = 8 << 20;
/// Between two tries while pulls are refused as not served yet.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(20);

/// The registry, the node that pulls, and the way between them.
pub(super) struct ImagePull {
    registry: Registry,
    registry_origin: String,
    relay: Target,
    relay_origin: String,
    manifest_digest: String,
}

impl ImagePull {
    /// A registry at `cloudly`'s origin that holds one image and gives it to whoever has a token of its own.
    pub(super) fn at(cloudly: &Cloudly, relay: Target, relay_origin: String) -> Self {
        let mut layer = vec![0; LAYER];
        getrandom::fill(&mut layer).expect("the system has random numbers");
        let layer_digest = digest_of(&layer);
        let layers = json!([{"digest": layer_digest, "size": LAYER}]);
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "layers": layers}).to_string();
        let manifest_digest = digest_of(manifest.as_bytes());
        let registry_origin = cloudly.url();
        let challenge =
            format!(r#"Bearer realm="{registry_origin}/v2/token?account=node",service="{registry_origin}""#);
        let refused = reply("401 Unauthorized", &[("WWW-Authenticate", &challenge)], b"{}");
        let token = reply("200 OK", &[], json!({"token": TOKEN}).to_string().as_bytes());
        let headers = [("Content-Type", MANIFEST_TYPE), ("Docker-Content-Digest", &manifest_digest)];
        let manifest = reply("200 OK", &headers, manifest.as_bytes());
        let blob = reply("200 OK", &[("Docker-Content-Digest", &layer_digest)], &layer);
        let blob_path = blob_path(&layer_digest);
        let answers = std::sync::Arc::new((refused, token, manifest, blob, blob_path));
        let registry = Registry::default();
        registry.script(move |exchange| {
            let answers = std::sync::Arc::clone(&answers);
            async move {
                let (refused, token, manifest, blob, blob_path) = &*answers;
                let asked = &exchange.asked;
                let with = |authorization: &str| asked.get("authorization") == Some(authorization);
                let (basic, bearer) = (with(&basic(SECRET)), with(&format!("Bearer {TOKEN}")));
                let answer = match asked.target.as_str() {
                    "/v2/token?account=node" if basic => token.clone(),
                    MANIFEST if bearer => manifest.clone(),
                    path if path == blob_path && bearer => blob.clone(),
                    _ => refused.clone(),
                };
                exchange.answer(answer).await
            }
        });
        cloudly.pulls_from(&registry);
        Self { registry, registry_origin, relay, relay_origin, manifest_digest }
    }

    /// Pulls the image, and tries to write to it.
    pub(super) async fn tell(&self, cloudly: &Cloudly, node: &PalletNode) -> Result<(), DemoFailure> {
        let credential = self.credential(cloudly, node);
        let secret = step("a node got its registry credential from Cloudly", credential).await?;
        let challenged = self.challenged();
        let token_path = step("its pull was challenged, the realm being the relay's", challenged).await?;
        let token = self.token(&token_path, &secret);
        let bearer = step("it got a token by way of the relay", token).await?;
        let layer = self.manifest(&bearer);
        let layer = step("the manifest came under the registry's digest", layer).await?;
        step("a layer of 8 MiB came through, and its digest is right", self.layer(&layer, &bearer)).await?;
        step("a write was refused with 405, unheard by the registry", self.write(&bearer)).await
    }

    /// Pulls the image with the token that is still good.
    pub(super) async fn again(&self) -> Result<(), String> {
        let bearer = format!("Bearer {TOKEN}");
        let layer = self.manifest(&bearer).await?;
        self.layer(&layer, &bearer).await
    }

    async fn credential(&self, cloudly: &Cloudly, node: &PalletNode) -> Result<String, String> {
        cloudly.once(CREDENTIAL, Step::Answer(json!({"secret": SECRET}).to_string()));
        let binding = node.binding().ok_or("the node has no binding")?;
        let asked = node.request(CREDENTIAL, &format!(r#"{{"session":{binding}}}"#)).await;
        let answer = asked.map_err(|error| error.to_string())?;
        let answer = answer.outcome().map_err(|refusal| refusal.to_string())?;
        let answer: Value = serde_json::from_str(answer.get()).map_err(|error| error.to_string())?;
        answer["secret"].as_str().map(str::to_owned).ok_or_else(|| "it has no secret".to_owned())
    }

    /// The path of the token endpoint, which has to be at the relay's origin, for an audience that stays the
    /// registry's.
    async fn challenged(&self) -> Result<String, String> {
        let answer = self.ask("GET", MANIFEST, None).await?;
        expect(answer.status, 401)?;
        let challenge = header(&answer, "www-authenticate");
        let before = format!(r#"Bearer realm="{}"#, self.relay_origin);
        let after = format!(r#"",service="{}""#, self.registry_origin);
        let path = challenge.strip_prefix(&before).and_then(|rest| rest.strip_suffix(&after));
        path.map(str::to_owned).ok_or_else(|| format!("the challenge is {challenge}"))
    }

    async fn token(&self, path: &str, secret: &str) -> Result<String, String> {
        let answer = self.ask("GET", path, Some(&basic(secret))).await?;
        expect(answer.status, 200)?;
        let answer: Value = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
        answer["token"].as_str().map(|token| format!("Bearer {token}")).ok_or_else(|| "no token".to_owned())
    }

    /// The digest of the layer.
    async fn manifest(&self, bearer: &str) -> Result<String, String> {
        let answer = self.ask("GET", MANIFEST, Some(bearer)).await?;
        expect(answer.status, 200)?;
        let stated = header(&answer, "docker-content-digest");
        if stated != self.manifest_digest || digest_of(&answer.body) != stated {
            return Err(format!("the manifest is not the one of {}", self.manifest_digest));
        }
        let manifest: Value = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
        let layer = manifest["layers"][0]["digest"].as_str();
        layer.map(str::to_owned).ok_or_else(|| "the manifest names no layer".to_owned())
    }

    async fn layer(&self, layer: &str, bearer: &str) -> Result<(), String> {
        let answer = self.ask("GET", &blob_path(layer), Some(bearer)).await?;
        expect(answer.status, 200)?;
        let length = answer.body.len();
        if header(&answer, "content-length") != LAYER.to_string() || digest_of(&answer.body) != layer {
            return Err(format!("the {length} bytes that came are not those of {layer}"));
        }
        Ok(())
    }

    async fn write(&self, bearer: &str) -> Result<(), String> {
        let heard = self.registry.count();
        let answer = self.ask("PUT", MANIFEST, Some(bearer)).await?;
        expect(answer.status, 405)?;
        let text = String::from_utf8_lossy(&answer.body);
        if header(&answer, "allow") != "GET, HEAD" || !text.contains("pull-method-refused: ") {
            return Err(format!("the refusal is {text}"));
        }
        match self.registry.count() - heard {
            0 => Ok(()),
            more => Err(format!("the registry heard {more} requests")),
        }
    }

    /// One request. One that finds the pull worker on its way up is made again, as a runtime does.
    async fn ask(&self, method: &str, path: &str, authorization: Option<&str>) -> Result<HttpAnswer, String> {
        let headers: Vec<_> = authorization.map(|value| ("authorization", value)).into_iter().collect();
        let answered = async {
            loop {
                let answer = https_request(&self.relay, method, path, &headers, "").await;
                let answer = answer.map_err(|failure| failure.to_string())?;
                if answer.status != 503 {
                    return Ok(answer);
                }
                tokio::time::sleep(AGAIN).await;
            }
        };
        within(BOUND, "pull that is served", answered).await.map_err(|late| late.to_string())?
    }
}

fn blob_path(digest: &str) -> String {
    format!("/v2/team/app/blobs/{digest}")
}

fn basic(secret: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("node:{secret}")))
}

fn digest_of(bytes: &[u8]) -> String {
    let hex: String = digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn header<'a>(answer: &'a HttpAnswer, name: &str) -> &'a str {
    answer.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn expect(status: u16, expected: u16) -> Result<(), String> {
    if status == expected { Ok(()) } else { Err(format!("the answer is {status}, not {expected}")) }
}
