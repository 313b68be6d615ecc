//! The real `coreflow`, started as a unit would start it: a working directory with `qenv.yml`,
//! an empty environment plus the named variables, the bearer as a credential file.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::authority::Authority;
use crate::binaries::binaries;
use crate::cloudly::{Cloudly, Settings};
use crate::dial::Target;
use crate::free_port::free_port;
use crate::notify::NotifySocket;
use crate::processes::{signal, workers_of};
use crate::waiting::{BOUND, Change, Late, poll};

const BEARER: &str = "SERVEZONE_CLUSTER_RELAY_AUTHORIZATION";
const QENV: &str = "required:\n  - CLOUDLY_URL\n  - SERVEZONE_CLUSTER_RELAY_AUTHORIZATION\n";

/// Where the bearer is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BearerPlace {
    /// A file in `$CREDENTIALS_DIRECTORY`.
    Credential,
    /// The environment.
    Environment,
    /// `.nogit/env.json`.
    Overlay,
    /// Nowhere.
    Nowhere,
}

/// How the relay is started.
#[derive(Clone)]
pub struct RelaySetup {
    /// Every variable beside the bearer and those that point into the working directory.
    pub variables: BTreeMap<String, String>,
    /// The bearer.
    pub bearer: String,
    /// Where it is put.
    pub bearer_place: BearerPlace,
    /// `qenv.yml`; `None` ships none.
    pub qenv: Option<String>,
    /// Files in the working directory, by relative path, such as `.nogit/env.yml`.
    pub files: BTreeMap<String, String>,
    /// The command line's options.
    pub arguments: Vec<String>,
    /// Whether there is a `NOTIFY_SOCKET`.
    pub notify: bool,
    /// Where the control socket is to be; a relative path is one in the working directory.
    pub control_socket: Option<PathBuf>,
    /// The port of the origin and the listener.
    pub port: u16,
    /// The host name of the origin.
    pub host_name: String,
    /// The directory of the executables; `None` is the one they were built into.
    pub executables: Option<PathBuf>,
    /// The limit of open files that it is started under, where that is not the test's own.
    pub open_files: Option<u32>,
    /// Whether it leads a process group, as a command that a terminal's shell starts.
    pub own_group: bool,
    /// What it trusts, PEM; the authority's own root unless changed.
    pub anchors: String,
    authority: Authority,
}

impl RelaySetup {
    /// A relay with `relay.localhost.test` on a free port of 127.0.0.1, that trusts `authority`.
    pub fn new(authority: &Authority) -> Self {
        let port = free_port();
        let variable = |name: &str, value: String| (name.to_owned(), value);
        Self {
            variables: BTreeMap::from([
                variable("COREFLOW_NODE_ID", "relay-node".to_owned()),
                variable("COREFLOW_RELAY_BIND_HOSTNAME", "127.0.0.1".to_owned()),
                variable("COREFLOW_RELAY_BIND_PORT", port.to_string()),
            ]),
            bearer: String::new(),
            bearer_place: BearerPlace::Credential,
            qenv: Some(QENV.to_owned()),
            files: BTreeMap::new(),
            arguments: Vec::new(),
            notify: false,
            control_socket: None,
            port,
            host_name: "relay.localhost.test".to_owned(),
            executables: None,
            open_files: None,
            own_group: false,
            anchors: authority.ca_pem().to_owned(),
            authority: authority.clone(),
        }
    }

    /// The origin that Cloudly has to publish.
    pub fn origin(&self) -> String {
        format!("https://{}:{}", self.host_name, self.port)
    }

    /// The standing facts of a Cloudly that knows this relay.
    pub fn cloudly_settings(&self) -> Settings {
        Settings::for_origin(&self.origin())
    }

    /// Points the relay at `cloudly` and gives it the bearer that authenticates there.
    #[must_use]
    pub fn facing(mut self, cloudly: &Cloudly) -> Self {
        self.bearer = cloudly.change(|settings| settings.bearer.clone());
        self.variable("CLOUDLY_URL", &cloudly.url())
    }

    /// Sets a variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Removes a variable.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.variables.remove(name);
        self
    }

    /// Gives the relay a `NOTIFY_SOCKET`.
    #[must_use]
    pub fn notified(mut self) -> Self {
        self.notify = true;
        self
    }

    /// Gives the relay a control socket in its working directory.
    #[must_use]
    pub fn controlled(mut self) -> Self {
        self.control_socket = Some("control.sock".into());
        self
    }

    /// What a node dials.
    pub fn target(&self) -> Target {
        self.target_offering(&["http/1.1"])
    }

    /// What a client dials that offers the protocols of `alpn`.
    pub fn target_offering(&self, alpn: &[&str]) -> Target {
        Target {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)),
            server_name: self.host_name.clone(),
            tls: self.authority.client_config(alpn),
        }
    }

    /// Builds the binaries where that has not happened, and starts the relay.
    ///
    /// # Panics
    /// When the working directory cannot be laid out or `coreflow` cannot be executed.
    pub fn start(&self) -> Relay {
        Relay::start(self)
    }

    fn lay_out(&self, home: &Path) -> BTreeMap<String, String> {
        let write = |path: &Path, text: &str| {
            std::fs::create_dir_all(path.parent().expect("a file has a directory"))
                .expect("creating a directory");
            std::fs::write(path, text).expect("writing a file of the working directory");
        };
        let mut variables = self.variables.clone();
        let mut point =
            |name: &str, path: &Path| variables.insert(name.to_owned(), path.display().to_string());
        let authorities = home.join("authorities.pem");
        write(&authorities, &self.anchors);
        point("SSL_CERT_FILE", &authorities);
        if let Some(qenv) = &self.qenv {
            write(&home.join("qenv.yml"), qenv);
        }
        for (path, text) in &self.files {
            write(&home.join(path), text);
        }
        match self.bearer_place {
            BearerPlace::Credential => {
                let credentials = home.join("credentials");
                write(&credentials.join(BEARER), &self.bearer);
                point("CREDENTIALS_DIRECTORY", &credentials);
            }
            BearerPlace::Environment => drop(variables.insert(BEARER.to_owned(), self.bearer.clone())),
            BearerPlace::Overlay => {
                let overlay = serde_json::json!({BEARER: self.bearer}).to_string();
                write(&home.join(".nogit").join("env.json"), &overlay);
            }
            BearerPlace::Nowhere => {}
        }
        variables
    }
}

/// A line the relay wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Whether it came on stderr.
    pub stderr: bool,
    /// The line without its end.
    pub text: String,
}

/// The running relay. Dropping it kills and reaps the supervisor and kills what is left of its
/// workers.
pub struct Relay {
    child: Child,
    home: TempDir,
    notify: Option<NotifySocket>,
    control_socket: Option<PathBuf>,
    lines: Arc<Mutex<Vec<Line>>>,
    /// Streams that are not read to their end.
    reading: Arc<AtomicUsize>,
    change: Change,
}

impl Relay {
    fn start(setup: &RelaySetup) -> Self {
        let home = tempfile::tempdir().expect("creating the working directory");
        let mut variables = setup.lay_out(home.path());
        let notify = setup.notify.then(|| {
            let path = home.path().join("notify");
            variables.insert("NOTIFY_SOCKET".to_owned(), path.display().to_string());
            NotifySocket::bind(&path).expect("binding the notify socket")
        });
        let control_socket = setup.control_socket.as_ref().map(|path| home.path().join(path));
        let control =
            control_socket.iter().flat_map(|path| [OsStr::new("--control-socket"), path.as_os_str()]);
        let executables = setup.executables.as_deref().unwrap_or_else(|| binaries());
        let program = executables.join("coreflow");
        let mut command = match setup.open_files {
            None => Command::new(program),
            Some(most) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &most.to_string()]).arg(program);
                shell
            }
        };
        if setup.own_group {
            command.process_group(0);
        }
        let mut child = command
            .args(&setup.arguments)
            .args(control)
            .current_dir(home.path())
            .env_clear()
            .envs(&variables)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("executing coreflow");
        let (lines, change) = (Arc::default(), Change::default());
        let reading = Arc::new(AtomicUsize::new(2));
        collect(child.stdout.take().expect("stdout is a pipe"), false, &lines, &reading, &change);
        collect(child.stderr.take().expect("stderr is a pipe"), true, &lines, &reading, &change);
        Self { child, home, notify, control_socket, lines, reading, change }
    }

    /// Every line so far, both streams, in order of arrival.
    pub fn lines(&self) -> Vec<Line> {
        lock(&self.lines).clone()
    }

    /// The lines since the last call of this, which are forgotten: what a long run asks, so that they do
    /// not pile up.
    pub fn take_lines(&self) -> Vec<Line> {
        std::mem::take(&mut lock(&self.lines))
    }

    /// Waits for a line that contains `part`.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_line(&self, part: &str) -> Result<Line, Late> {
        let look = || lock(&self.lines).iter().find(|line| line.text.contains(part)).cloned();
        let waited = self.change.until(BOUND, &format!("line of the relay with \"{part}\""), look).await;
        if waited.is_err() {
            // What the relay said instead tells why.
            self.lines().iter().for_each(|line| eprintln!("relay: {}", line.text));
        }
        waited
    }

    /// Waits until the listener is open.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_open(&self) -> Result<(), Late> {
        self.wait_line("the relay is open for Cloudly dispatch").await.map(drop)
    }

    /// The service manager's end, where the setup asked for one.
    pub fn notify(&self) -> Option<&NotifySocket> {
        self.notify.as_ref()
    }

    /// Where its control socket is.
    ///
    /// # Panics
    /// When the setup asked for none.
    pub fn control_socket(&self) -> &Path {
        self.control_socket.as_deref().expect("the relay was set up with a control socket")
    }

    /// The working directory.
    pub fn home(&self) -> PathBuf {
        self.home.path().to_owned()
    }

    /// The supervisor's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The living workers by role: `relayd`, `pulld`, `vpnd`.
    pub fn workers(&self) -> BTreeMap<String, u32> {
        workers_of(self.pid())
    }

    /// Waits for a worker of `role` whose process id is not `former`.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_worker(&self, role: &str, former: Option<u32>) -> Result<u32, Late> {
        let look = || self.workers().get(role).copied().filter(|pid| Some(*pid) != former);
        poll(BOUND, &format!("worker {role}"), look).await
    }

    /// Kills the worker of `role` with SIGKILL and gives the process id it had.
    pub fn kill_worker(&self, role: &str) -> Option<u32> {
        let pid = self.workers().get(role).copied()?;
        signal(pid, Signal::SIGKILL);
        Some(pid)
    }

    /// Sends `which` to the worker of `role`, if it is still the process `pid`.
    pub fn signal_worker(&self, role: &str, pid: u32, which: Signal) {
        if self.workers().get(role) == Some(&pid) {
            signal(pid, which);
        }
    }

    /// Sends the supervisor a signal.
    pub fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    /// Waits for the exit, and until all that the relay wrote is read: the code, or minus the number of the
    /// signal that ended it.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_exit(&mut self, bound: Duration) -> Result<i32, Late> {
        let look = || {
            let status = self.child.try_wait().expect("asking for the exit of an own child")?;
            if self.reading.load(Ordering::SeqCst) > 0 {
                return None;
            }
            Some(status.code().unwrap_or_else(|| -status.signal().unwrap_or_default()))
        };
        poll(bound, "exit of the relay", look).await
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let workers = self.workers();
        drop(self.child.kill());
        drop(self.child.wait());
        for pid in workers.into_values().filter(|pid| crate::processes::is_alive(*pid)) {
            signal(pid, Signal::SIGKILL);
        }
    }
}

fn collect(
    stream: impl Read + Send + 'static,
    stderr: bool,
    lines: &Arc<Mutex<Vec<Line>>>,
    reading: &Arc<AtomicUsize>,
    change: &Change,
) {
    let (lines, reading, change) = (lines.clone(), reading.clone(), change.clone());
    std::thread::spawn(move || {
        for bytes in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            lock(&lines).push(Line { stderr, text: String::from_utf8_lossy(&bytes).into_owned() });
            change.announce();
        }
        reading.fetch_sub(1, Ordering::SeqCst);
    });
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
