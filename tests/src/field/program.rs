//! A process of a field and the lines that it says, each of which can be waited for.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A process; dropping it kills it and waits for its end.
pub struct Program {
    name: String,
    child: Child,
    lines: Arc<Lines>,
    readers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Lines {
    said: Mutex<Vec<String>>,
    changed: Condvar,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        // A reader that panicked leaves whole lines.
        self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn read(&self, from: impl Read) {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            self.lock().push(line);
            self.changed.notify_all();
        }
    }
}

impl Program {
    /// Starts it. Its parent, for what ends with its parent, is the calling thread.
    ///
    /// # Panics
    /// When it is no program.
    pub fn start(name: &str, command: &mut Command) -> Self {
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = started.unwrap_or_else(|error| panic!("{name}: {command:?}: {error}"));
        let lines = Arc::new(Lines::default());
        let mut readers = Vec::new();
        let (out, errors) = (child.stdout.take(), child.stderr.take());
        for from in
            [out.map(|out| Box::new(out) as Box<dyn Read + Send>), errors.map(|errors| Box::new(errors) as _)]
        {
            let (from, lines) = (from.expect("both are piped"), lines.clone());
            readers.push(std::thread::spawn(move || lines.read(from)));
        }
        Self { name: name.to_owned(), child, lines, readers }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How many lines it has said: a place to wait from.
    pub fn said(&self) -> usize {
        self.lines.lock().len()
    }

    /// Waits for a line that begins with `start`, from the first one on.
    ///
    /// # Panics
    /// When it says none within `bound`, with all that it said.
    pub fn wait(&self, start: &str, bound: Duration) -> String {
        self.wait_from(0, start, bound)
    }

    /// Waits for a line that begins with `start`, from line `place` on.
    ///
    /// # Panics
    /// When it says none within `bound`, with all that it said.
    pub fn wait_from(&self, place: usize, start: &str, bound: Duration) -> String {
        self.wait_any(place, &[start], bound)
    }

    /// Waits for a line that begins with one of `starts`, from line `place` on.
    ///
    /// # Panics
    /// When it says none within `bound`, with all that it said.
    pub fn wait_any(&self, place: usize, starts: &[&str], bound: Duration) -> String {
        let until = Instant::now() + bound;
        let mut said = self.lines.lock();
        loop {
            if let Some(line) =
                said.iter().skip(place).find(|line| starts.iter().any(|start| line.starts_with(start)))
            {
                return line.clone();
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{}: no line {starts:?} within {bound:?}; it said {said:#?}", self.name);
            let waited = self.lines.changed.wait_timeout(said, left);
            (said, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// The lines from `place` on that begin with `start`.
    pub fn lines_from(&self, place: usize, start: &str) -> Vec<String> {
        self.lines.lock().iter().skip(place).filter(|line| line.starts_with(start)).cloned().collect()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end within `bound`.
    pub fn ended(&mut self, bound: Duration) -> ExitStatus {
        let until = Instant::now() + bound;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is a child of this process") {
                return status;
            }
            assert!(Instant::now() < until, "{} still runs after {bound:?}", self.name);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kibibytes of it that are in memory.
    ///
    /// # Panics
    /// When it has ended.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        kibibytes.unwrap_or_else(|| panic!("{} shows no memory", self.name))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // One that ended by itself is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
        for reader in self.readers.drain(..) {
            drop(reader.join());
        }
        if std::thread::panicking() {
            eprintln!("{} said: {:#?}", self.name, self.lines.lock());
        }
    }
}
