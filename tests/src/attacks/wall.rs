//! What stands between an attack and its victim, and a kernel without it: a layer is switched off by a filter that
//! is loaded before and answers its call as a kernel would that does not have it, or as if it had been done. The
//! confinement itself is not touched.

use std::collections::BTreeMap;

use coreflow_ipc::confine::Layer;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

/// A mechanism that the model of isolation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wall {
    /// The victim is not dumpable.
    Victim,
    /// A layer of the attacker's own confinement.
    Own(Layer),
    /// Rights of a Landlock that is newer than what the model demands: where a kernel has them, they refuse as well.
    LaterLandlock,
}

impl std::fmt::Display for Wall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Victim => f.write_str("victim not dumpable"),
            Self::Own(layer) => layer.fmt(f),
            Self::LaterLandlock => f.write_str("(newer landlock)"),
        }
    }
}

/// Every layer.
const ALL: [Layer; 8] = [
    Layer::ParentDeath,
    Layer::NoNewPrivileges,
    Layer::Descriptors,
    Layer::Limits,
    Layer::NotDumpable,
    Layer::WriteExecute,
    Layer::Landlock,
    // Last: nothing can be loaded after it.
    Layer::Seccomp,
];

/// A set of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layers(u8);

impl Layers {
    /// None of them.
    pub(crate) const NONE: Self = Self(0);

    /// The layers for which `chosen` holds.
    pub(crate) fn chosen(chosen: impl Fn(Layer) -> bool) -> Self {
        let bits = ALL.iter().enumerate().filter(|(_, layer)| chosen(**layer));
        Self(bits.fold(0, |set, (bit, _)| set | 1 << bit))
    }

    /// The layers whose names stand in `names`.
    pub(crate) fn named(names: &str) -> Self {
        Self::chosen(|layer| names.split(' ').any(|name| name == layer.to_string()))
    }

    /// Their names.
    pub(crate) fn names(self) -> String {
        self.layers().map(|layer| layer.to_string()).collect::<Vec<_>>().join(" ")
    }

    fn layers(self) -> impl Iterator<Item = Layer> {
        ALL.into_iter().enumerate().filter(move |(bit, _)| self.0 & 1 << bit != 0).map(|(_, layer)| layer)
    }
}

/// Switches `layers` off for the calling thread and what it starts, before they are switched on.
pub(crate) fn switch_off(layers: Layers) {
    for layer in layers.layers() {
        for (call, rules, errno) in filters(layer) {
            load(call, rules, errno);
        }
    }
}

/// Has what this thread starts believe that it is not dumpable, and be so all the same.
pub(crate) fn leave_dumpable() {
    switch_off(Layers::chosen(|layer| layer == Layer::NotDumpable));
}

/// Plays, for the calling thread and what it starts, a kernel or a service manager that answers `call` with `errno`.
///
/// # Panics
/// When this process may not filter itself.
pub fn refuse_on_this_thread(call: i64, errno: i32) {
    load(call, Vec::new(), errno);
}

/// Which calls switch `layer` on, and what they are answered: zero is success.
fn filters(layer: Layer) -> Vec<(i64, Vec<SeccompRule>, i32)> {
    let prctl = |option: i32, errno| vec![(libc::SYS_prctl, vec![rule(&[equal(0, option)])], errno)];
    match layer {
        Layer::ParentDeath => prctl(libc::PR_SET_PDEATHSIG, 0),
        Layer::NotDumpable => prctl(libc::PR_SET_DUMPABLE, 0),
        Layer::WriteExecute => prctl(libc::PR_SET_MDWE, libc::EINVAL),
        Layer::Descriptors => vec![(libc::SYS_close_range, Vec::new(), 0)],
        // Of its own alone, and of those that the confinement lowers; an attack on others' is left to the rest.
        Layer::Limits => {
            let lowers = |resource: u32| rule(&[equal(0, 0), equal(1, resource.cast_signed()), given(2)]);
            let rules = vec![lowers(libc::RLIMIT_CORE), lowers(libc::RLIMIT_NOFILE)];
            vec![(libc::SYS_prlimit64, rules, 0), (libc::SYS_setrlimit, Vec::new(), 0)]
        }
        Layer::Landlock => vec![(libc::SYS_landlock_create_ruleset, Vec::new(), libc::ENOSYS)],
        // Without it no worker runs, so it is answered as if it had been loaded.
        Layer::Seccomp => {
            let loads = rule(&[equal(0, libc::SECCOMP_SET_MODE_FILTER.cast_signed())]);
            vec![(libc::SYS_seccomp, vec![loads], 0)]
        }
        // That no capability is left; `no_new_privs` itself stays, as no filter is loaded without.
        Layer::NoNewPrivileges => vec![(libc::SYS_capset, Vec::new(), 0)],
    }
}

fn load(call: i64, rules: Vec<SeccompRule>, errno: i32) {
    let answer = SeccompAction::Errno(errno.cast_unsigned());
    let architecture = TargetArch::try_from(std::env::consts::ARCH).expect("an architecture of the relay");
    let filter =
        SeccompFilter::new(BTreeMap::from([(call, rules)]), SeccompAction::Allow, answer, architecture);
    let program: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter of one call");
    apply_filter(&program).expect("every process may filter itself");
}

fn rule(conditions: &[SeccompCondition]) -> SeccompRule {
    SeccompRule::new(conditions.to_vec()).expect("some conditions")
}

fn equal(index: u8, value: i32) -> SeccompCondition {
    let value = u64::from(value.cast_unsigned());
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value).expect("an argument")
}

/// The argument `index` is a pointer to something.
fn given(index: u8) -> SeccompCondition {
    SeccompCondition::new(index, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0).expect("an argument")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_told_by_their_names() {
        let some = Layers::chosen(|layer| matches!(layer, Layer::Landlock | Layer::Limits));
        assert_eq!(some.names(), "limits landlock");
        assert_eq!(Layers::named(&some.names()), some);
        assert_eq!(Layers::named(""), Layers::NONE);
        assert_eq!(Layers::named(&Layers::chosen(|_| true).names()).layers().count(), ALL.len());
    }
}
