//! Makes every attack under every combination that a claim is made of, and prints what came of it.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use coreflow_ipc::confine::{Layer, State};
use coreflow_ipc::sys::Errno;

use super::child::{BARE, Outcome, PULLD, RELAYD, Role, VPND, run_in};
use super::list::{ATTACKS, Attack, Victim, Walls, core_file};
use super::stage::Stage;
use super::verdict::Verdict;
use super::wall::{Layers, Wall};

const WORKERS: [Role; 3] = [RELAYD, PULLD, VPND];
/// Attacks that are made at once.
const HANDS: usize = 4;

/// Attempts that make the attacker its victim's tracer.
const TRACES: [&str; 2] = ["stop a process and peek", "trace a process"];

/// A row of the table.
struct Row {
    name: String,
    control: Verdict,
    workers: Vec<Verdict>,
    by: String,
    /// Whether the host stopped the control, so that it is not shown what the walls keep back.
    host_refuses: bool,
    /// What is not as promised.
    faults: Vec<String>,
}

/// The table, and what is wrong in it.
pub(crate) struct Table {
    /// As it is printed.
    pub text: String,
    /// What is not as promised, a line each; none where all is.
    pub faults: Vec<String>,
    /// The rows whose control the host stops by itself, or does not have.
    pub without_control: Vec<String>,
}

/// Makes all attacks.
///
/// # Panics
/// When an attacker cannot be started.
#[must_use]
pub(crate) fn attack_all(stage: &Stage) -> Table {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let mut attacks: Vec<(Attack, Victim)> = Vec::new();
    for attack in ATTACKS.iter().copied().chain([core_file(pattern.starts_with('|'))]) {
        attacks.extend(attack.on.iter().map(|victim| (attack, *victim)));
    }
    let rows: Mutex<Vec<(usize, Row)>> = Mutex::default();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..HANDS {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some((attack, victim)) = attacks.get(at) else { break };
                    let row = Claim { stage, attack, victim: *victim }.judge();
                    rows.lock().unwrap_or_else(PoisonError::into_inner).push((at, row));
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|(at, _)| *at);
    let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    let mut faults: Vec<String> = rows
        .iter()
        .flat_map(|row| row.faults.iter().map(move |fault| format!("{}: {fault}", row.name)))
        .collect();
    faults.extend(missing_layers());
    faults.extend(stage.users().err());
    if !stage.is_unharmed() {
        faults.push("a victim has ended or was replaced during the attacks".to_owned());
    }
    let without_control = rows.iter().filter(|row| row.host_refuses || row.control.is_absence());
    let without_control = without_control.map(|row| row.name.clone()).collect();
    Table { text: print(&rows), faults, without_control }
}

/// The layers of this kernel: what it lacks cannot be shown here.
fn missing_layers() -> Vec<String> {
    let report = run_in(None, RELAYD, "limits", "").report;
    let Some(report) = report else { return vec!["the confinement gave no report".to_owned()] };
    let missing = report.layers.into_iter().filter(|layer| layer.state != State::On);
    missing.map(|layer| format!("this kernel cannot show {}: it is {}", layer.layer, layer.state)).collect()
}

/// One attack on one victim, with all that is claimed of it.
struct Claim<'a> {
    stage: &'a Stage,
    attack: &'a Attack,
    victim: Victim,
}

impl Claim<'_> {
    fn judge(&self) -> Row {
        let control = self.made(BARE, true);
        let mut faults = Vec::new();
        let hosts_own = self.host_may_refuse(control);
        if control != Verdict::Succeeded && !control.is_absence() && !hosts_own {
            faults.push(format!("the control does not succeed: {control}"));
        }
        let mut workers = Vec::new();
        for role in WORKERS {
            let (ends, walls) = if role.name() == "relayd" {
                self.attack.relayd
            } else {
                (self.attack.ends, self.attack.walls)
            };
            let full = self.made(role, false);
            if full != ends {
                faults.push(format!(
                    "{} ends with {full} in {}, not with {ends}",
                    self.attack.attempt,
                    role.name()
                ));
            }
            workers.push(full);
            faults.extend(self.judge_each(role, walls, ends));
            faults.extend(self.judge_without(role, walls, control));
        }
        let by = self.attack.named_walls();
        Row { name: self.name(), control, workers, by, host_refuses: hosts_own, faults }
    }

    fn name(&self) -> String {
        match self.victim {
            Victim::Host => self.attack.name.to_owned(),
            Victim::Supervisor => format!("{}, supervisor", self.attack.name),
            Victim::Sibling => format!("{}, sibling", self.attack.name),
            Victim::OtherSibling => format!("{}, other sibling", self.attack.name),
        }
    }

    /// What a host forbids by itself: programs in the kernel, counters, fast open, core files, handles of files, advice
    /// to others.
    fn host_may_refuse(&self, control: Verdict) -> bool {
        const REFUSED: [&str; 5] = [
            "bpf",
            "count a process's work",
            "abort",
            "open a file by its handle",
            "advise on a process's memory",
        ];
        let refuses = REFUSED.contains(&self.attack.attempt);
        let is_off = control == Verdict::Refused(Errno::EOPNOTSUPP);
        refuses && control.is_stopped() || is_off && self.attack.attempt.starts_with("fast open")
    }

    /// Each wall stops the attack alone, and the filter of calls in the very way that the row states.
    fn judge_each(&self, role: Role, walls: Walls, ends: Verdict) -> Vec<String> {
        let mut faults = Vec::new();
        for wall in walls {
            let alone = match wall {
                Wall::Victim => self.made(BARE, false),
                Wall::Own(kept) => self.made(role.without(Layers::chosen(|layer| layer != *kept)), true),
                // Not on every kernel.
                Wall::LaterLandlock => continue,
            };
            let stops = match wall {
                Wall::Own(Layer::Seccomp) => alone == ends,
                Wall::Victim | Wall::Own(_) | Wall::LaterLandlock => alone.is_stopped() || alone == ends,
            };
            // What this kernel does not have, no wall but the filter keeps anybody from.
            if !stops && !alone.is_absence() {
                faults.push(format!("{wall} alone does not stop it in {}: {alone}", role.name()));
            }
        }
        faults
    }

    /// Without all of them, behind all others, the attack ends as the control: it succeeds, or gets the host's own answer.
    fn judge_without(&self, role: Role, walls: Walls, control: Verdict) -> Option<String> {
        let verdict = self.without(role, walls);
        (verdict != control).then(|| {
            format!(
                "something else stops it in {} as well: it gets {verdict}, and the control {control}",
                role.name()
            )
        })
    }

    /// Behind everything but `walls`.
    fn without(&self, role: Role, walls: Walls) -> Verdict {
        let off = Layers::chosen(|layer| {
            walls.contains(&Wall::Own(layer))
                || layer == Layer::Landlock && walls.contains(&Wall::LaterLandlock)
        });
        self.made(role.without(off), walls.contains(&Wall::Victim))
    }

    fn made(&self, role: Role, dumpable: bool) -> Verdict {
        let prepared = self.stage.prepare(self.attack.told, self.victim, role.name());
        let role = match self.victim {
            Victim::Host => role,
            victim => role.against(self.stage.victim(victim, role.name(), dumpable)),
        };
        // A process has one tracer at a time.
        let _turn = TRACES
            .contains(&self.attack.attempt)
            .then(|| self.stage.tracing.lock().unwrap_or_else(PoisonError::into_inner));
        let outcome: Outcome =
            run_in(Some(self.stage.directory()), role, self.attack.attempt, &prepared.argument);
        let verdict = Verdict::of(&outcome);
        if verdict == Verdict::Broken {
            eprintln!("{} in {}: {outcome:?}", self.name(), role.name());
        }
        verdict
    }
}

fn print(rows: &[Row]) -> String {
    let cells = |row: &Row| {
        let control = if row.control.is_absence() { "not here".to_owned() } else { row.control.to_string() };
        let mut cells = vec![row.name.clone(), control];
        cells.extend(row.workers.iter().map(Verdict::to_string));
        cells.push(row.by.clone());
        cells
    };
    let head = ["attack", "control", "relayd", "pulld", "vpnd", "by"].map(str::to_owned).to_vec();
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().map(cells)).collect();
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for line in &lines {
        let mut printed = String::new();
        for (column, cell) in line.iter().enumerate() {
            write!(printed, "{cell:<0$}  ", width(column)).expect("a string takes every text");
        }
        text.push_str(printed.trim_end());
        text.push('\n');
    }
    text
}
