//! An archive of a release directory: one directory and nothing else (REL-10), the same bytes whenever and wherever
//! it is written: entries in the order of their paths, owned by root without a name, at the time of the commit.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    path::Path,
};

use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use crate::{declared::DeclaredFile, failure::Failure};

/// The byte of gzip's header that names the system it was made on, for "unknown".
const NO_SYSTEM: u8 = 255;

/// Writes the archive of the declared files of `directory`, which are below `name` in it.
///
/// # Errors
/// A file cannot be read.
pub fn archive(
    directory: &Path,
    declared: &[DeclaredFile],
    name: &str,
    time: u64,
) -> Result<Vec<u8>, Failure> {
    let gzip = GzBuilder::new().mtime(0).operating_system(NO_SYSTEM).write(Vec::new(), Compression::best());
    let mut tar = Builder::new(gzip);
    let folders: BTreeSet<&str> = declared.iter().flat_map(|file| folders_of(&file.path)).collect();
    let of_tar = |error: io::Error| Failure::Answer("tar", error.to_string());
    append(&mut tar, &format!("{name}/"), EntryType::Directory, 0o755, time, &[]).map_err(of_tar)?;
    for folder in folders {
        let path = format!("{name}/{folder}/");
        append(&mut tar, &path, EntryType::Directory, 0o755, time, &[]).map_err(of_tar)?;
    }
    for file in declared {
        let path = directory.join(&file.path);
        let bytes = fs::read(&path).map_err(Failure::file(&path))?;
        let path = format!("{name}/{}", file.path);
        append(&mut tar, &path, EntryType::Regular, file.mode, time, &bytes).map_err(of_tar)?;
    }
    tar.into_inner().and_then(|gzip| gzip.finish()).map_err(of_tar)
}

/// The folders that a path lies in, from the outermost.
fn folders_of(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

fn append(
    tar: &mut Builder<impl Write>,
    path: &str,
    kind: EntryType,
    mode: u32,
    time: u64,
    bytes: &[u8],
) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_path(path)?;
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(time);
    header.set_size(bytes.len() as u64);
    header.set_cksum();
    tar.append(&header, bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::declared::Content;

    fn set() -> Vec<DeclaredFile> {
        let file = |path: &str, mode| DeclaredFile {
            path: path.to_owned(),
            mode,
            content: Content::Executable("whatever"),
        };
        vec![file("coreflow", 0o755), file("notices/smartvpn/license", 0o644), file("qenv.yml", 0o644)]
    }

    fn directory_at(time: i64) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for file in set().iter().rev() {
            let path = directory.path().join(&file.path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &file.path).unwrap();
            let touched =
                std::process::Command::new("touch").arg("-d").arg(format!("@{time}")).arg(&path).status();
            assert!(touched.unwrap().success());
        }
        directory
    }

    /// REL-10: one directory, below which is all of it, with the declared modes and nobody's name.
    #[test]
    fn an_archive_holds_one_directory() {
        let directory = directory_at(1);
        let bytes = archive(directory.path(), &set(), "coreflow-relay-1-linux-amd64", 1_700_000_000).unwrap();
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
        let mut seen = Vec::new();
        for entry in tar.entries().unwrap() {
            let mut entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(header.mtime().unwrap(), 1_700_000_000);
            assert!(header.username_bytes().unwrap().is_empty());
            let mode = header.mode().unwrap();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            seen.push((path, mode, text));
        }
        let shown: Vec<_> =
            seen.iter().map(|(path, mode, text)| (path.as_str(), *mode, text.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("coreflow-relay-1-linux-amd64/", 0o755, ""),
                ("coreflow-relay-1-linux-amd64/notices/", 0o755, ""),
                ("coreflow-relay-1-linux-amd64/notices/smartvpn/", 0o755, ""),
                ("coreflow-relay-1-linux-amd64/coreflow", 0o755, "coreflow"),
                ("coreflow-relay-1-linux-amd64/notices/smartvpn/license", 0o644, "notices/smartvpn/license"),
                ("coreflow-relay-1-linux-amd64/qenv.yml", 0o644, "qenv.yml"),
            ]
        );
    }

    /// When and in which order the files were written leaves no trace.
    #[test]
    fn two_archives_of_the_same_files_are_the_same_bytes() {
        let (one, other) = (directory_at(1), directory_at(1_500_000_000));
        let of = |directory: &tempfile::TempDir| archive(directory.path(), &set(), "name", 5).unwrap();
        assert_eq!(of(&one), of(&other));
        assert_eq!(of(&one)[4..10], [0, 0, 0, 0, 2, NO_SYSTEM], "no time and no system in gzip's header");
    }
}
