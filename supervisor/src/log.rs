//! The one log: the supervisor's own events and the workers' records, to the journal with fields when
//! systemd gave us a journal stream, else one line per event (ARC-22, LOG-02, REL-36). A thread of its own
//! writes; nobody who logs waits for it.

use std::{
    io::{self, Write},
    os::fd::AsFd,
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread,
    time::Instant,
};

use coreflow_ipc::{
    hello::Role,
    record::{Level, Outlet, RELAYED, Record, RecordLayer, Verbosity},
};
use nix::sys::stat::fstat;
use tracing::Dispatch;
use tracing_subscriber::layer::SubscriberExt;

use crate::constants::{LOG_FLUSH_BOUND, LOG_FLUSH_PAUSE, LOG_QUEUE};

/// The log of the process.
pub struct Log {
    /// Changes what the supervisor writes.
    pub verbosity: Verbosity,
    lines: Lines,
    is_journal: bool,
}

impl Log {
    /// Starts the log. `journal_stream` is what `JOURNAL_STREAM` says; a process has one log, so a
    /// second start in it (an embedding caller's) writes to the first.
    pub fn start(journal_stream: Option<&str>) -> Self {
        let verbosity = Verbosity::new(Level::Info);
        let journal = is_journal(journal_stream).then(tracing_journald::layer).and_then(Result::ok);
        let journal = journal.map(|layer| {
            let layer = layer.with_field_prefix(Some("COREFLOW".to_owned()));
            Dispatch::new(tracing_subscriber::registry().with(layer))
        });
        let is_journal = journal.is_some();
        let lines = Lines::start(journal.map_or(Sink::Standard, Sink::Journal));
        let layer = RecordLayer::new(lines.clone(), verbosity.clone());
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer));
        Self { verbosity, lines, is_journal }
    }

    /// Whether events go to the journal, where standard error is not read as the log.
    pub fn is_journal(&self) -> bool {
        self.is_journal
    }

    /// States why the start failed, on standard error (START-16): to the journal by that way alone, which takes a line of
    /// it at the level of its prefix, so that it is there once.
    pub fn failed(&self, cause: &str) {
        if self.is_journal() {
            self.flush();
            let _ = writeln!(io::stderr(), "<3>the start failed: {cause}");
        } else {
            tracing::error!("the start failed: {cause}");
            self.flush();
        }
    }

    /// Writes what is queued, within a bound.
    pub fn flush(&self) {
        self.lines.flush();
    }
}

/// Writes a worker's record as an event of the log.
pub fn write(role: Role, mut record: Record) {
    record.fields.insert("worker".to_owned(), role.name().to_owned());
    emit(record);
}

/// An event with the fields that the journal is searched by; the rest is a part of its line.
fn emit(record: Record) {
    let Record { level, message, mut fields } = record;
    let [worker, node, method] = ["worker", "node", "method"].map(|name| fields.remove(name));
    let (worker, node, method) = (worker.as_deref(), node.as_deref(), method.as_deref());
    // A worker's message is a line already; escaping it again changes nothing.
    let line = Record { level, message, fields }.line();
    macro_rules! event {
        ($level:ident) => {
            tracing::$level!(target: RELAYED, worker, node, method, "{line}")
        };
    }
    match level {
        Level::Error => event!(error),
        Level::Warn => event!(warn),
        Level::Info => event!(info),
        Level::Debug => event!(debug),
        Level::Trace => event!(trace),
    }
}

/// Whether standard error is the stream that systemd connected to the journal.
fn is_journal(stated: Option<&str>) -> bool {
    let Some((device, inode)) = stated.and_then(|stated| stated.split_once(':')) else { return false };
    let stat = fstat(io::stderr().as_fd());
    stat.is_ok_and(|stat| device.parse() == Ok(stat.st_dev) && inode.parse() == Ok(stat.st_ino))
}

enum Queued {
    Line(Record),
    Flush(SyncSender<()>),
}

/// Where lines end up.
enum Sink {
    /// Standard output and error.
    Standard,
    /// The journal, as whoever takes events.
    Journal(Dispatch),
}

/// Lines on their way, written by a thread of their own: a reader or a journal that is slow costs lines, which
/// are counted, and never the supervisor's loop.
#[derive(Clone)]
struct Lines(SyncSender<Queued>);

impl Lines {
    fn start(sink: Sink) -> Self {
        let (sender, receiver) = sync_channel(LOG_QUEUE);
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_lines(&receiver, &sink))
            .expect("a process that starts has room for one thread");
        Self(sender)
    }

    /// Waits until everything is written, within a bound; a full queue gets that time to find room.
    fn flush(&self) {
        let until = Instant::now() + LOG_FLUSH_BOUND;
        let (done, wait) = sync_channel(1);
        let mut flush = Queued::Flush(done);
        loop {
            match self.0.try_send(flush) {
                Ok(()) => {
                    let _ = wait.recv_timeout(until.saturating_duration_since(Instant::now()));
                    return;
                }
                Err(TrySendError::Full(full)) if Instant::now() < until => {
                    flush = full;
                    thread::sleep(LOG_FLUSH_PAUSE);
                }
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return,
            }
        }
    }
}

impl Outlet for Lines {
    fn offer(&self, record: Record) -> Result<(), Record> {
        self.0.try_send(Queued::Line(record)).map_err(|error| match error {
            TrySendError::Full(Queued::Line(record)) | TrySendError::Disconnected(Queued::Line(record)) => {
                record
            }
            TrySendError::Full(Queued::Flush(_)) | TrySendError::Disconnected(Queued::Flush(_)) => {
                unreachable!("a line was offered")
            }
        })
    }
}

fn write_lines(queue: &Receiver<Queued>, sink: &Sink) {
    while let Ok(queued) = queue.recv() {
        match queued {
            Queued::Line(record) => match sink {
                Sink::Journal(journal) => tracing::dispatcher::with_default(journal, || emit(record)),
                Sink::Standard => write_standard(record),
            },
            Queued::Flush(done) => {
                let _ = done.try_send(());
            }
        }
    }
}

fn write_standard(record: Record) {
    let line = line(record);
    // Written at once, so that two processes' lines never mix.
    let _ = match line.0 {
        Level::Error | Level::Warn => io::stderr().lock().write_all(line.1.as_bytes()),
        Level::Info | Level::Debug | Level::Trace => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(line.1.as_bytes()).and_then(|()| stdout.flush())
        }
    };
}

fn line(record: Record) -> (Level, String) {
    let Record { level, message, mut fields } = record;
    let process = fields.remove("worker").unwrap_or_else(|| Role::Supervisor.name().to_owned());
    // A worker's message is a line already; escaping it again changes nothing.
    let line = Record { level, message, fields }.line();
    (level, format!("{} {process}: {line}\n", level.name()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// LOG-02, REL-36: one line per event, named after its process.
    #[test]
    fn an_event_is_one_line_of_its_process() {
        let fields = [("worker", "relayd"), ("node", "n1")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let record =
            Record { level: Level::Info, message: "node n1 is carried".into(), fields: fields.into() };
        assert_eq!(line(record).1, "INFO relayd: node n1 is carried node=n1\n");
        let record = Record { level: Level::Warn, message: "own".into(), fields: BTreeMap::new() };
        assert_eq!(line(record), (Level::Warn, "WARN supervisor: own\n".to_owned()));
    }

    /// Takes one record at a time, as its reader does.
    struct Slow(SyncSender<Record>);

    impl Outlet for Slow {
        fn offer(&self, record: Record) -> Result<(), Record> {
            self.0.send(record).map_err(|error| error.0)
        }
    }

    /// REL-36: a journal that takes nothing costs events, and nobody who logs waits for it; what it takes later
    /// has its fields, and says how many were lost before it.
    #[test]
    fn a_journal_that_takes_nothing_holds_nobody_up() {
        let (slow, taken) = sync_channel(0);
        let verbosity = Verbosity::new(Level::Trace);
        let journal = RecordLayer::new(Slow(slow), verbosity.clone());
        let journal = Dispatch::new(tracing_subscriber::registry().with(journal));
        let lines = Lines::start(Sink::Journal(journal));
        let own = Dispatch::new(tracing_subscriber::registry().with(RecordLayer::new(lines, verbosity)));
        tracing::dispatcher::with_default(&own, || {
            tracing::warn!(worker = "relayd", node = "n1", class = "x", "first");
            // One is in the thread's hands, the queue has room for the rest; three at least find none.
            for _ in 0..LOG_QUEUE + 4 {
                tracing::info!("more");
            }
        });
        let first = taken.recv().unwrap();
        assert_eq!((first.level, first.message.as_str()), (Level::Warn, "first class=x"));
        let fields = [("worker", "relayd"), ("node", "n1")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(first.fields, fields.into());
        let mut written = 2;
        let lost_before = |record: &Record| {
            let lost = record.message.split_once(" lost_before=");
            lost.map_or(0, |(_, lost)| lost.parse::<usize>().unwrap())
        };
        let mut lost = lost_before(&taken.recv().unwrap());
        // The second was taken out of the queue: there is room for this one.
        tracing::dispatcher::with_default(&own, || tracing::info!("last"));
        loop {
            let record = taken.recv().unwrap();
            (written, lost) = (written + 1, lost + lost_before(&record));
            if record.message.starts_with("last") {
                break;
            }
        }
        assert_eq!(written + lost, LOG_QUEUE + 6, "each is written or counted");
        assert!(lost >= 3, "{lost}");
    }

    #[test]
    fn the_journal_is_used_only_when_standard_error_is_its_stream() {
        let stat = fstat(io::stderr().as_fd()).unwrap();
        assert!(is_journal(Some(&format!("{}:{}", stat.st_dev, stat.st_ino))));
        for other in [None, Some(""), Some("1:2"), Some("x:y")] {
            assert!(!is_journal(other));
        }
    }
}
