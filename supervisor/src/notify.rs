//! What systemd is told, where it gave us a notify socket; elsewhere nothing happens (START-05, REL-38).
//!
//! Nothing here waits: while the service manager takes nothing, what is to be told is kept, one of each kind,
//! and sent again at a bounded pace.

use std::{
    ffi::OsStr,
    fmt::Write,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

use coreflow_ipc::record::escape_into;
use sd_notify::NotifyState;
use tracing::warn;

use crate::{constants::NOTIFY_AGAIN, latest::Latest};

/// Tells systemd.
#[derive(Debug, Default)]
pub struct Notify {
    manager: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    unsent: Unsent,
    status: Latest,
    again_at: Option<Duration>,
    refused: bool,
}

/// Which assignments are still to be sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Unsent {
    ready: bool,
    stopping: bool,
    alive: bool,
}

impl Notify {
    /// Tells the service manager at `socket`, if there is one, and reads how often its watchdog wants to be fed.
    pub fn of_process(socket: Option<&OsStr>) -> Self {
        let manager = socket.and_then(|name| match open(name) {
            Ok(manager) => Some(manager),
            Err(error) => {
                warn!(class = %error.kind(), "systemd does not take notifications");
                None
            }
        });
        Self { manager, watchdog: sd_notify::watchdog_enabled(), ..Self::default() }
    }

    /// How often [`Notify::alive`] is due: half of what systemd waits for.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|bound| bound / 2)
    }

    /// The relay is open for Cloudly dispatch.
    pub fn ready(&mut self, mono: Duration) {
        self.unsent.ready = true;
        self.status.set("open for Cloudly dispatch".to_owned());
        self.send(mono);
    }

    /// One line on what the relay does, for `systemctl status`. The latest is told, at a bounded pace.
    pub fn status(&mut self, text: &str, mono: Duration) {
        self.status.set(one_line(text));
        if self.again_at.is_none_or(|at| at <= mono) {
            self.send(mono);
        }
    }

    /// The relay stops.
    pub fn stopping(&mut self, mono: Duration) {
        self.unsent.stopping = true;
        self.status.set("stopping".to_owned());
        self.send(mono);
    }

    /// The loop that judges the workers is alive.
    pub fn alive(&mut self, mono: Duration) {
        self.unsent.alive = true;
        self.send(mono);
    }

    /// When [`Notify::tick`] is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.manager.as_ref()?;
        self.again_at.or_else(|| self.status.next_deadline())
    }

    /// A deadline passed, or may have.
    pub fn tick(&mut self, mono: Duration) {
        if self.next_deadline().is_some_and(|due| due <= mono) {
            self.send(mono);
        }
    }

    fn send(&mut self, mono: Duration) {
        let Some((socket, address)) = &self.manager else { return };
        let status = self.status.take_due(mono);
        let datagram = datagram(self.unsent, status.as_deref());
        if datagram.is_empty() {
            self.again_at = None;
            return;
        }
        match socket.send_to_addr(datagram.as_bytes(), address) {
            Ok(_) => {
                (self.unsent, self.again_at, self.refused) = (Unsent::default(), None, false);
            }
            Err(error) => {
                let again_at = mono + NOTIFY_AGAIN;
                self.again_at = Some(again_at);
                if status.is_some() {
                    self.status.put_back(again_at);
                }
                if !self.refused {
                    self.refused = true;
                    warn!(class = %error.kind(), "systemd does not take notifications");
                }
            }
        }
    }
}

/// A socket that never blocks, and the service manager's address: a path, or a name that begins with `@`.
fn open(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

/// One datagram of all that is to be told; empty when nothing is.
fn datagram(unsent: Unsent, status: Option<&str>) -> String {
    let Unsent { ready, stopping, alive } = unsent;
    let states = [
        ready.then_some(NotifyState::Ready),
        stopping.then_some(NotifyState::Stopping),
        alive.then_some(NotifyState::Watchdog),
        status.map(NotifyState::Status),
    ];
    states.into_iter().flatten().fold(String::new(), |mut datagram, state| {
        let _ = writeln!(datagram, "{state}");
        datagram
    })
}

/// The text as one assignment's value: a line break in what a peer wrote would begin another assignment, such
/// as `MAINPID=`, that systemd takes from the supervisor.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    escape_into(&mut line, text);
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::LATEST_BURST;

    const S: Duration = Duration::from_secs(1);

    /// A service manager that reads when it is asked to, and who tells it.
    fn manager() -> (tempfile::TempDir, UnixDatagram, Notify) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let manager = Some(open(path.as_os_str()).unwrap());
        (directory, socket, Notify { manager, ..Notify::default() })
    }

    fn read(socket: &UnixDatagram) -> Vec<String> {
        let mut buffer = [0; 1024];
        std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|length| buffer[..length].to_vec()))
            .map(|datagram| String::from_utf8(datagram).unwrap())
            .collect()
    }

    /// REL-38: a service manager whose queue is full holds nobody up, and is told once it reads again.
    #[test]
    fn a_full_queue_is_waited_for_by_nobody() {
        let (_directory, socket, mut notify) = manager();
        let (filler, address) =
            open(socket.local_addr().unwrap().as_pathname().unwrap().as_os_str()).unwrap();
        while filler.send_to_addr(b"X=1", &address).is_ok() {}
        notify.ready(S);
        notify.alive(S);
        notify.status("not ready: why", S);
        notify.stopping(2 * S);
        // However long it takes nothing, each deadline is a later one.
        let mut mono = 2 * S;
        for _ in 0..50 {
            let due = notify.next_deadline().unwrap();
            assert!(due > mono && due <= mono + S);
            mono = due;
            notify.tick(mono);
        }
        assert!(read(&socket).iter().all(|datagram| datagram == "X=1"));
        notify.alive(mono);
        assert_eq!(read(&socket), ["READY=1\nSTOPPING=1\nWATCHDOG=1\n"]);
        let due = notify.next_deadline().unwrap();
        notify.tick(due - Duration::from_nanos(1));
        assert_eq!(read(&socket), [""; 0], "not before its time");
        notify.tick(due);
        assert_eq!(read(&socket), ["STATUS=stopping\n"]);
        assert_eq!(notify.next_deadline(), None);
        notify.tick(due + 9 * S);
        assert_eq!(read(&socket), [""; 0], "told once");
    }

    /// REL-38: however often the status changes, the service manager is told at a bounded pace, and the last
    /// one in the end; `READY=1` waits for none of it.
    #[test]
    fn a_flood_of_states_is_told_by_its_last() {
        let (_directory, socket, mut notify) = manager();
        let mut told = Vec::new();
        for number in 0..1000 {
            notify.status(&format!("not ready: {number}"), S);
            told.extend(read(&socket));
        }
        assert_eq!(told.len(), LATEST_BURST as usize);
        notify.ready(S);
        assert_eq!(read(&socket), ["READY=1\n"]);
        notify.status("not ready: last", S);
        notify.tick(notify.next_deadline().unwrap());
        assert_eq!(read(&socket), ["STATUS=not ready: last\n"]);
        assert_eq!(notify.next_deadline(), None);
    }

    /// Without a service manager nothing is due.
    #[test]
    fn nobody_is_told_nothing() {
        let mut notify = Notify::default();
        notify.ready(S);
        notify.status("x", S);
        assert_eq!(notify.next_deadline(), None);
    }

    /// LOG-02, REL-38: what a peer wrote is a part of the status and never an assignment of its own.
    #[test]
    fn foreign_text_makes_no_second_assignment() {
        let line = one_line("not ready: palletRuntime: x\nMAINPID=1\r\nREADY=1\0");
        assert_eq!(line, "not ready: palletRuntime: x\\nMAINPID=1\\r\\nREADY=1\\u{0}");
    }
}
