//! A release whose links are tapped (ARC-06, ARC-13, ARC-24): under each worker's name lies the tap, which
//! starts the real worker as its own child, copies bytes and descriptors of the link both ways, and writes
//! down all of them. A link to another worker that is handed over is tapped as well.
//!
//! The tap is started like a worker, with an empty environment, so it finds its instructions in a file
//! beside its own executable. A test can make it lie: state another version, or speak out of turn.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use coreflow_ipc::sys::{receive_with_descriptors, send_with_descriptors};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binaries::binaries;

/// Bytes taken at once; no more than a reader behind the tap takes.
const CHUNK: usize = 16 << 10;
/// Bytes of a frame's header.
const HEADER: usize = 4;
/// Descriptors that may come with one chunk.
const DESCRIPTORS: usize = 4;
/// How often the tap looks for something to inject.
const LOOK: Duration = Duration::from_millis(20);
const ROLES: [&str; 3] = ["relayd", "pulld", "vpnd"];

/// What a tapped worker says out of turn, once.
#[derive(Debug, Clone, Copy)]
pub enum Injection<'a> {
    /// These bytes, between two of the worker's frames.
    Bytes(&'a [u8]),
    /// The worker's first frame once more.
    FirstFrameAgain,
}

/// A release directory with `coreflow` and three taps. Dropping it removes the directory.
pub struct TappedRelease {
    directory: TempDir,
}

impl TappedRelease {
    /// Lays the release out. `tap` is the executable of `coreflow-link-tap`; `rewrite` replaces a text in
    /// what workers say by another one of the same length.
    ///
    /// # Panics
    /// When the files cannot be laid out.
    pub fn lay_out(tap: &Path, rewrite: Option<(&str, &str)>) -> Self {
        let directory = tempfile::tempdir().expect("creating the release directory");
        let root = directory.path();
        let (real, frames) = (root.join("real"), root.join("frames"));
        // The workers' users write and read here.
        for (path, mode) in [(root.to_owned(), 0o755), (real.clone(), 0o755), (frames.clone(), 0o777)] {
            std::fs::create_dir_all(&path).expect("creating a directory of the release");
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("opening it to the workers");
        }
        copy(&binaries().join("coreflow"), &root.join("coreflow"));
        for role in ROLES {
            let name = format!("coreflow-{role}");
            copy(tap, &root.join(&name));
            copy(&binaries().join(&name), &real.join(&name));
            let instructions = json!({
                "role": role,
                "worker": real.join(&name),
                "frames": frames,
                "rewrite": rewrite.map(|(from, to)| [from, to]),
            });
            std::fs::write(instructions_of(&root.join(&name)), instructions.to_string())
                .expect("writing a tap's instructions");
        }
        Self { directory }
    }

    /// The directory with the executables.
    pub fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Everything that passed so far: the name of the direction and its bytes in order.
    ///
    /// # Panics
    /// When what was written down cannot be read.
    pub fn captured(&self) -> Vec<(String, Vec<u8>)> {
        let frames = self.directory.path().join("frames");
        let entries = std::fs::read_dir(frames).expect("reading the directory of captured frames");
        let paths = entries.map(|entry| entry.expect("reading an entry").path());
        let captured = paths.filter(|path| path.extension().is_some_and(|end| end == "up" || end == "down"));
        let named = |path: PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            (name.unwrap_or_default(), std::fs::read(&path).expect("reading captured frames"))
        };
        captured.map(named).collect()
    }

    /// Makes the living worker of `role` say something out of turn to the supervisor.
    ///
    /// # Panics
    /// When the instruction cannot be written.
    pub fn inject(&self, role: &str, injection: Injection<'_>) {
        let bytes = match injection {
            Injection::Bytes(bytes) => bytes,
            Injection::FirstFrameAgain => &[],
        };
        let path = self.directory.path().join("frames").join(format!("{role}.inject"));
        let draft = path.with_extension("draft");
        std::fs::write(&draft, bytes).expect("writing what is injected");
        std::fs::rename(draft, path).expect("handing over what is injected");
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("copying an executable into the release");
    std::fs::set_permissions(to, Permissions::from_mode(0o755)).expect("making it executable");
}

fn instructions_of(executable: &Path) -> PathBuf {
    executable.with_extension("tap")
}

/// The tap's own life, with the arguments that the supervisor gives a worker. The cause of a failure goes
/// to standard error, where the supervisor reads last words.
pub fn run(arguments: Vec<String>) -> ExitCode {
    match tap(arguments) {
        Ok(code) => code,
        Err(error) => {
            drop(writeln!(io::stderr(), "the tap failed: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn tap(mut arguments: Vec<String>) -> io::Result<ExitCode> {
    let instructions = Instructions::read(&instructions_of(&std::env::current_exe()?))?;
    let Some(supervisor) = arguments.iter().position(|argument| argument == "--supervisor") else {
        return Err(io::Error::other("no --supervisor"));
    };
    arguments[supervisor + 1] = std::process::id().to_string();
    let outer = Arc::new(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?));
    let (inner, workers_end) = UnixStream::pair()?;
    let inner = Arc::new(inner);
    // Started on the thread that lives as long as the tap: the worker's parent-death signal follows it.
    let mut worker = Command::new(&instructions.worker)
        .args(arguments)
        .stdin(Stdio::from(OwnedFd::from(workers_end)))
        .spawn()?;
    let tap = Arc::new(Tap { instructions, links: AtomicU32::new(0) });
    let up = Arc::new(Mutex::new(Up::default()));
    let (number, down_file) = (tap.next_link(), tap.file(0, "down")?);
    let up_file = tap.file(number, "up")?;
    let (from, to, shared) = (Arc::clone(&outer), Arc::clone(&inner), Arc::clone(&tap));
    thread::spawn(move || pump(&shared, &from, &to, down_file));
    let (from, to, shared, state) =
        (Arc::clone(&inner), Arc::clone(&outer), Arc::clone(&tap), Arc::clone(&up));
    let upward = thread::spawn(move || pump_frames(&shared, &from, &to, &state, up_file));
    thread::spawn(move || inject(&tap, &outer, &up));
    let status = worker.wait()?;
    drop(upward.join());
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(ExitCode::from(code))
}

struct Instructions {
    role: String,
    worker: PathBuf,
    frames: PathBuf,
    rewrite: Option<(Vec<u8>, Vec<u8>)>,
}

impl Instructions {
    fn read(path: &Path) -> io::Result<Self> {
        let value: Value = serde_json::from_slice(&std::fs::read(path)?)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let rewrite = value["rewrite"].as_array().map(|pair| {
            let [from, to] = [0, 1].map(|at| pair.get(at).map(text).unwrap_or_default().into_bytes());
            (from, to)
        });
        Ok(Self {
            role: text(&value["role"]),
            worker: text(&value["worker"]).into(),
            frames: text(&value["frames"]).into(),
            rewrite,
        })
    }
}

struct Tap {
    instructions: Instructions,
    links: AtomicU32,
}

impl Tap {
    fn next_link(&self) -> u32 {
        self.links.fetch_add(1, Ordering::Relaxed)
    }

    fn file(&self, link: u32, direction: &str) -> io::Result<File> {
        let name = format!("{}-{}-{link}.{direction}", self.instructions.role, std::process::id());
        OpenOptions::new().append(true).create(true).open(self.instructions.frames.join(name))
    }

    /// Puts the tap between the two ends of a handed over Unix stream; other descriptors pass as they are.
    fn interpose(self: &Arc<Self>, descriptor: OwnedFd) -> io::Result<OwnedFd> {
        let far = UnixStream::from(descriptor);
        if far.peer_addr().is_err() {
            return Ok(far.into());
        }
        let (near, handed) = UnixStream::pair()?;
        let (far, near, link) = (Arc::new(far), Arc::new(near), self.next_link());
        for (from, to, direction) in [(&far, &near, "down"), (&near, &far, "up")] {
            let (from, to, file) = (Arc::clone(from), Arc::clone(to), self.file(link, direction)?);
            let tap = Arc::clone(self);
            thread::spawn(move || pump(&tap, &from, &to, file));
        }
        Ok(handed.into())
    }
}

/// Copies until the end, descriptors beside the bytes that they came with.
fn pump(tap: &Arc<Tap>, from: &UnixStream, to: &UnixStream, mut file: File) {
    let mut chunk = vec![0; CHUNK];
    while let Ok((count @ 1.., came)) = receive_with_descriptors(from.as_fd(), &mut chunk, DESCRIPTORS) {
        let Ok(handed) = came.into_iter().map(|one| tap.interpose(one)).collect::<io::Result<Vec<_>>>()
        else {
            break;
        };
        let beside: Vec<BorrowedFd<'_>> = handed.iter().map(AsFd::as_fd).collect();
        if file.write_all(&chunk[..count]).is_err() || send(to, &chunk[..count], &beside).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Write));
}

#[derive(Default)]
struct Up {
    first: Vec<u8>,
}

/// Copies what the worker says, whole frames only, so that an injection falls between two of them.
fn pump_frames(tap: &Tap, from: &UnixStream, to: &UnixStream, up: &Mutex<Up>, mut file: File) {
    let (mut chunk, mut waiting) = (vec![0; CHUNK], Vec::new());
    // A worker sends no descriptors; whatever came beside its bytes is closed here.
    while let Ok((count @ 1.., _)) = receive_with_descriptors(from.as_fd(), &mut chunk, DESCRIPTORS) {
        waiting.extend_from_slice(&chunk[..count]);
        while let Some(length) = frame_length(&waiting) {
            let mut frame: Vec<u8> = waiting.drain(..length).collect();
            if let Some((old, new)) = &tap.instructions.rewrite {
                replace(&mut frame, old, new);
            }
            let mut up = lock(up);
            if up.first.is_empty() {
                up.first.clone_from(&frame);
            }
            if file.write_all(&frame).is_err() || send(to, &frame, &[]).is_err() {
                return;
            }
        }
    }
    drop(to.shutdown(Shutdown::Write));
}

fn inject(tap: &Tap, to: &UnixStream, up: &Mutex<Up>) {
    let path = tap.instructions.frames.join(format!("{}.inject", tap.instructions.role));
    loop {
        if let Ok(bytes) = std::fs::read(&path) {
            // Removed first: the worker that is started in this one's place does not repeat it.
            drop(std::fs::remove_file(&path));
            let up = lock(up);
            drop(send(to, if bytes.is_empty() { &up.first } else { &bytes }, &[]));
        }
        thread::sleep(LOOK);
    }
}

/// The length of the first frame, header included, once all of it is there.
fn frame_length(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<HEADER>()?;
    let length = HEADER + u32::from_be_bytes(*header) as usize;
    (bytes.len() >= length).then_some(length)
}

fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    for at in 0..bytes.len().saturating_sub(old.len() - 1) {
        if bytes[at..].starts_with(old) {
            bytes[at..at + old.len()].copy_from_slice(new);
        }
    }
}

fn send(to: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        let beside = if sent == 0 { descriptors } else { &[] };
        sent += send_with_descriptors(to.as_fd(), &bytes[sent..], beside)?;
    }
    Ok(())
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame is cut out once it is whole, and a text in it replaced in its place.
    #[test]
    fn a_frame_is_cut_and_rewritten() {
        let mut bytes = [&5_u32.to_be_bytes()[..], b"1.2.3", &[0]].concat();
        assert_eq!(frame_length(&bytes[..8]), None);
        assert_eq!(frame_length(&bytes), Some(9));
        replace(&mut bytes, b"1.2.3", b"1.2.9");
        assert_eq!(&bytes[4..9], b"1.2.9");
    }

    /// Both directions of a handed over link are written down, and its end is passed on.
    #[test]
    fn a_handed_over_link_is_tapped() {
        let frames = tempfile::tempdir().unwrap();
        let instructions = Instructions {
            role: "one".to_owned(),
            worker: PathBuf::new(),
            frames: frames.path().to_owned(),
            rewrite: None,
        };
        let tap = Arc::new(Tap { instructions, links: AtomicU32::new(1) });
        let (mut far, given) = UnixStream::pair().unwrap();
        let mut near = UnixStream::from(tap.interpose(given.into()).unwrap());
        let mut word = [0; 4];
        far.write_all(b"down").unwrap();
        io::Read::read_exact(&mut near, &mut word).unwrap();
        assert_eq!(&word, b"down");
        near.write_all(b"back").unwrap();
        io::Read::read_exact(&mut far, &mut word).unwrap();
        assert_eq!(&word, b"back");
        drop(near);
        assert_eq!(io::Read::read(&mut far, &mut word).unwrap(), 0, "the end is passed on");
        let written = |direction| {
            std::fs::read(frames.path().join(format!("one-{}-1.{direction}", std::process::id()))).unwrap()
        };
        assert_eq!((written("down"), written("up")), (b"down".to_vec(), b"back".to_vec()));
    }
}
