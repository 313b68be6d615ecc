//! Reads one small file into a buffer of exactly its size that is wiped on drop, so that no growing buffer
//! leaves copies behind (CFG-13, ARC-23). Never blocks on a FIFO or a device.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use zeroize::Zeroizing;

/// Why a file that exists could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFault {
    /// It could not be opened or read.
    Unreadable(ErrorKind),
    /// It is a directory, a FIFO, a socket or a device.
    NotRegular,
    /// It is longer than this number of bytes.
    TooLong(usize),
    /// It changed its length while it was read.
    Changed,
}

/// The whole content of the file at `path`, at most `limit` bytes; nothing when there is no such file.
pub(super) fn read_bounded(path: &Path, limit: usize) -> Result<Option<Zeroizing<Vec<u8>>>, FileFault> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if is_absence(&error) => return Ok(None),
        Err(error) => return Err(FileFault::Unreadable(error.kind())),
    };
    let metadata = file.metadata().map_err(|error| FileFault::Unreadable(error.kind()))?;
    if !metadata.is_file() {
        return Err(FileFault::NotRegular);
    }
    let Some(length) = usize::try_from(metadata.len()).ok().filter(|length| *length <= limit) else {
        return Err(FileFault::TooLong(limit));
    };
    let mut content = Zeroizing::new(vec![0; length]);
    match file.read_exact(&mut content) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(FileFault::Changed),
        Err(error) => return Err(FileFault::Unreadable(error.kind())),
    }
    let mut beyond = Zeroizing::new([0; 1]);
    match file.read(beyond.as_mut()) {
        Ok(0) => Ok(Some(content)),
        Ok(_) => Err(FileFault::Changed),
        Err(error) => Err(FileFault::Unreadable(error.kind())),
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_exactly_what_is_stored_within_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("value");
        std::fs::write(&path, b"abc\n").unwrap();
        let content = read_bounded(&path, 4).unwrap().unwrap();
        assert_eq!((&content[..], content.capacity()), (&b"abc\n"[..], 4));
        assert_eq!(read_bounded(&path, 3), Err(FileFault::TooLong(3)));
        assert_eq!(read_bounded(&directory.path().join("absent"), 3), Ok(None));
        assert_eq!(read_bounded(&path.join("below"), 3), Ok(None));
    }

    #[test]
    fn a_directory_and_a_fifo_are_refused_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read_bounded(directory.path(), 9), Err(FileFault::NotRegular));
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        assert_eq!(read_bounded(&fifo, 9), Err(FileFault::NotRegular));
    }
}
