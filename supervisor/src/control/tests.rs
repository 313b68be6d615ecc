//! The socket's file: its mode, what it replaces and what not, and its end.

use std::os::unix::{
    fs::{PermissionsExt, symlink},
    net::{UnixListener, UnixStream},
};

use super::*;

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    (directory, path)
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o7777
}

/// The file is the owner's alone and goes with the socket.
#[test]
fn the_file_is_the_owners_alone_and_is_removed() {
    let (directory, path) = place();
    let socket = ControlSocket::bind(&path).unwrap();
    assert_eq!((socket.file.path(), mode(&path)), (path.as_path(), 0o600));
    UnixStream::connect(&path).unwrap();
    drop(socket);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// The mode is the socket's own before there is a file: it is what the kernel makes the file with.
#[test]
fn a_socket_has_its_mode_before_it_has_a_file() {
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    let (_directory, path) = place();
    nix::sys::stat::fchmod(&socket, nix::sys::stat::Mode::S_IRUSR).unwrap();
    nix::sys::socket::bind(socket.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    assert_eq!(mode(&path), 0o400);
}

/// What a crashed relay left is replaced.
#[test]
fn an_abandoned_socket_is_replaced() {
    let (_directory, path) = place();
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "the standard library leaves the file behind");
    let _socket = ControlSocket::bind(&path).unwrap();
    UnixStream::connect(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
}

/// A living relay keeps its socket, also when so many connections wait that no more fit.
#[test]
fn a_served_socket_is_left_alone() {
    let (_directory, path) = place();
    let living = ControlSocket::bind(&path).unwrap();
    let refused = ControlSocket::bind(&path).err().unwrap();
    assert_eq!(refused, ControlError::Served(path.clone()));
    assert!(refused.to_string().starts_with("control-socket-served: "), "{refused}");
    UnixStream::connect(&path).unwrap();
    drop(living);

    let full = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    nix::sys::socket::bind(full.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    nix::sys::socket::listen(&full, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let _waiting = UnixStream::connect(&path).unwrap();
    assert_eq!(ControlSocket::bind(&path).err(), Some(ControlError::Served(path)));
}

/// What is no socket is not removed, whatever it leads to.
#[test]
fn a_file_in_its_place_is_left_alone() {
    let (directory, path) = place();
    std::fs::write(&path, "precious").unwrap();
    assert_eq!(ControlSocket::bind(&path).err(), Some(ControlError::NoSocket(path.clone())));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");

    let abandoned = directory.path().join("abandoned");
    drop(UnixListener::bind(&abandoned).unwrap());
    let link = directory.path().join("link");
    symlink(&abandoned, &link).unwrap();
    assert_eq!(ControlSocket::bind(&link).err(), Some(ControlError::NoSocket(link.clone())));
    assert!(link.symlink_metadata().is_ok() && abandoned.exists());
}

/// Where there is no place for it the failure has its class.
#[test]
fn a_place_that_is_none_is_named() {
    let (directory, _) = place();
    let nowhere = directory.path().join("missing").join(FILE);
    let error = ControlSocket::bind(&nowhere).err().unwrap();
    assert_eq!(error, ControlError::Failed(nowhere, io::ErrorKind::NotFound));
    let long = directory.path().join("x".repeat(120));
    let error = ControlSocket::bind(&long).err().unwrap();
    assert!(matches!(error, ControlError::Failed(..)), "{error}");
}

/// A file that took the name is another relay's.
#[test]
fn a_successors_file_is_not_removed() {
    let (_directory, path) = place();
    let first = ControlSocket::bind(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let _second = ControlSocket::bind(&path).unwrap();
    drop(first);
    UnixStream::connect(&path).expect("the second one's file is still there");
}
