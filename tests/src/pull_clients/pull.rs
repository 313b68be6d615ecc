//! The pulls of a run, and what has to be true of each.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::client::{Client, Endpoint, Prepared, REGISTRY};
use super::evidence::{
    asked_by_the_relay, asked_whole, blob_path, cut_answer, given_whole, kept_whole, resumed,
};
use super::image::{Blob, Image, own_platform};
use super::origin::Seen;
use super::program::{Ended, run};
use super::relayed::Relayed;
use super::stock::Stock;
use super::way::{NODES, Way};
use super::{Failure, Options};

/// How long one pull may take.
const PULL: Duration = Duration::from_secs(120);

/// The most that a process of the relay may ever have held, in KiB: a third of the large layer.
const PEAK_KIB: u64 = 100_000;

/// A running registry, and what leads to it.
pub(super) struct Stage {
    way: Way,
    registry: Stock,
    // Removed when no process writes there any longer.
    folder: TempDir,
}

/// How a reference names an image.
#[derive(Clone, Copy)]
enum By {
    Digest,
    Tag,
}

fn reference(image: &Image, by: By) -> String {
    match by {
        By::Digest => format!("{REGISTRY}/{}@{}", image.repository, image.digest),
        By::Tag => format!("{REGISTRY}/{}:{}", image.repository, image.tag),
    }
}

impl Stage {
    pub(super) async fn start(options: &Options) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let (way, registry) = Way::start(folder.path(), options).await?;
        Ok(Self { way, registry, folder })
    }

    /// Does every pull with a line each, and gives the number of those that failed.
    pub(super) async fn pull_all(&self) -> usize {
        let images = &self.registry.images;
        let mut failed = 0;
        for (client, node) in Client::ALL.into_iter().zip(NODES.into_iter().cycle()) {
            let endpoint = self.way.endpoint(node);
            let (large, size) = match client {
                Client::Skopeo | Client::Ctr => (&images.large, 300),
                Client::Podman | Client::Buildah => (&images.plain, 20),
            };
            let name = format!("{client} by digest, a layer of {size} MB");
            failed += line(&name, self.pull(client, &endpoint, large, By::Digest)).await;
            let name = format!("{client} by tag");
            failed += line(&name, self.pull(client, &endpoint, &images.plain, By::Tag)).await;
            let name = format!("{client} through an index");
            failed += line(&name, self.pull(client, &endpoint, &images.index, By::Digest)).await;
            failed += line(&format!("{client}, cut in a layer"), self.cut(client, &endpoint)).await;
        }
        let wrong = Endpoint { secret: "of nobody".to_owned(), ..self.way.endpoint(NODES[0]) };
        failed += line("a wrong credential gets no token", self.refused(&wrong, &images.plain)).await;
        let own = self.way.endpoint(NODES[0]);
        failed += line("what no token allows is not pulled", self.refused(&own, &images.withheld)).await;
        if let Way::Relayed(relayed) = &self.way {
            failed += line("the same reference from the registry itself", self.past_the_relay(relayed)).await;
            failed += line("no secret in the relay's log", async { self.kept_secret(relayed) }).await;
            failed += line("no layer in the relay's memory", async { kept_small(relayed) }).await;
        }
        if let (Way::Relayed(relayed), 1..) = (&self.way, failed) {
            relayed.relay.lines().iter().for_each(|line| eprintln!("relay: {}", line.text));
        }
        failed
    }

    /// One pull by way of what the run is about, with everything that has to be true of it.
    async fn pull(
        &self,
        client: Client,
        endpoint: &Endpoint,
        image: &Image,
        by: By,
    ) -> Result<String, Failure> {
        let (seen, facts) = self.pull_whole(client, endpoint, image, by).await?;
        self.check_way(&seen)?;
        Ok(facts)
    }

    /// PULL-10, PULL-16, PULL-20, PULL-25: what reached the registry came from the relay, in a relay's form. The
    /// tokens too: a client trusts the relay's certificate alone, so a realm at the registry is none it can ask.
    fn check_way(&self, seen: &[Seen]) -> Result<(), Failure> {
        match &self.way {
            Way::Direct(_) => Ok(()),
            Way::Relayed(relayed) => asked_by_the_relay(seen, &relayed.registry_host),
        }
    }

    /// PULL-01, PULL-05, PULL-08, PULL-12, PULL-15, PULL-19: the client succeeds, the registry gave out every blob
    /// for tokens that the node's own credential bought, and what the client keeps as files has the right digests.
    async fn pull_whole(
        &self,
        client: Client,
        endpoint: &Endpoint,
        image: &Image,
        by: By,
    ) -> Result<(Vec<Seen>, String), Failure> {
        let folder = self.fresh_folder()?;
        let prepared = client.prepare(folder.path(), endpoint, &reference(image, by)).await?;
        let Prepared { command, kept, containerd: _containerd } = prepared;
        let (ended, seen) = self.attempt(command, folder.path()).await?;
        if !ended.succeeded {
            return Err(Failure::new(ended.words));
        }
        let (manifests, blobs) = wanted(client, image)?;
        let asked = asked_whole(&seen, &endpoint.node, &image.repository, &blobs)?;
        if let Some(kept) = kept {
            let digests = manifests.into_iter().chain(blobs.iter().map(|blob| blob.digest.clone()));
            kept_whole(&kept, &digests.collect())?;
        }
        let bytes: u64 = blobs.iter().map(|blob| blob.size).sum();
        let facts = format!(
            "{} blobs, {:.1} MB, {} requests, tokens: {}",
            blobs.len(),
            bytes as f64 / 1e6,
            asked.requests,
            asked.tokens
        );
        Ok((seen, facts))
    }

    /// PULL-18: the registry's connection breaks in the middle of a layer. The first half has reached the client by
    /// then, and no client takes it for the whole: it asks for the rest by a range, as containerd does, or for all
    /// of it, or fails and has the layer when it pulls again.
    async fn cut(&self, client: Client, endpoint: &Endpoint) -> Result<String, Failure> {
        let image = &self.registry.images.plain;
        let layer = &image.large;
        let path = blob_path(&image.repository, &layer.digest);
        let folder = self.fresh_folder()?;
        self.registry.origin.cut_next(&layer.digest, layer.size / 2);
        let prepared = client.prepare(folder.path(), endpoint, &reference(image, By::Digest)).await?;
        let Prepared { command, kept, containerd } = prepared;
        let attempt = self.attempt(command, folder.path()).await;
        self.registry.origin.cut_none();
        let (ended, seen) = attempt?;
        self.check_way(&seen)?;
        let cut = cut_answer(&seen, &path, layer)
            .map_err(|failure| Failure::new(format!("{failure}; {}", ended.words)))?;
        let kept_whole = |manifests| kept.as_deref().map_or(Ok(()), |kept| kept_whole(kept, &manifests));
        let (manifests, blobs) = wanted(client, image)?;
        let digests: BTreeSet<String> =
            manifests.into_iter().chain(blobs.iter().map(|blob| blob.digest.clone())).collect();
        if ended.succeeded {
            let went_on = match resumed(&seen, &path, cut) {
                Ok(from) => format!("went on from byte {from}"),
                Err(failure) if client == Client::Ctr => return Err(failure),
                Err(_) => {
                    given_whole(&seen, &path, layer).map(|()| "asked for all of it again".to_owned())?
                }
            };
            asked_whole(&seen, &endpoint.node, &image.repository, &blobs)?;
            kept_whole(digests)?;
            return Ok(format!("cut after {cut} bytes, {went_on}"));
        }
        if client == Client::Ctr {
            return Err(Failure::new(ended.words));
        }
        drop(containerd);
        let again = client.prepare(folder.path(), endpoint, &reference(image, By::Digest)).await?;
        let (ended, seen) = self.attempt(again.command, folder.path()).await?;
        self.check_way(&seen)?;
        if !ended.succeeded {
            return Err(Failure::new(ended.words));
        }
        asked_whole(&seen, &endpoint.node, &image.repository, [layer])?;
        kept_whole(digests)?;
        Ok(format!("cut after {cut} bytes, failed, and had it whole when pulling again"))
    }

    /// PULL-04: with the endpoint or without it, an image has one name. What reaches the registry so is told
    /// from what a relay sends.
    async fn past_the_relay(&self, relayed: &Relayed) -> Result<String, Failure> {
        let itself = relayed.registry_itself(NODES[0]);
        let image = &self.registry.images.plain;
        let (seen, facts) = self.pull_whole(Client::Skopeo, &itself, image, By::Digest).await?;
        match self.check_way(&seen) {
            Ok(()) => Err(Failure::new("the requests cannot be told from the relay's")),
            Err(_) => Ok(facts),
        }
    }

    /// PULL-06, PULL-07: it is the registry that refuses, in its own words, and nothing of the image is given out.
    async fn refused(&self, endpoint: &Endpoint, image: &Image) -> Result<String, Failure> {
        let folder = self.fresh_folder()?;
        let prepared = Client::Skopeo.prepare(folder.path(), endpoint, &reference(image, By::Digest)).await?;
        let (ended, seen) = self.attempt(prepared.command, folder.path()).await?;
        if ended.succeeded {
            return Err(Failure::new("the pull succeeded"));
        }
        self.check_way(&seen)?;
        let refusals = seen.iter().filter(|seen| [401, 403].contains(&seen.status)).count();
        let given =
            |seen: &&Seen| seen.status < 300 && seen.path.starts_with(&format!("/v2/{}", image.repository));
        if let Some(given) = seen.iter().find(given) {
            return Err(Failure::new(format!("{} was given out", given.path)));
        }
        match refusals {
            0 => Err(Failure::new(format!("the registry refused nothing: {}", ended.words))),
            refusals => Ok(format!("{refusals} refusals of the registry")),
        }
    }

    /// PULL-28: no line that the relay wrote, its level being the most verbose, holds a credential or a token.
    fn kept_secret(&self, relayed: &Relayed) -> Result<String, Failure> {
        let secrets = self.registry.origin.secrets();
        let lines = relayed.relay.lines();
        for line in &lines {
            if secrets.iter().any(|secret| line.text.contains(secret.as_str())) {
                return Err(Failure::new("a line of the relay holds a credential or a token"));
            }
        }
        Ok(format!("{} lines, {} secrets", lines.len(), secrets.len()))
    }

    async fn attempt(&self, command: Command, folder: &Path) -> Result<(Ended, Vec<Seen>), Failure> {
        drop(self.registry.origin.take_seen());
        let ended = run(command, &folder.join("said"), PULL).await?;
        Ok((ended, self.registry.origin.take_seen()))
    }

    fn fresh_folder(&self) -> Result<TempDir, Failure> {
        Ok(tempfile::Builder::new().prefix("p").tempdir_in(self.folder.path())?)
    }
}

/// The digests of the manifests and the blobs that a client pulls of an image: skopeo copies every platform,
/// the others this host's.
fn wanted(client: Client, image: &Image) -> Result<(BTreeSet<String>, BTreeSet<Blob>), Failure> {
    let own = own_platform();
    let pulled = |(platform, _): &(&&str, _)| client == Client::Skopeo || own == Some(**platform);
    let (mut manifests, mut blobs) = (BTreeSet::from([image.digest.clone()]), BTreeSet::new());
    for (_, manifest) in image.platforms.iter().filter(pulled) {
        manifests.insert(manifest.own.digest.clone());
        blobs.extend(manifest.blobs.iter().cloned());
    }
    match blobs.is_empty() {
        true => Err(Failure::new("the image has nothing for this host")),
        false => Ok((manifests, blobs)),
    }
}

/// PULL-18: neither process that a layer passes ever held what would be a large part of the large one.
fn kept_small(relayed: &Relayed) -> Result<String, Failure> {
    // A process that was started again would not show what the former one held.
    if relayed.relay.lines().iter().any(|line| line.text.contains("it is started again")) {
        return Err(Failure::new("a worker of the relay died"));
    }
    let workers = relayed.relay.workers();
    let mut peaks = Vec::new();
    for role in ["relayd", "pulld"] {
        let pid = workers.get(role).ok_or_else(|| Failure::new(format!("no {role} runs")))?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
        let peak: u64 = peak.ok_or_else(|| Failure::new(format!("{role} states no peak")))?.parse()?;
        if peak > PEAK_KIB {
            return Err(Failure::new(format!("{role} held {peak} KiB")));
        }
        peaks.push(format!("{role} {peak} KiB"));
    }
    Ok(format!("at most {}", peaks.join(", ")))
}

/// Prints the line of one pull, and gives 1 for one that failed.
async fn line(name: &str, pull: impl Future<Output = Result<String, Failure>>) -> usize {
    let begin = Instant::now();
    let done = pull.await;
    let seconds = begin.elapsed().as_secs_f32();
    match done {
        Ok(facts) => {
            println!("ok  {name}: {facts} ({seconds:.1} s)");
            0
        }
        Err(failure) => {
            println!("FAILED  {name}: {failure} ({seconds:.1} s)");
            1
        }
    }
}
