//! The control socket: a Unix stream socket over which the supervisor answers `coreflowctl`.
//!
//! Its file has mode 0600 from its first moment, and whoever connects has to be root or the relay's own user
//! besides. What a crashed relay left is replaced, what a living one serves is not, and the file goes with
//! the relay.

use std::{
    fmt, io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use interprocess::{
    local_socket::{GenericFilePath, ListenerNonblockingMode, ListenerOptions, ToFsName},
    os::unix::{local_socket::ListenerOptionsExt, uds_local_socket::Listener},
};
use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket},
};

pub mod asking;
pub mod command;
pub mod protocol;
pub mod serving;
pub mod trace_lines;

/// The socket's name in a runtime directory.
pub const FILE: &str = "control.sock";
/// Who may connect, as the file says it.
const MODE: libc::mode_t = 0o600;

/// A bound, listening control socket.
pub struct ControlSocket {
    /// What is accepted on.
    pub listener: Listener,
    /// Its file, removed with this value.
    pub file: SocketFile,
}

/// Why there is no control socket: the start fails by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlError {
    /// What stands at the path is no socket.
    NoSocket(PathBuf),
    /// Another process answers on it.
    Served(PathBuf),
    /// The file came out readable or writable for others.
    Open(PathBuf),
    /// It can be neither bound nor judged; the failure's class.
    Failed(PathBuf, io::ErrorKind),
}

impl std::error::Error for ControlError {}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSocket(path) => write!(
                f,
                "control-socket-occupied: {} is no socket; remove it, or name another path with --control-socket",
                path.display()
            ),
            Self::Served(path) => write!(
                f,
                "control-socket-served: another process answers on {}; stop it, or name another path with \
                 --control-socket",
                path.display()
            ),
            Self::Open(path) => write!(
                f,
                "control-socket-open: the file system gives others access to {}; name another path with \
                 --control-socket",
                path.display()
            ),
            Self::Failed(path, kind) => write!(
                f,
                "control-socket-failed: {}: {kind}; its directory has to exist and to be writable, and its path \
                 to have at most 107 bytes",
                path.display()
            ),
        }
    }
}

impl ControlSocket {
    /// Binds and listens at `path`.
    ///
    /// # Errors
    /// The path is taken by something else than the socket of a relay that is gone, or cannot be bound.
    pub fn bind(path: &Path) -> Result<Self, ControlError> {
        let listener = match listen(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_abandoned(path)?;
                listen(path)
            }
            listened => listened,
        };
        let listener = listener.map_err(|error| match error.kind() {
            // Another relay was faster.
            io::ErrorKind::AddrInUse => ControlError::Served(path.to_owned()),
            kind => ControlError::Failed(path.to_owned(), kind),
        })?;
        let metadata = path.symlink_metadata().map_err(|error| failed(path, &error))?;
        let file = SocketFile { path: path.to_owned(), identity: identity(&metadata) };
        if metadata.mode() & 0o077 != 0 {
            return Err(ControlError::Open(path.to_owned()));
        }
        Ok(Self { listener, file })
    }
}

fn failed(path: &Path, error: &io::Error) -> ControlError {
    ControlError::Failed(path.to_owned(), error.kind())
}

/// The mode is set on the socket before it is bound, so that its file never has another one.
fn listen(path: &Path) -> io::Result<Listener> {
    ListenerOptions::new()
        .name(path.to_fs_name::<GenericFilePath>()?)
        .mode(MODE)
        .nonblocking(ListenerNonblockingMode::Both)
        // `SocketFile` removes it, and only it.
        .reclaim_name(false)
        .create_sync_as()
}

/// Removes the socket file of a relay that is gone.
fn remove_abandoned(path: &Path) -> Result<(), ControlError> {
    let metadata = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(path, &error)),
    };
    if !metadata.file_type().is_socket() {
        return Err(ControlError::NoSocket(path.to_owned()));
    }
    if is_served(path)? {
        return Err(ControlError::Served(path.to_owned()));
    }
    // The very file that was judged.
    SocketFile { path: path.to_owned(), identity: identity(&metadata) }
        .remove()
        .map_err(|error| failed(path, &error))
}

/// Whether a process listens on the socket: only a refused connection says that none does.
fn is_served(path: &Path) -> Result<bool, ControlError> {
    let probe = || {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let probe = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        connect(probe.as_raw_fd(), &UnixAddr::new(path)?)
    };
    match probe() {
        // A full backlog is a listener's, too.
        Ok(()) | Err(Errno::EAGAIN) => Ok(true),
        Err(Errno::ECONNREFUSED | Errno::ENOENT) => Ok(false),
        Err(errno) => Err(failed(path, &errno.into())),
    }
}

/// The file of a bound socket. It is removed on drop, and a file that took its name is not.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn remove(&self) -> io::Result<()> {
        match self.path.symlink_metadata() {
            Ok(metadata) if identity(&metadata) == self.identity => std::fs::remove_file(&self.path),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // One that stays is replaced by the next start.
        let _ = self.remove();
    }
}

/// Device and inode.
fn identity(metadata: &std::fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests;
