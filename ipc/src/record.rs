//! Log records: workers write no log of their own, they send records to the supervisor, which
//! writes the journal (ARC-22). A record is bounded in size, and a worker's records in rate.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use bincode::{Decode, Encode, de::Decoder, error::DecodeError};
use tracing::{Event, Metadata, Subscriber, field::Field, subscriber::Interest};
use tracing_subscriber::layer::{Context, Layer};

use crate::bounded_map;

/// The target of events that state the record of another process: its own level admitted it already.
pub const RELAYED: &str = "coreflow::worker";

/// Longest message of a record, in characters.
pub const MESSAGE_LIMIT: usize = 2000;
/// Longest value of a field, in characters.
pub const FIELD_LIMIT: usize = 500;
/// Most fields of a record, beside the one that says how many records were lost before it.
pub const FIELDS: usize = 16;
/// Longest name of a field, in characters.
const NAME_LIMIT: usize = 64;
/// Longest name of a field, in bytes as it travels: cut, and with the sign that it was.
const NAME_BYTES: usize = 4 * (NAME_LIMIT + 1);

/// How loud a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[repr(u8)]
pub enum Level {
    /// The relay or a part of it stops.
    Error,
    /// Somebody has to act; the line says how.
    Warn,
    /// A change that an operator would act on.
    Info,
    /// A branch taken.
    Debug,
    /// Everything, per message.
    Trace,
}

impl Level {
    /// The word of the level in a log line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Warn => "WARN",
            Self::Info => "INFO",
            Self::Debug => "DEBUG",
            Self::Trace => "TRACE",
        }
    }

    /// The level that a person names, in small letters.
    pub fn of_word(word: &str) -> Option<Self> {
        let all = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];
        all.into_iter().find(|level| level.word() == word)
    }

    /// The word for it that a person gives.
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    /// The level of an event.
    pub fn of(level: &tracing::Level) -> Self {
        match *level {
            tracing::Level::ERROR => Self::Error,
            tracing::Level::WARN => Self::Warn,
            tracing::Level::INFO => Self::Info,
            tracing::Level::DEBUG => Self::Debug,
            tracing::Level::TRACE => Self::Trace,
        }
    }
}

/// One event, as it travels to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Encode)]
pub struct Record {
    /// How loud it is.
    pub level: Level,
    /// The words for people.
    pub message: String,
    /// Names and values, such as `node` and `method`.
    pub fields: BTreeMap<String, String>,
}

impl<C> Decode<C> for Record {
    fn decode<D: Decoder<Context = C>>(decoder: &mut D) -> Result<Self, DecodeError> {
        Ok(Self {
            level: Decode::decode(decoder)?,
            message: Decode::decode(decoder)?,
            fields: bounded_map::decode(decoder, FIELDS + 1, NAME_BYTES)?,
        })
    }
}

bincode::impl_borrow_decode!(Record);

impl Record {
    /// The record cut to its bounds, whoever made it.
    #[must_use]
    pub fn bounded(self) -> Self {
        Self {
            level: self.level,
            message: cut(self.message, MESSAGE_LIMIT),
            fields: self
                .fields
                .into_iter()
                .take(FIELDS)
                .map(|(name, value)| (cut(name, NAME_LIMIT), cut(value, FIELD_LIMIT)))
                .collect(),
        }
    }

    /// The record as one line: control characters of foreign text are escaped, so that no event
    /// spans two lines and none forges another (LOG-02).
    pub fn line(&self) -> String {
        let mut line = String::with_capacity(self.message.len() + 32 * self.fields.len());
        escape_into(&mut line, &self.message);
        for (name, value) in &self.fields {
            line.push(' ');
            escape_into(&mut line, name);
            line.push('=');
            if value.is_empty() || value.contains([' ', '"', '=']) {
                line.push('"');
                escape_into(&mut line, &value.replace('"', "\\\""));
                line.push('"');
            } else {
                escape_into(&mut line, value);
            }
        }
        line
    }
}

fn cut(text: String, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// Adds text to a line, control characters and ends of lines escaped.
pub fn escape_into(line: &mut String, text: &str) {
    for character in text.chars() {
        if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
}

/// A token bucket: how many records of one worker are written, and how many were left out.
#[derive(Debug)]
pub struct Budget {
    tokens: f64,
    burst: f64,
    per_second: f64,
    refilled: Duration,
    suppressed: u64,
}

impl Budget {
    /// A full bucket of `burst` records that refills with `per_second`.
    pub fn new(burst: u32, per_second: u32) -> Self {
        let burst = f64::from(burst);
        Self {
            tokens: burst,
            burst,
            per_second: f64::from(per_second),
            refilled: Duration::ZERO,
            suppressed: 0,
        }
    }

    /// Whether a record that came at `mono` is written; what is not is counted.
    pub fn admit(&mut self, mono: Duration) -> bool {
        let passed = mono.saturating_sub(self.refilled);
        self.refilled = self.refilled.max(mono);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.per_second).min(self.burst);
        if self.tokens < 1.0 {
            self.suppressed += 1;
            return false;
        }
        self.tokens -= 1.0;
        true
    }

    /// How many records were left out since this was last asked.
    pub fn take_suppressed(&mut self) -> u64 {
        std::mem::take(&mut self.suppressed)
    }
}

/// The level that a process records at, shared with its layer and changed at run time.
#[derive(Debug, Clone)]
pub struct Verbosity(Arc<AtomicU8>);

impl Verbosity {
    /// Records of `level` and louder.
    pub fn new(level: Level) -> Self {
        Self(Arc::new(AtomicU8::new(level as u8)))
    }

    /// Changes the level from here on.
    pub fn set(&self, level: Level) {
        self.0.store(level as u8, Ordering::Relaxed);
    }

    /// The quietest level that is wanted.
    pub fn level(&self) -> Level {
        let set = self.0.load(Ordering::Relaxed);
        let all = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
        all.into_iter().find(|level| *level as u8 == set).expect("what is set was a level")
    }

    /// Whether a record of `level` is wanted.
    pub fn admits(&self, level: Level) -> bool {
        level as u8 <= self.0.load(Ordering::Relaxed)
    }
}

/// Where a process's records go: a bounded queue, never waited for.
pub trait Outlet: Send + Sync + 'static {
    /// Takes the record, or gives it back when the queue is full.
    fn offer(&self, record: Record) -> Result<(), Record>;
}

/// A tracing layer that turns events into [`Record`]s.
pub struct RecordLayer<O> {
    outlet: O,
    verbosity: Verbosity,
    lost: AtomicU64,
}

impl<O: Outlet> RecordLayer<O> {
    /// Sends what `verbosity` admits to `outlet`.
    pub fn new(outlet: O, verbosity: Verbosity) -> Self {
        Self { outlet, verbosity, lost: AtomicU64::new(0) }
    }
}

impl<S: Subscriber, O: Outlet> Layer<S> for RecordLayer<O> {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // The level can change while the process runs, so none is decided for good.
        if metadata.target().starts_with("coreflow") { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        // Libraries below us may speak of what passes through them; only this project's events are
        // written, since only these are known to be free of secrets.
        let own = || self.verbosity.admits(Level::of(metadata.level()));
        metadata.target() == RELAYED || metadata.target().starts_with("coreflow") && own()
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut visitor = Visitor::default();
        event.record(&mut visitor);
        let mut record = Record {
            level: Level::of(event.metadata().level()),
            message: visitor.message,
            fields: visitor.fields,
        }
        .bounded();
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            record.fields.insert("lost_before".to_owned(), lost.to_string());
        }
        if self.outlet.offer(record).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

#[derive(Default)]
struct Visitor {
    message: String,
    fields: BTreeMap<String, String>,
}

impl tracing::field::Visit for Visitor {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.fields.insert(field.name().to_owned(), value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{self, CodecError};

    fn record(message: &str, fields: &[(&str, &str)]) -> Record {
        Record {
            level: Level::Info,
            message: message.to_owned(),
            fields: fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        }
    }

    /// LOG-02, ARC-22: foreign text cannot end a line or forge the next one.
    #[test]
    fn a_record_is_one_line() {
        let record = record("refused\nERROR forged", &[("node", "a\r\u{2028}b"), ("why", "two words")]);
        assert_eq!(record.line(), "refused\\nERROR forged node=a\\r\\u{2028}b why=\"two words\"");
    }

    #[test]
    fn a_record_is_bounded_whoever_made_it() {
        let record = record(&"x".repeat(9000), &[("long", &"y".repeat(9000))]).bounded();
        assert_eq!(record.message.chars().count(), MESSAGE_LIMIT + 1);
        assert_eq!(record.fields["long"].chars().count(), FIELD_LIMIT + 1);
    }

    #[test]
    fn a_flood_is_counted_and_not_written() {
        let mut budget = Budget::new(3, 2);
        let written = (0..10).filter(|_| budget.admit(Duration::ZERO)).count();
        assert_eq!((written, budget.take_suppressed()), (3, 7));
        assert!(budget.admit(Duration::from_millis(500)));
        assert!(!budget.admit(Duration::from_millis(500)));
        assert_eq!(budget.take_suppressed(), 1);
    }

    /// ARC-13, ARC-22: each short field costs many times its bytes in memory; a record with more of them than a
    /// worker writes is none, and the longest that it writes is.
    #[test]
    fn a_record_of_more_fields_than_a_worker_writes_is_refused() {
        let of = |count: usize, name: usize| Record {
            level: Level::Warn,
            message: "m".repeat(MESSAGE_LIMIT),
            fields: (0..count).map(|number| (format!("{number:\u{20ac}>name$}"), String::new())).collect(),
        };
        let over_the_link = |record: &Record| {
            let bytes = codec::encode::<_, 65_536>(record).unwrap();
            codec::decode::<Record, 65_536>(&bytes)
        };
        let mut longest = of(FIELDS + 4, NAME_LIMIT + 4).bounded();
        longest.fields.insert("lost_before".to_owned(), u64::MAX.to_string());
        assert_eq!(over_the_link(&longest), Ok(longest.clone()));
        for refused in [of(FIELDS + 2, 4), of(1_000, 4), of(1, NAME_BYTES)] {
            assert_eq!(over_the_link(&refused), Err(CodecError::Malformed));
        }
    }

    struct Seen(Arc<std::sync::Mutex<Vec<String>>>);

    impl Outlet for Seen {
        fn offer(&self, record: Record) -> Result<(), Record> {
            self.0.lock().unwrap().push(record.message);
            Ok(())
        }
    }

    /// A line that was met at one level follows the level all the same, both ways.
    #[test]
    fn the_level_changes_for_lines_that_were_met_before() {
        use tracing_subscriber::layer::SubscriberExt;
        let (seen, verbosity) = (Arc::default(), Verbosity::new(Level::Info));
        let layer = RecordLayer::new(Seen(Arc::clone(&seen)), verbosity.clone());
        let say = |word: &str| tracing::debug!("{word}");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for (level, word) in [(Level::Info, "one"), (Level::Trace, "two"), (Level::Info, "three")] {
                verbosity.set(level);
                say(word);
            }
        });
        assert_eq!(*seen.lock().unwrap(), ["two"]);
    }
}
