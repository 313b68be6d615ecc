//! The registry of a run, whole: a docker-registry with its images, and the origin in front of it.

use std::path::Path;
use std::sync::Arc;

use super::Failure;
use super::docker_registry::DockerRegistry;
use super::image::{self, Image, PLATFORMS, own_platform};
use super::origin::{Origin, TOKEN_PATH};
use super::token::Signer;

/// The content of the large image's largest layer, in bytes.
const LARGE: usize = 300_000_000;
/// That of the image that is pulled most, in bytes.
const PLAIN: usize = 20_000_000;
/// That of each platform's, and of the image that nobody may pull, in bytes.
const SMALL: usize = 4_000_000;
/// The repository that no token allows anything of.
const WITHHELD: &str = "coreflow/withheld";

/// What can be pulled.
pub(super) struct Images {
    /// With a layer of 300 MB.
    pub(super) large: Image,
    /// With one of 20 MB.
    pub(super) plain: Image,
    /// An index over two platforms.
    pub(super) index: Image,
    /// What nobody may pull.
    pub(super) withheld: Image,
}

/// The running registry.
pub(super) struct Stock {
    /// What is in front of it.
    pub(super) origin: Origin,
    /// What it holds.
    pub(super) images: Images,
    _registry: DockerRegistry,
}

impl Stock {
    /// Starts it below `folder` and pushes its images. `published` is the origin under which nodes or a relay
    /// reach [`Stock::origin`], which the challenges name.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) async fn start(folder: &Path, published: &str) -> Result<Self, Failure> {
        let signer = Arc::new(Signer::new());
        let realm = format!("{published}{TOKEN_PATH}");
        let registry = DockerRegistry::start(&folder.join("registry"), &realm, &signer).await?;
        let own = own_platform().ok_or_else(|| Failure::new("images are made for amd64 and arm64 alone"))?;
        let push = |repository: &'static str| registry.push_to(&signer, repository);
        let images = Images {
            large: image::push(&push("coreflow/large"), &[own], LARGE).await?,
            plain: image::push(&push("coreflow/plain"), &[own], PLAIN).await?,
            index: image::push(&push("coreflow/index"), &PLATFORMS, SMALL).await?,
            withheld: image::push(&push(WITHHELD), &[own], SMALL).await?,
        };
        let origin = Origin::start(registry.address(), signer, WITHHELD).await;
        let origin = origin.map_err(|error| Failure::new(format!("the registry's origin: {error}")))?;
        Ok(Self { origin, images, _registry: registry })
    }
}
