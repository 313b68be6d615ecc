//! What shows that a pull did what it should: every blob asked for with a token and given out whole, the
//! files that the client kept, and, through a relay, requests that have a relay's form.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use http::Method;

use super::Failure;
use super::image::{Blob, Digesting};
use super::origin::{Asker, Seen, TOKEN_PATH};

/// How much of a kept file is read at a time, in bytes.
const PIECE: usize = 1 << 20;

/// The path of a blob in a repository.
pub(super) fn blob_path(repository: &str, digest: &str) -> String {
    format!("/v2/{repository}/blobs/{digest}")
}

/// What a pull asked for, in numbers.
pub(super) struct Asked {
    /// All requests.
    pub(super) requests: usize,
    /// Those that got a token.
    pub(super) tokens: usize,
}

/// The registry gave out a token to `node` for its own credential, and with tokens every blob whole.
///
/// # Errors
/// [`Failure`] that names what is missing.
pub(super) fn asked_whole<'a>(
    seen: &[Seen],
    node: &str,
    repository: &str,
    blobs: impl IntoIterator<Item = &'a Blob>,
) -> Result<Asked, Failure> {
    let (tokens, others): (Vec<&Seen>, Vec<&Seen>) = seen.iter().partition(|seen| seen.path == TOKEN_PATH);
    let of_node = |seen: &&&Seen| seen.asker == Asker::Node(node.to_owned()) && seen.status == 200;
    let issued = tokens.iter().filter(of_node).count();
    if issued == 0 {
        return Err(Failure::new(format!("no token was issued to {node}")));
    }
    if let Some(foreign) = tokens.iter().find(|seen| matches!(&seen.asker, Asker::Node(of) if of != node)) {
        return Err(Failure::new(format!("a token was asked for as {:?}", foreign.asker)));
    }
    let mut given = BTreeMap::<&str, u64>::new();
    for seen in others.iter().filter(|seen| seen.asker == Asker::Bearer && [200, 206].contains(&seen.status))
    {
        *given.entry(&seen.path).or_default() += seen.sent();
    }
    for blob in blobs {
        let sent = given.get(blob_path(repository, &blob.digest).as_str()).copied().unwrap_or_default();
        if sent < blob.size {
            return Err(Failure::new(format!("{sent} of {} bytes of {}", blob.size, blob.digest)));
        }
    }
    Ok(Asked { requests: seen.len(), tokens: issued })
}

/// Each request came from a relay: it reads, asks for the plain bytes in so many words, names the
/// registry's own host and carries nothing of the node's connection.
///
/// # Errors
/// [`Failure`] that names what a relay does not send.
pub(super) fn asked_by_the_relay(seen: &[Seen], registry_host: &str) -> Result<(), Failure> {
    for seen in seen {
        let not = |what: &str| Failure::new(format!("{} {}: {what}", seen.method, seen.path));
        if ![Method::GET, Method::HEAD].contains(&seen.method) {
            return Err(not("a method that is refused"));
        }
        for (name, expected) in [("accept-encoding", "identity"), ("host", registry_host)] {
            let stated = seen.headers.get(name).map(String::as_str).unwrap_or_default();
            if stated != expected {
                return Err(not(&format!("{name} is \"{stated}\", not \"{expected}\"")));
            }
        }
        if let Some(name) = ["cookie", "forwarded", "via", "x-forwarded-for", "x-forwarded-host"]
            .into_iter()
            .find(|name| seen.headers.contains_key(*name))
        {
            return Err(not(&format!("carries {name}")));
        }
    }
    Ok(())
}

/// How many bytes the first answer with the blob at `path` had given out when it was cut.
///
/// # Errors
/// [`Failure`] when it was not asked for, or was not cut.
pub(super) fn cut_answer(seen: &[Seen], path: &str, blob: &Blob) -> Result<u64, Failure> {
    let first = seen.iter().find(|seen| seen.path == path && seen.status == 200);
    match first.map(Seen::sent) {
        None => Err(Failure::new("the layer was not asked for")),
        Some(sent) if sent >= blob.size => Err(Failure::new("the layer was not cut")),
        Some(sent) => Ok(sent),
    }
}

/// Where the range began by which the rest was asked for after an answer that gave out `cut` bytes.
///
/// # Errors
/// [`Failure`] when no such range was asked for.
pub(super) fn resumed(seen: &[Seen], path: &str, cut: u64) -> Result<u64, Failure> {
    let begin = |seen: &Seen| {
        let range = seen.headers.get("range").filter(|_| seen.status == 206)?;
        range.strip_prefix("bytes=")?.split('-').next()?.parse::<u64>().ok()
    };
    let mut begins = seen.iter().filter(|seen| seen.path == path).filter_map(begin);
    let from = begins.find(|from| (1..=cut).contains(from));
    from.ok_or_else(|| Failure::new("nobody asked for the rest by a range"))
}

/// Some answer gave the blob at `path` out whole.
///
/// # Errors
/// [`Failure`] when none did.
pub(super) fn given_whole(seen: &[Seen], path: &str, blob: &Blob) -> Result<(), Failure> {
    let whole = |seen: &Seen| seen.path == path && seen.status == 200 && seen.sent() >= blob.size;
    match seen.iter().any(whole) {
        true => Ok(()),
        false => Err(Failure::new("the layer was never given out whole")),
    }
}

/// The files of `folder` whose names are digests hold what their names say, and all of `digests` are there.
///
/// # Errors
/// [`Failure`] that names the file.
pub(super) fn kept_whole(folder: &Path, digests: &BTreeSet<String>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", folder.display()));
    let mut kept = BTreeSet::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // skopeo marks the manifests of an index; what has no digest for a name is none of the image's blobs.
        let named =
            if name == "manifest.json" { None } else { Some(name.trim_end_matches(".manifest.json")) };
        if named.is_some_and(|name| name.len() != 64) {
            continue;
        }
        let digest = digest_of(&entry.path()).map_err(failed)?;
        if named.is_some_and(|named| digest != format!("sha256:{named}")) {
            return Err(Failure::new(format!("{name} holds {digest}")));
        }
        kept.insert(digest);
    }
    let missing: Vec<&str> = digests.difference(&kept).map(String::as_str).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!("the client did not keep {}", missing.join(", ")))),
    }
}

fn digest_of(file: &Path) -> std::io::Result<String> {
    let mut file = File::open(file)?;
    let (mut digesting, mut piece) = (Digesting::new(), vec![0; PIECE]);
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok(digesting.finish().digest);
        }
        digesting.take(&piece[..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: &str, asker: Asker, status: u16, sent: u64) -> Seen {
        Seen::of_test(Method::GET, path, asker, status, sent)
    }

    fn blob() -> Blob {
        Blob { digest: "sha256:a".to_owned(), size: 10 }
    }

    /// A blob counts when it was given out whole for a token, and the token when the node's own
    /// credential bought it.
    #[test]
    fn a_blob_is_whole_and_the_token_the_nodes_own() {
        let token = |node: &str| seen(TOKEN_PATH, Asker::Node(node.to_owned()), 200, 0);
        let given = |asker, sent| seen("/v2/a/b/blobs/sha256:a", asker, 200, sent);
        let judge = |seen: &[Seen]| asked_whole(seen, "node-1", "a/b", [&blob()]).map(|asked| asked.tokens);
        assert!(matches!(judge(&[token("node-1"), given(Asker::Bearer, 10)]), Ok(1)));
        for incomplete in [
            vec![given(Asker::Bearer, 10)],
            vec![token("node-1"), given(Asker::Bearer, 9)],
            vec![token("node-1"), given(Asker::Nameless, 10)],
            vec![token("node-1"), token("node-2"), given(Asker::Bearer, 10)],
        ] {
            assert!(judge(&incomplete).is_err(), "{incomplete:?}");
        }
    }

    /// What a relay never sends is found.
    #[test]
    fn what_no_relay_sends_is_found() {
        let host = "localhost:1";
        let mut asked = seen("/v2/", Asker::Nameless, 401, 0);
        for (name, value) in [("accept-encoding", "identity"), ("host", host)] {
            asked.headers.insert(name.to_owned(), value.to_owned());
        }
        assert!(asked_by_the_relay(&[asked.clone()], host).is_ok());
        for (name, value) in [("accept-encoding", "gzip"), ("host", "localhost:2"), ("cookie", "a=b")] {
            let mut other = asked.clone();
            other.headers.insert(name.to_owned(), value.to_owned());
            assert!(asked_by_the_relay(&[asked.clone(), other], host).is_err(), "{name}");
        }
        asked.method = Method::POST;
        assert!(asked_by_the_relay(&[asked], host).is_err());
    }

    /// A cut answer is told from a whole one, and the range of the rest from any other request.
    #[test]
    fn a_cut_and_the_range_of_the_rest_are_found() {
        let (path, blob) = ("/v2/a/b/blobs/sha256:a", blob());
        let first = seen(path, Asker::Bearer, 200, 4);
        assert!(matches!(cut_answer(std::slice::from_ref(&first), path, &blob), Ok(4)));
        assert!(cut_answer(&[seen(path, Asker::Bearer, 200, 10)], path, &blob).is_err());
        assert!(cut_answer(&[], path, &blob).is_err());
        let mut rest = seen(path, Asker::Bearer, 206, 6);
        for (range, expected) in
            [("bytes=4-", Some(4)), ("bytes=3-9", Some(3)), ("bytes=5-", None), ("x", None)]
        {
            rest.headers.insert("range".to_owned(), range.to_owned());
            assert_eq!(resumed(&[first.clone(), rest.clone()], path, 4).ok(), expected, "{range}");
        }
        assert!(given_whole(&[first], path, &blob).is_err());
    }

    /// A kept file's name has to be the digest of what it holds, and none may be missing.
    #[test]
    fn a_kept_file_holds_what_its_name_says() {
        let folder = tempfile::tempdir().unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let wanted = BTreeSet::from([format!("sha256:{abc}")]);
        assert!(kept_whole(folder.path(), &wanted).is_err());
        std::fs::write(folder.path().join("version"), "1").unwrap();
        std::fs::write(folder.path().join(abc), "abc").unwrap();
        assert!(kept_whole(folder.path(), &wanted).is_ok());
        std::fs::write(folder.path().join(abc), "abd").unwrap();
        assert!(kept_whole(folder.path(), &wanted).is_err());
    }
}
