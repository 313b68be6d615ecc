//! The OpenMetrics text form: a family's lines, then its samples, and `# EOF` at the end.

use std::{collections::BTreeMap, fmt::Write as _};

/// What a reason is counted under that is none of those known.
const OTHER: &str = "other";

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It goes up and down.
    Gauge,
    /// It goes up, and starts over with the process that counts.
    Counter,
    /// Facts as labels.
    Info,
}

/// The text so far.
#[derive(Debug, Default)]
pub(super) struct Text(String);

impl Text {
    /// Begins a family. Of a counter the name is without the `_total` of its samples.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Info => "info",
        };
        let _ = write!(self.0, "# TYPE {name} {kind}\n# HELP {name} {}\n", escaped(help));
    }

    /// Begins a family of values with a unit, by which its name ends.
    pub(super) fn unit_family(&mut self, name: &str, kind: Kind, unit: &str, help: &str) {
        self.family(name, kind, help);
        let _ = writeln!(self.0, "# UNIT {name} {unit}");
    }

    /// A sample of the family that was begun last.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.line(name, labels, &value.to_string());
    }

    /// The same of milliseconds, as seconds.
    pub(super) fn sample_seconds(&mut self, name: &str, labels: &[(&str, &str)], milliseconds: u64) {
        self.line(name, labels, &format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000));
    }

    /// A family of one sample without labels.
    pub(super) fn one(&mut self, name: &str, kind: Kind, help: &str, value: impl Into<u64>) {
        self.family(name, kind, help);
        let sample = if kind == Kind::Counter { format!("{name}_total") } else { name.to_owned() };
        self.sample(&sample, &[], value.into());
    }

    /// A family of one time, in seconds.
    pub(super) fn seconds(&mut self, name: &str, help: &str, milliseconds: u64) {
        self.unit_family(name, Kind::Gauge, "seconds", help);
        self.sample_seconds(name, &[], milliseconds);
    }

    /// A counter for each reason. A worker's word for one becomes a label's value only if it is one of `known`; all
    /// else is one value, so that no worker makes values at will.
    pub(super) fn by_reason(
        &mut self,
        name: &str,
        help: &str,
        known: &[&'static str],
        reasons: &BTreeMap<String, u64>,
    ) {
        self.family(name, Kind::Counter, help);
        let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
        for (reason, count) in reasons {
            let name = known.iter().find(|known| *known == reason).copied().unwrap_or(OTHER);
            let count_of = counted.entry(name).or_default();
            *count_of = count_of.saturating_add(*count);
        }
        let sample = format!("{name}_total");
        for (reason, count) in counted {
            self.sample(&sample, &[("reason", reason)], count);
        }
    }

    /// The whole text.
    pub(super) fn end(self) -> String {
        self.0 + "# EOF\n"
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        self.0.push_str(name);
        if !labels.is_empty() {
            let labels: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
            let _ = write!(self.0, "{{{}}}", labels.join(","));
        }
        let _ = writeln!(self.0, " {value}");
    }
}

/// A text of a help line or of a label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
