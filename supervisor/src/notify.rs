//! What systemd is told, where it gave us a notify socket; elsewhere nothing happens.

use std::time::Duration;

use coreflow_ipc::record::escape_into;
use sd_notify::NotifyState;
use tracing::warn;

/// Tells systemd.
#[derive(Debug)]
pub struct Notify {
    watchdog: Option<Duration>,
}

impl Notify {
    /// Reads how often the watchdog wants to be fed, if it does.
    pub fn of_process() -> Self {
        Self { watchdog: sd_notify::watchdog_enabled() }
    }

    /// How often [`Notify::alive`] is due: half of what systemd waits for.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|bound| bound / 2)
    }

    /// The relay is open for Cloudly dispatch.
    pub fn ready(&self) {
        send(&[NotifyState::Ready, NotifyState::Status("open for Cloudly dispatch")]);
    }

    /// One line on what the relay does, for `systemctl status`.
    pub fn status(&self, text: &str) {
        send(&[NotifyState::Status(&one_line(text))]);
    }

    /// The relay stops.
    pub fn stopping(&self) {
        send(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    }

    /// The loop that judges the workers is alive.
    pub fn alive(&self) {
        send(&[NotifyState::Watchdog]);
    }
}

/// The text as one assignment's value: a line break in what a peer wrote would begin another assignment, such
/// as `MAINPID=`, that systemd takes from the supervisor.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    escape_into(&mut line, text);
    line
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(class = %error.kind(), "systemd does not take notifications");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LOG-02, REL-38: what a peer wrote is a part of the status and never an assignment of its own.
    #[test]
    fn foreign_text_makes_no_second_assignment() {
        let line = one_line("not ready: palletRuntime: x\nMAINPID=1\r\nREADY=1\0");
        assert_eq!(line, "not ready: palletRuntime: x\\nMAINPID=1\\r\\nREADY=1\\u{0}");
    }
}
