//! What is attacked: two relays that serve, each with its own Cloudly, of which one is left dumpable with all its
//! workers; and the host's files, ports and sockets, as an attacker of the same user finds them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::list::{Told, Victim};
use super::wall::leave_dumpable;
use crate::authority::Authority;
use crate::cloudly::Cloudly;
use crate::free_port::free_port;
use crate::relay::{Relay, RelaySetup};
use crate::waiting::{BOUND, Late, poll};

/// A relay whose three workers run.
struct Serving {
    relay: Relay,
    _cloudly: Cloudly,
    supervisor: u32,
    /// By their names.
    workers: BTreeMap<String, u32>,
}

impl Serving {
    async fn start(executables: Option<&Path>, dumpable: bool) -> Result<Self, Late> {
        let authority = Authority::new();
        let mut setup = RelaySetup::new(&authority).controlled().notified();
        setup.executables = executables.map(Path::to_owned);
        let cloudly = Cloudly::start(&authority, setup.cloudly_settings()).await;
        let setup = setup
            .facing(&cloudly)
            .variable("COREFLOW_VPN_BIND_HOSTNAME", "127.0.0.1")
            .variable("COREFLOW_VPN_QUIC_PORT", &free_port().to_string());
        // A filter binds a thread and what it starts.
        let start = move || {
            if dumpable {
                leave_dumpable();
            }
            setup.start()
        };
        let relay = std::thread::spawn(start).join().expect("coreflow can be executed");
        relay.wait_open().await?;
        cloudly.wait_accepted(1).await?;
        let all = || Some(relay.workers()).filter(|workers| workers.len() == 3);
        let workers = poll(BOUND, "relayd, pulld and vpnd", all).await?;
        Ok(Self { supervisor: relay.pid(), relay, _cloudly: cloudly, workers })
    }

    /// The first or the second of the workers beside `role`.
    fn sibling(&self, role: &str, which: usize) -> u32 {
        let mut siblings = self.workers.iter().filter(|(worker, _)| *worker != role);
        *siblings.nth(which).expect("a worker has two siblings").1
    }

    fn processes(&self) -> (u32, Vec<u32>) {
        (self.supervisor, self.relay.workers().into_values().collect())
    }
}

/// Everything that is attacked.
pub(crate) struct Stage {
    guarded: Serving,
    dumpable: Serving,
    before: [(u32, Vec<u32>); 2],
    directory: TempDir,
    /// Held by the one attack that traces.
    pub(crate) tracing: Mutex<()>,
    names: AtomicU32,
    tcp: TcpListener,
    /// None on a host without IPv6.
    tcp6: Option<TcpListener>,
    udp: UdpSocket,
    _journal: UnixDatagram,
    _abstract: UnixListener,
}

/// What one attempt is told, and what has to live as long as it does.
pub(crate) struct Prepared {
    /// The attempt's argument.
    pub argument: String,
    _left_open: Option<(UnixStream, UnixStream)>,
}

impl Stage {
    /// Starts what is attacked, of the executables in a directory or of those that are built.
    ///
    /// # Errors
    /// [`Late`], naming what did not come.
    ///
    /// # Panics
    /// When this host gives no directory, port or socket.
    pub(crate) async fn set(executables: Option<&Path>) -> Result<Self, Late> {
        let directory = tempfile::tempdir().expect("a directory for passing files");
        let journal = UnixDatagram::bind(directory.path().join("journal")).expect("a socket with a path");
        let address = SocketAddr::from_abstract_name(abstract_name()).expect("a short name");
        let guarded = Serving::start(executables, false).await?;
        let dumpable = Serving::start(executables, true).await?;
        let before = [guarded.processes(), dumpable.processes()];
        Ok(Self {
            guarded,
            dumpable,
            before,
            tracing: Mutex::default(),
            names: AtomicU32::new(0),
            tcp: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback"),
            tcp6: TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok(),
            udp: UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback"),
            _journal: journal,
            _abstract: UnixListener::bind_addr(&address).expect("an abstract socket"),
            directory,
        })
    }

    /// Where attackers work.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The process that is attacked, one that is dumpable or one that is not.
    pub(crate) fn victim(&self, victim: Victim, role: &str, dumpable: bool) -> u32 {
        let serving = if dumpable { &self.dumpable } else { &self.guarded };
        match victim {
            // Whom nobody attacks.
            Victim::Host => std::process::id(),
            Victim::Supervisor => serving.supervisor,
            Victim::Sibling => serving.sibling(role, 0),
            Victim::OtherSibling => serving.sibling(role, 1),
        }
    }

    /// Whether every victim still runs as the process that it was.
    pub(crate) fn is_unharmed(&self) -> bool {
        [self.guarded.processes(), self.dumpable.processes()] == self.before
    }

    /// That all victims run as the attackers' own user, so that no refusal is owed to another one.
    pub(crate) fn users(&self) -> Result<(), String> {
        let of = |pid: u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().find(|line| line.starts_with("Uid:")).map(str::to_owned)
        };
        let own = of(std::process::id());
        for (supervisor, workers) in [self.guarded.processes(), self.dumpable.processes()] {
            if let Some(other) = workers.into_iter().chain([supervisor]).find(|pid| of(*pid) != own) {
                return Err(format!("process {other} runs as another user: {:?} and not {own:?}", of(other)));
            }
        }
        Ok(())
    }

    /// What the attempt of `role` on `victim` is told.
    ///
    /// # Panics
    /// When this host gives no file or descriptor.
    pub(crate) fn prepare(&self, told: Told, victim: Victim, role: &str) -> Prepared {
        let credentials = self.guarded.relay.home().join("credentials");
        let path = |path: PathBuf| path.to_str().expect("a path in UTF-8").to_owned();
        let mut left_open = None;
        let argument = match told {
            Told::Nothing => String::new(),
            Told::Path(path) => path.to_owned(),
            // Of a victim that shows its memory, as the other one does not even show where it has any.
            Told::Memory => arguments_of(self.victim(victim, role, true)),
            Told::Credential => path(credentials.join("SERVEZONE_CLUSTER_RELAY_AUTHORIZATION")),
            Told::File => {
                let file = self.fresh();
                std::fs::write(&file, "content").expect("writing an own file");
                path(file)
            }
            Told::Directory => {
                let directory = self.fresh();
                std::fs::create_dir(&directory).expect("making an own directory");
                path(directory)
            }
            Told::NewFile => path(self.fresh()),
            Told::TcpPort => self.tcp.local_addr().expect("it is bound").port().to_string(),
            Told::Tcp6Port => {
                let port = |listener: &TcpListener| listener.local_addr().expect("it is bound").port();
                // Port 0 is nobody's.
                self.tcp6.as_ref().map_or(0, port).to_string()
            }
            Told::UdpPort => self.udp.local_addr().expect("it is bound").port().to_string(),
            Told::ControlSocket => path(self.guarded.relay.control_socket().to_owned()),
            Told::NotifySocket => path(self.guarded.relay.home().join("notify")),
            Told::JournalSocket => path(self.directory.path().join("journal")),
            Told::AbstractSocket => abstract_name(),
            Told::LeftOpen => {
                let (mut writer, reader) = UnixStream::pair().expect("a pair of sockets");
                writer.write_all(b"bearer").expect("room for six bytes");
                // Not closed by an exec.
                let stays = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty());
                nix::fcntl::fcntl(&reader, stays).expect("an own descriptor takes a flag");
                let number = reader.as_raw_fd().to_string();
                left_open = Some((writer, reader));
                number
            }
        };
        Prepared { argument, _left_open: left_open }
    }

    fn fresh(&self) -> PathBuf {
        self.directory.path().join(format!("file-{}", self.names.fetch_add(1, Ordering::Relaxed)))
    }
}

fn abstract_name() -> String {
    format!("coreflow-attacks-{}", std::process::id())
}

/// Where the arguments of a process begin, and the zero byte that ends them, in hexadecimal digits.
fn arguments_of(pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the victim runs");
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    // Fields 48 and 49 of proc(5), of which the third is the first behind the name.
    let mut places = fields.split_whitespace().skip(45).map(|place| place.parse::<u64>().expect("a number"));
    let (start, end) = (places.next().expect("field 48"), places.next().expect("field 49"));
    assert!(start < end, "a victim that is dumpable shows where its arguments are");
    format!("{start:x}-{:x}", end - 1)
}
