//! The one table: each figure of both relays, how many times better Coreflow's is, and whether a target is met.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::contestant::Kind;
use super::forwarding::Forwarding;
use super::handshakes::Shaken;
use super::idle_memory::Held;
use super::latencies::Latencies;
use super::recarry::Recarried;

/// Requests per CPU second: at least this many times the Node relay's.
const CPU_RATIO: f64 = 5.0;
/// Resident kibibytes of an idle node, at most, at [`IDLE_NODES`].
const IDLE_KIBIBYTES: f64 = 40.0;
const IDLE_NODES: usize = 10_000;
/// Added microseconds at the median with one request in flight, at most.
const ADDED_MICROSECONDS: f64 = 150.0;

/// Which of two figures is the better one.
#[derive(Clone, Copy)]
enum Better {
    More,
    Less,
}

struct Row {
    what: String,
    coreflow: String,
    node: String,
    direct: String,
    /// How many times better Coreflow is; `None` where nothing was measured, or nothing is beside it.
    ratio: Option<f64>,
    /// A part of the row above, which the other relay has no like of.
    alone: bool,
    target: Option<(String, bool)>,
}

/// The rows so far.
#[derive(Default)]
pub struct Table {
    rows: Vec<Row>,
}

const HEAD: [&str; 6] = ["figure", "Coreflow", "Node relay", "no relay", "times better", "target"];

impl Table {
    fn add(&mut self, what: String, unit: &str, better: Better, [coreflow, node]: [f64; 2]) -> &mut Row {
        let ratio = match better {
            Better::More => coreflow / node,
            Better::Less => node / coreflow,
        };
        let measured = coreflow.is_finite() && node.is_finite() && ratio.is_finite();
        let ratio = measured.then_some(ratio);
        let [coreflow, node] = [coreflow, node].map(|value| figure(value, unit));
        self.rows.push(Row {
            what,
            coreflow,
            node,
            direct: String::new(),
            ratio,
            alone: false,
            target: None,
        });
        self.rows.last_mut().expect("a row was just added")
    }

    /// Adds what was measured of starts.
    pub fn start(&mut self, measured: &BTreeMap<Kind, Latencies>) {
        let (Some(ours), Some(node)) = (measured.get(&Kind::Coreflow), measured.get(&Kind::Node)) else {
            return;
        };
        let median = [ours, node].map(|starts| micros(starts.percentile(50)) / 1e3);
        self.add("start to serving, median".to_owned(), "ms", Better::Less, median);
    }

    /// Adds what was measured of forwarding. Figures of a load that one of the three lacks are left out.
    pub fn forwarding(&mut self, measured: &Forwarding) {
        let loads: Vec<usize> =
            measured.keys().filter(|(kind, _)| *kind == Kind::Coreflow).map(|(_, load)| *load).collect();
        let of = |kind, load| measured.get(&(kind, load));
        let mean = f64::from(u32::try_from(loads.len()).expect("loads are few"));
        let mut costs = [0.0; 2];
        for load in loads {
            let (Some(ours), Some(node), Some(direct)) =
                (of(Kind::Coreflow, load), of(Kind::Node, load), of(Kind::Direct, load))
            else {
                continue;
            };
            let row = self.add(
                format!("requests/s, {load} in flight"),
                "",
                Better::More,
                [ours.rate(), node.rate()],
            );
            row.direct = figure(direct.rate(), "");
            let of_load = [ours.cpu_per_request(), node.cpu_per_request()];
            self.add(format!("CPU per request, {load} in flight"), "µs", Better::Less, of_load);
            costs = [costs[0] + of_load[0] / mean, costs[1] + of_load[1] / mean];
            for percent in [50, 99] {
                let at =
                    |measured: &super::forwarding::Measured| micros(measured.latencies.percentile(percent));
                let [ours, node, direct] = [ours, node, direct].map(at);
                let row = self.add(
                    format!("latency p{percent}, {load} in flight"),
                    "µs",
                    Better::Less,
                    [ours, node],
                );
                row.direct = figure(direct, "µs");
                if percent == 99 {
                    row.judge("below it".to_owned(), |row, _| row.ratio > Some(1.0), 0.0);
                }
                let added = [ours - direct, node - direct];
                let row = self.add(format!("added p{percent}, {load} in flight"), "µs", Better::Less, added);
                if percent == 50 && load == 1 {
                    let target = format!("≤ {ADDED_MICROSECONDS} µs");
                    row.judge(target, |_, added| added <= ADDED_MICROSECONDS, added[0]);
                }
            }
        }
        // Each load weighs the same, though the high ones carry most requests.
        let per_second = costs.map(|cost| 1e6 / cost);
        let row = self.add("requests per CPU second, mean of loads".to_owned(), "", Better::More, per_second);
        row.judge(format!("≥ {CPU_RATIO} times"), |row, _| row.ratio >= Some(CPU_RATIO), 0.0);
    }

    /// Adds what was measured of memory.
    #[expect(clippy::cast_precision_loss, reason = "memory of a process is far below 2^52 bytes")]
    pub fn memory(&mut self, measured: &BTreeMap<Kind, Held>) {
        let (Some(ours), Some(node)) = (measured.get(&Kind::Coreflow), measured.get(&Kind::Node)) else {
            return;
        };
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let empty = [mebibytes(ours.empty), mebibytes(node.empty)];
        self.add("resident, no node".to_owned(), "MiB", Better::Less, empty);
        for (process, bytes) in &ours.processes {
            self.rows.push(Row {
                what: format!("of it {process}"),
                coreflow: figure(mebibytes(*bytes), "MiB"),
                node: String::new(),
                direct: String::new(),
                ratio: None,
                alone: true,
                target: None,
            });
        }
        for nodes in ours.with.keys().copied() {
            let (Some(ours), Some(node)) = (ours.per_node(nodes), node.per_node(nodes)) else { continue };
            let row =
                self.add(format!("resident per idle node, {nodes} nodes"), "KiB", Better::Less, [ours, node]);
            if nodes == IDLE_NODES {
                let target = format!("≤ {IDLE_KIBIBYTES} KiB");
                row.judge(target, |_, held| held <= IDLE_KIBIBYTES, ours);
            }
        }
    }

    /// Adds what was measured of handshakes.
    pub fn handshakes(&mut self, measured: &BTreeMap<Kind, Shaken>) {
        let (Some(ours), Some(node)) = (measured.get(&Kind::Coreflow), measured.get(&Kind::Node)) else {
            return;
        };
        self.add("TLS handshakes/s".to_owned(), "", Better::More, [ours.rate(), node.rate()]);
        let costs = [ours.per_cpu_second(), node.per_cpu_second()];
        self.add("TLS handshakes per CPU second".to_owned(), "", Better::More, costs);
    }

    /// Adds what was measured of nodes carried anew, `nodes` in each round.
    pub fn recarry(&mut self, measured: &BTreeMap<Kind, Recarried>, nodes: usize) {
        let (Some(ours), Some(node)) = (measured.get(&Kind::Coreflow), measured.get(&Kind::Node)) else {
            return;
        };
        let seconds = |time: Option<Duration>| time.map_or(f64::NAN, |time| time.as_secs_f64());
        let whole = [ours, node].map(|measured| seconds(measured.whole.percentile(50)));
        self.add(format!("{nodes} nodes carried anew, all"), "s", Better::Less, whole);
        for percent in [50, 99] {
            let each = [ours, node].map(|measured| seconds(measured.each.percentile(percent)) * 1e3);
            self.add(format!("{nodes} nodes carried anew, each p{percent}"), "ms", Better::Less, each);
        }
        let rounds = |measured: &Recarried| u32::try_from(measured.whole.len()).expect("rounds are few");
        let cpu = [ours, node].map(|measured| seconds(Some(measured.cpu)) / f64::from(rounds(measured)));
        self.add(format!("{nodes} nodes carried anew, CPU"), "s", Better::Less, cpu);
    }

    /// The figures that are none: a part that ran and measured nothing is a failure.
    pub fn missing(&self) -> Vec<&str> {
        let none = |row: &&Row| row.ratio.is_none() && !row.alone;
        self.rows.iter().filter(none).map(|row| row.what.as_str()).collect()
    }

    /// Whether there is no figure at all.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The targets that are missed.
    pub fn missed(&self) -> Vec<String> {
        let missed = |row: &Row| {
            let (target, met) = row.target.as_ref()?;
            (!met).then(|| format!("{}: {target}", row.what))
        };
        self.rows.iter().filter_map(missed).collect()
    }

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        let cells = |row: &Row| {
            let target = row.target.as_ref().map_or_else(String::new, |(target, met)| {
                format!("{target}: {}", if *met { "met" } else { "missed" })
            });
            // A difference of two measurements may be below nothing, and has no ratio then.
            let none = if row.alone { "" } else { "–" };
            let ratio = row
                .ratio
                .filter(|ratio| *ratio > 0.0)
                .map_or_else(|| none.to_owned(), |ratio| figure(ratio, ""));
            [row.what.clone(), row.coreflow.clone(), row.node.clone(), row.direct.clone(), ratio, target]
        };
        let rows: Vec<[String; 6]> =
            std::iter::once(HEAD.map(str::to_owned)).chain(self.rows.iter().map(cells)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        let mut text = String::new();
        for (at, row) in rows.iter().enumerate() {
            let line: Vec<String> =
                row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            writeln!(text, "| {} |", line.join(" | ")).expect("a text takes what is written");
            if at == 0 {
                let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                writeln!(text, "| {} |", rule.join(" | ")).expect("a text takes what is written");
            }
        }
        text
    }
}

impl Row {
    fn judge(&mut self, target: String, met: impl Fn(&Self, f64) -> bool, value: f64) {
        self.target = Some((target, met(self, value)));
    }
}

fn micros(time: Option<Duration>) -> f64 {
    time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// Three significant digits and the unit.
fn figure(value: f64, unit: &str) -> String {
    let number = match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    if unit.is_empty() { number } else { format!("{number} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More is better of a rate, less of a cost; a figure that is none is named.
    #[test]
    fn the_ratio_says_how_much_better_coreflow_is() {
        let mut table = Table::default();
        table.add("rate".to_owned(), "", Better::More, [300.0, 100.0]);
        table.add("cost".to_owned(), "µs", Better::Less, [2.0, 5.0]).judge(
            "≥ 5 times".to_owned(),
            |row, _| row.ratio >= Some(5.0),
            0.0,
        );
        table.add("none".to_owned(), "", Better::More, [1.0, f64::NAN]);
        assert_eq!(table.missing(), ["none"]);
        assert_eq!(table.missed(), ["cost: ≥ 5 times"]);
        let markdown = table.markdown();
        assert!(markdown.contains("| rate   | 300      | 100        |"), "{markdown}");
        assert!(markdown.contains("| 2.50         | ≥ 5 times: missed |"), "{markdown}");
    }
}
