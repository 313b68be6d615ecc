//! Images that nobody else has: layers of noise, which do not compress, with their configuration, manifest
//! and, for more than one platform, index.

use std::collections::BTreeMap;

use bytes::Bytes;
use ring::digest::{Context, SHA256, digest};
use serde_json::{Value, json};

use super::Failure;
use super::docker_registry::Push;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const TAR: &str = "application/vnd.oci.image.layer.v1.tar";
const TAR_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The small layers of every image, in bytes of content; they go gzipped.
const SMALL: [usize; 3] = [1_000, 100_000, 1_000_000];
/// How much noise is made at a time, in bytes.
const PIECE: usize = 4 << 20;
/// A tar archive is made of blocks of so many bytes.
const BLOCK: usize = 512;
/// The most that one stored block of a deflate stream holds, in bytes.
const STORED: usize = 0xffff;

/// What an index has manifests for, in the names that images use.
pub(super) const PLATFORMS: [&str; 2] = ["amd64", "arm64"];

/// Something in the registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Blob {
    /// `sha256:…`.
    pub(super) digest: String,
    /// In bytes.
    pub(super) size: u64,
}

/// An image of one platform.
#[derive(Clone)]
pub(super) struct Manifest {
    /// The manifest itself.
    pub(super) own: Blob,
    /// The configuration and every layer.
    pub(super) blobs: Vec<Blob>,
}

/// What a name in the registry stands for.
#[derive(Clone)]
pub(super) struct Image {
    /// The repository.
    pub(super) repository: String,
    /// The tag.
    pub(super) tag: String,
    /// The digest that the tag means.
    pub(super) digest: String,
    /// The large layer, in the manifest of this host's platform.
    pub(super) large: Blob,
    /// By architecture.
    pub(super) platforms: BTreeMap<&'static str, Manifest>,
}

/// This host's architecture in the names that images use.
pub(super) fn own_platform() -> Option<&'static str> {
    let own = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    PLATFORMS.into_iter().find(|platform| *platform == own)
}

/// Pushes an image of `platforms` with a layer of `large` bytes of content, under the tag `v1`; with more
/// than one platform as an index, each with a large layer of its own.
///
/// # Errors
/// [`Failure`] of the registry.
pub(super) async fn push(
    push: &Push<'_>,
    platforms: &[&'static str],
    large: usize,
) -> Result<Image, Failure> {
    let tag = "v1";
    let mut small = Vec::new();
    for (number, size) in SMALL.into_iter().enumerate() {
        let archive: Vec<u8> = tar(&format!("small-{number}"), size).flatten().collect();
        let blob = push.blob([Bytes::from(stored_gzip(&archive))].into_iter()).await?;
        small.push(Layer { blob, diff_id: sha256(&archive), media_type: TAR_GZIP });
    }
    let mut manifests = BTreeMap::new();
    let mut large_layers = BTreeMap::new();
    for platform in platforms.iter().copied() {
        let blob = push.blob(tar("large", large)).await?;
        large_layers.insert(platform, blob.clone());
        let diff_id = blob.digest.clone();
        let last = Layer { blob, diff_id, media_type: TAR };
        let layers: Vec<&Layer> = small.iter().chain([&last]).collect();
        let config = configuration(platform, &layers);
        let config = push.blob([Bytes::from(config.to_string())].into_iter()).await?;
        let text = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &config),
            "layers": layers.iter().map(|layer| descriptor(layer.media_type, &layer.blob)).collect::<Vec<_>>(),
        });
        let own = push.manifest(MANIFEST, &text.to_string(), (platforms.len() == 1).then_some(tag)).await?;
        let blobs = layers.iter().map(|layer| layer.blob.clone()).chain([config]).collect();
        manifests.insert(platform, Manifest { own, blobs });
    }
    let named = if platforms.len() > 1 {
        let entry = |(platform, manifest): (&&str, &Manifest)| {
            let mut entry = descriptor(MANIFEST, &manifest.own);
            entry["platform"] = json!({"architecture": platform, "os": "linux"});
            entry
        };
        let entries: Vec<Value> = manifests.iter().map(entry).collect();
        let text = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries});
        push.manifest(INDEX, &text.to_string(), Some(tag)).await?
    } else {
        let (_, only) = manifests.first_key_value().ok_or_else(|| Failure::new("an image of no platform"))?;
        only.own.clone()
    };
    let own = own_platform().and_then(|own| large_layers.remove(own));
    let large = own.or_else(|| large_layers.pop_first().map(|(_, layer)| layer));
    Ok(Image {
        repository: push.repository().to_owned(),
        tag: tag.to_owned(),
        digest: named.digest,
        large: large.ok_or_else(|| Failure::new("an image of no platform"))?,
        platforms: manifests,
    })
}

struct Layer {
    blob: Blob,
    /// The digest of the archive without its compression.
    diff_id: String,
    media_type: &'static str,
}

fn descriptor(media_type: &str, blob: &Blob) -> Value {
    json!({"mediaType": media_type, "digest": blob.digest, "size": blob.size})
}

fn configuration(platform: &str, layers: &[&Layer]) -> Value {
    json!({
        "architecture": platform,
        "os": "linux",
        "config": {},
        "rootfs": {
            "type": "layers",
            "diff_ids": layers.iter().map(|layer| layer.diff_id.as_str()).collect::<Vec<_>>(),
        },
        "history": layers.iter().map(|_| json!({"created_by": "coreflow tests"})).collect::<Vec<_>>(),
    })
}

/// The digest of `bytes`, as registries write it.
pub(super) fn sha256(bytes: &[u8]) -> String {
    written(digest(&SHA256, bytes).as_ref())
}

/// A digest that is taken as the bytes come.
pub(super) struct Digesting {
    context: Context,
    size: u64,
}

impl Digesting {
    pub(super) fn new() -> Self {
        Self { context: Context::new(&SHA256), size: 0 }
    }

    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
        self.size += bytes.len() as u64;
    }

    pub(super) fn finish(self) -> Blob {
        Blob { digest: written(self.context.finish().as_ref()), size: self.size }
    }
}

fn written(digest: &[u8]) -> String {
    digest.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// An archive of one file of noise, piece by piece.
fn tar(name: &str, size: usize) -> impl Iterator<Item = Bytes> {
    let mut left = size;
    let noise = std::iter::from_fn(move || {
        let mut piece = vec![0; left.min(PIECE)];
        left -= piece.len();
        getrandom::fill(&mut piece).expect("the system gives randomness");
        (!piece.is_empty()).then(|| Bytes::from(piece))
    });
    // The file is filled up to a block, and two empty blocks end the archive.
    let end = vec![0; size.next_multiple_of(BLOCK) - size + 2 * BLOCK];
    [Bytes::from(tar_header(name, size))].into_iter().chain(noise).chain([Bytes::from(end)])
}

fn tar_header(name: &str, size: usize) -> Vec<u8> {
    let mut header = vec![0; BLOCK];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, "00000000000\0");
    // The sum is taken with spaces in its own place.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().copied().map(u32::from).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// A gzip file that holds `bytes` as they are.
fn stored_gzip(bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let mut blocks = bytes.chunks(STORED).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).expect("a stored block's length fits");
        file.push(u8::from(blocks.peek().is_none()));
        file.extend(length.to_le_bytes());
        file.extend((!length).to_le_bytes());
        file.extend(block);
    }
    file.extend(crc32(bytes).to_le_bytes());
    let length = u32::try_from(bytes.len()).expect("a small layer's length fits");
    file.extend(length.to_le_bytes());
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (0..8).fold(crc, |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()));
    !bytes.iter().fold(!0, |crc, byte| step(crc ^ u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of the digest and of the checksum.
    #[test]
    fn digest_and_checksum_are_the_standard_ones() {
        let abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), abc);
        let mut digesting = Digesting::new();
        digesting.take(b"a");
        digesting.take(b"bc");
        assert_eq!(digesting.finish(), Blob { digest: abc.to_owned(), size: 3 });
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    /// An archive has its header's sum, its content and whole blocks, in pieces of any number.
    #[test]
    fn an_archive_is_made_of_whole_blocks() {
        for size in [0, 1, BLOCK, PIECE + 1] {
            let archive: Vec<u8> = tar("noise", size).flatten().collect();
            assert_eq!(archive.len() % BLOCK, 0);
            assert!(archive.len() >= BLOCK + size + 2 * BLOCK);
            assert!(archive[archive.len() - 2 * BLOCK..].iter().all(|byte| *byte == 0));
            let sum: u32 = archive[..BLOCK].iter().copied().map(u32::from).sum();
            let stated = std::str::from_utf8(&archive[148..154]).unwrap();
            let own: u32 = archive[148..156].iter().copied().map(u32::from).sum();
            assert_eq!(u32::from_str_radix(stated, 8).unwrap(), sum - own + 8 * 32);
        }
    }

    /// Each stored block states its length, and the last one that it is the last.
    #[test]
    fn a_stored_file_holds_every_byte() {
        let bytes: Vec<u8> = (0..=STORED).map(|at| at.to_le_bytes()[0]).collect();
        let file = stored_gzip(&bytes);
        assert_eq!(file.len(), 10 + 5 + STORED + 5 + 1 + 8);
        assert_eq!((file[10], file[15 + STORED]), (0, 1));
        assert_eq!(&file[15..15 + STORED], &bytes[..STORED]);
    }
}
