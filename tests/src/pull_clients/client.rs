//! The container clients, each told of the endpoint in its own way: that the images of a registry which no
//! resolver knows are had from the relay, and from nowhere else (PULL-03, PULL-04).

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::Failure;
use super::program::{Running, command};

/// The registry that references name. The domain exists nowhere (RFC 6761), so that the endpoint alone can
/// answer.
pub(super) const REGISTRY: &str = "registry.invalid";

/// How long containerd may take to serve.
const CONTAINERD_START: Duration = Duration::from_secs(20);
/// The longest path of a Unix socket, in bytes.
const SOCKET_PATH: usize = 107;
/// containerd's plugins that write or look outside its own folders.
const UNUSED_PLUGINS: [&str; 6] = [
    "io.containerd.grpc.v1.cri",
    "io.containerd.internal.v1.opt",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
];

/// A program that pulls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    /// `skopeo copy` into a folder.
    Skopeo,
    /// `podman pull`.
    Podman,
    /// `buildah pull`.
    Buildah,
    /// `ctr images pull` of containerd.
    Ctr,
}

impl Client {
    /// All of them.
    pub(super) const ALL: [Self; 4] = [Self::Skopeo, Self::Podman, Self::Buildah, Self::Ctr];
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Skopeo => "skopeo",
            Self::Podman => "podman",
            Self::Buildah => "buildah",
            Self::Ctr => "ctr",
        })
    }
}

/// Where a client pulls from and as whom.
pub(super) struct Endpoint {
    /// Host and port, over HTTPS.
    pub(super) authority: String,
    /// The root of its certificate, PEM.
    pub(super) root_pem: String,
    /// The node that pulls.
    pub(super) node: String,
    /// Its registry credential.
    pub(super) secret: String,
}

/// A client that is ready to pull. Its stores are empty and lie in a folder of its own.
pub(super) struct Prepared {
    /// What pulls.
    pub(super) command: Command,
    /// Where the blobs will lie as files that are named by their digest, for clients that keep them so.
    pub(super) kept: Option<std::path::PathBuf>,
    /// What serves the client while it pulls.
    pub(super) containerd: Option<Running>,
}

impl Client {
    /// Prepares a pull of `reference`, for skopeo with every platform of an index.
    ///
    /// # Errors
    /// [`Failure`] of the file system, or of containerd.
    pub(super) async fn prepare(
        self,
        folder: &Path,
        endpoint: &Endpoint,
        reference: &str,
    ) -> Result<Prepared, Failure> {
        let files = Files { folder };
        match self {
            Self::Skopeo => {
                let target = folder.join("pulled");
                files.of_containers(endpoint)?;
                let mut skopeo = command("skopeo", folder);
                skopeo.args(["--registries-conf", "registries.conf", "--policy", "policy.json"]);
                skopeo.args(["copy", "--all", "--authfile", "auth.json", "--src-cert-dir", "certificates"]);
                skopeo.arg(format!("docker://{reference}")).arg(format!("dir:{}", target.display()));
                Ok(Prepared { command: skopeo, kept: Some(target), containerd: None })
            }
            Self::Podman | Self::Buildah => {
                files.of_containers(endpoint)?;
                let mut pull = command(&self.to_string(), folder);
                for (variable, file) in [
                    ("CONTAINERS_CONF", "containers.conf"),
                    ("CONTAINERS_REGISTRIES_CONF", "registries.conf"),
                    ("CONTAINERS_STORAGE_CONF", "storage.conf"),
                ] {
                    pull.env(variable, folder.join(file));
                }
                pull.args(["pull", "-q", "--authfile", "auth.json", "--cert-dir", "certificates"]);
                pull.args(["--signature-policy", "policy.json", reference]);
                Ok(Prepared { command: pull, kept: None, containerd: None })
            }
            Self::Ctr => {
                files.of_containerd(endpoint)?;
                let socket = folder.join("s");
                let containerd = start_containerd(folder, &socket).await?;
                let mut ctr = command("ctr", folder);
                ctr.arg("--address").arg(&socket).args(["--namespace", "coreflow", "images", "pull"]);
                ctr.args(["--snapshotter", "native", "--hosts-dir", "hosts"]);
                ctr.args(["--user", &format!("{}:{}", endpoint.node, endpoint.secret), reference]);
                let kept = folder.join("root/io.containerd.content.v1.content/blobs/sha256");
                Ok(Prepared { command: ctr, kept: Some(kept), containerd: Some(containerd) })
            }
        }
    }
}

async fn start_containerd(folder: &Path, socket: &Path) -> Result<Running, Failure> {
    if socket.as_os_str().len() > SOCKET_PATH - ".ttrpc".len() {
        return Err(Failure::new("the temporary directory's path is too long for containerd's socket"));
    }
    let mut program = command("containerd", folder);
    program.args(["--config", "config.toml"]);
    let mut running = Running::start(program, &folder.join("containerd.said"))?;
    let serves = || std::os::unix::net::UnixStream::connect(socket).is_ok();
    running.wait_ready(CONTAINERD_START, serves).await?;
    Ok(running)
}

/// The configuration files of the clients, in one folder.
struct Files<'a> {
    folder: &'a Path,
}

impl Files<'_> {
    fn write(&self, path: &str, text: &str) -> Result<(), Failure> {
        let path = self.folder.join(path);
        let parent = path.parent().unwrap_or(self.folder);
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|error| Failure::new(format!("writing {}: {error}", path.display())))
    }

    /// For skopeo, podman and buildah. A `location` in the place of a mirror keeps them from dialling the
    /// reference's own registry; the credential is looked up by the endpoint's name.
    fn of_containers(&self, endpoint: &Endpoint) -> Result<(), Failure> {
        let Endpoint { authority, root_pem, node, secret } = endpoint;
        let folder = self.folder.display();
        let registries = format!(
            "unqualified-search-registries = []\n\
             [[registry]]\nprefix = \"{REGISTRY}\"\nlocation = \"{authority}\"\n"
        );
        self.write("registries.conf", &registries)?;
        self.write("certificates/ca.crt", root_pem)?;
        self.write("policy.json", r#"{"default": [{"type": "insecureAcceptAnything"}]}"#)?;
        let credential = STANDARD.encode(format!("{node}:{secret}"));
        self.write("auth.json", &json!({"auths": {authority: {"auth": credential}}}).to_string())?;
        let storage = format!(
            "[storage]\ndriver = \"vfs\"\ngraphroot = \"{folder}/graph\"\nrunroot = \"{folder}/run\"\n"
        );
        self.write("storage.conf", &storage)?;
        let containers = format!(
            "[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\nlock_type = \"file\"\n\
             tmp_dir = \"{folder}/tmp\"\n[network]\nnetwork_config_dir = \"{folder}/networks\"\n"
        );
        self.write("containers.conf", &containers)
    }

    /// For containerd. With `server` it stays with the endpoint when that does not answer.
    fn of_containerd(&self, endpoint: &Endpoint) -> Result<(), Failure> {
        let folder = self.folder.display();
        let authority = &endpoint.authority;
        self.write("ca.pem", &endpoint.root_pem)?;
        let hosts = format!(
            "server = \"https://{authority}\"\nca = \"{folder}/ca.pem\"\n\n[host.\"https://{authority}\"]\n  \
             capabilities = [\"pull\", \"resolve\"]\n  ca = \"{folder}/ca.pem\"\n"
        );
        self.write(&format!("hosts/{REGISTRY}/hosts.toml"), &hosts)?;
        let unused: Vec<String> = UNUSED_PLUGINS.iter().map(|plugin| format!("\"{plugin}\"")).collect();
        let config = format!(
            "version = 2\nroot = \"{folder}/root\"\nstate = \"{folder}/state\"\n\
             disabled_plugins = [{}]\n[grpc]\n  address = \"{folder}/s\"\n",
            unused.join(", ")
        );
        self.write("config.toml", &config)
    }
}
