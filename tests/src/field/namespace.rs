//! A network namespace of the kernel's, named after this process, and sockets in it.

use std::fs::File;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

/// What the names of all of them begin with.
const PREFIX: &str = "cfvpn";
/// Where `ip netns` keeps them.
const NAMES: &str = "/run/netns";
/// The most that a connect through a tunnel may take.
const CONNECT: Duration = Duration::from_secs(10);

/// A namespace; dropping it removes it with its devices.
pub struct Namespace {
    name: String,
}

/// Removes the namespaces of processes that are gone; once in a process.
pub fn sweep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for entry in std::fs::read_dir(NAMES).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
            if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
                drop(Command::new("ip").args(["netns", "delete", &name]).output());
            }
        }
    });
}

/// Joins two namespaces by a pair of devices, `(namespace, device)` each.
///
/// # Panics
/// When the kernel refuses.
pub fn join(one: (&Namespace, &str), other: (&Namespace, &str)) {
    ip(&[
        "link",
        "add",
        one.1,
        "netns",
        &one.0.name,
        "type",
        "veth",
        "peer",
        "name",
        other.1,
        "netns",
        &other.0.name,
    ]);
}

impl Namespace {
    /// A new one, with its loopback up and without a check of where packets came from.
    ///
    /// # Panics
    /// When the kernel refuses, which it does without root.
    pub fn make(part: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{count}{part}", std::process::id());
        ip(&["netns", "add", &name]);
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"]);
        for scope in ["all", "default"] {
            namespace.set(&format!("net.ipv4.conf.{scope}.rp_filter"), "0");
        }
        namespace
    }

    /// Sets a value of the kernel's for this namespace.
    ///
    /// # Panics
    /// When the kernel refuses it.
    pub fn set(&self, name: &str, value: &str) {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        self.inside(|| std::fs::write(&path, value)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Runs `ip` in it and gives what that wrote.
    ///
    /// # Panics
    /// When `ip` fails, with its words.
    pub fn ip(&self, words: &[&str]) -> String {
        ip(&[&["-netns", &self.name], words].concat())
    }

    /// A command whose process will be in it.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs `act` on a thread in it. A socket belongs to the namespace that it was made in.
    pub fn inside<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            let namespace =
                File::open(Path::new(NAMES).join(&self.name)).expect("the namespace has its name");
            setns(namespace, CloneFlags::CLONE_NEWNET).expect("root enters a namespace of its own");
            act()
        };
        std::thread::scope(|scope| match scope.spawn(enter).join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// A UDP socket in it.
    ///
    /// # Panics
    /// When the address is none of it.
    pub fn udp(&self, at: SocketAddrV4) -> UdpSocket {
        self.inside(|| UdpSocket::bind(at)).unwrap_or_else(|error| panic!("{at}: {error}"))
    }

    /// A TCP listener in it.
    ///
    /// # Panics
    /// When the address is none of it.
    pub fn listener(&self, at: SocketAddrV4) -> TcpListener {
        self.inside(|| TcpListener::bind(at)).unwrap_or_else(|error| panic!("{at}: {error}"))
    }

    /// A TCP connection out of it.
    ///
    /// # Panics
    /// When it does not come about within 10 s.
    pub fn connect(&self, to: SocketAddrV4) -> TcpStream {
        let connected = self.inside(|| TcpStream::connect_timeout(&SocketAddr::V4(to), CONNECT));
        connected.unwrap_or_else(|error| panic!("{to}: {error}"))
    }

    /// Runs `ethtool` in it.
    ///
    /// # Panics
    /// When `ethtool` fails, with its words.
    pub fn ethtool(&self, words: &[&str]) {
        let done = self.command(Path::new("ethtool")).args(words).output().expect("ip is installed");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "ethtool {}: {}", words.join(" "), said.trim());
    }

    /// Runs `ping` in it with these words; gives the answers that came and what it wrote.
    ///
    /// # Panics
    /// When there is no `ping`.
    pub fn ping(&self, words: &[&str]) -> (u32, String) {
        let done = self.command(Path::new("ping")).arg("-n").args(words).output().expect("ping is installed");
        let text =
            format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        let received = text.split(", ").find_map(|part| part.strip_suffix(" received")?.parse().ok());
        (received.unwrap_or(0), text)
    }

    /// A counter of one of its devices, such as `rx_bytes`.
    ///
    /// # Panics
    /// When it has no such device.
    pub fn counter(&self, device: &str, counter: &str) -> u64 {
        let path = format!("/sys/class/net/{device}/statistics/{counter}");
        let shown = self.command(Path::new("cat")).arg(&path).output().expect("cat is installed");
        let text = String::from_utf8_lossy(&shown.stdout);
        text.trim().parse().unwrap_or_else(|_| panic!("{path} in {} says {text:?}", self.name))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Best effort: what is left is swept by the next run.
        drop(Command::new("ip").args(["netns", "delete", &self.name]).output());
    }
}

fn ip(words: &[&str]) -> String {
    let done = Command::new("ip").args(words).output().expect("ip is installed");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {}: {}", words.join(" "), said.trim());
    String::from_utf8_lossy(&done.stdout).into_owned()
}
