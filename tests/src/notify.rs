//! The service manager's end of `NOTIFY_SOCKET`: a datagram socket that remembers what it was
//! told.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use crate::waiting::{BOUND, Change, Late};

/// The socket. Dropping it ends its thread.
pub struct NotifySocket {
    path: PathBuf,
    socket: UnixDatagram,
    messages: Arc<Mutex<Vec<String>>>,
    change: Change,
    reader: Option<JoinHandle<()>>,
}

impl NotifySocket {
    /// Binds at `path`.
    ///
    /// # Errors
    /// The system's.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::bind(path)?;
        let (messages, change) = (Arc::new(Mutex::new(Vec::new())), Change::default());
        let (inbox, kept, told) = (socket.try_clone()?, messages.clone(), change.clone());
        let reader = std::thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(length @ 1..) = inbox.recv(&mut buffer) {
                lock(&kept).push(String::from_utf8_lossy(&buffer[..length]).into_owned());
                told.announce();
            }
        });
        Ok(Self { path: path.to_owned(), socket, messages, change, reader: Some(reader) })
    }

    /// Where it is bound.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every datagram so far.
    pub fn messages(&self) -> Vec<String> {
        lock(&self.messages).clone()
    }

    /// Waits for a datagram with the line `assignment`.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait(&self, assignment: &str) -> Result<(), Late> {
        let holds = |message: &String| message.lines().any(|line| line == assignment);
        let look = || self.messages().iter().any(holds).then_some(());
        self.change.until(BOUND, &format!("notification {assignment}"), look).await
    }
}

impl Drop for NotifySocket {
    fn drop(&mut self) {
        drop(self.socket.shutdown(Shutdown::Both));
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A datagram is kept, its lines are found, and the drop ends the thread.
    #[tokio::test]
    async fn a_notification_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let notify = NotifySocket::bind(&directory.path().join("notify")).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        sender.send_to(b"READY=1\nSTATUS=open", notify.path()).unwrap();
        notify.wait("STATUS=open").await.unwrap();
        assert_eq!(notify.messages(), ["READY=1\nSTATUS=open"]);
    }
}
