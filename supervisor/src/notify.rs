//! What systemd is told, where it gave us a notify socket; elsewhere nothing happens.

use std::time::Duration;

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
    pub fn status(&self, line: &str) {
        send(&[NotifyState::Status(line)]);
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

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(class = %error.kind(), "systemd does not take notifications");
    }
}
