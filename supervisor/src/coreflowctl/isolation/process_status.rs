//! `/proc/PID/status` and `/proc/PID/limits` in the kernel's form, read member by member; a member that a kernel does
//! not have is unread by name.

use std::{fs, str::FromStr};

use serde::Serialize;

use super::Told;

/// What of a thread's status confines it; threads of one process may differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Credentials {
    /// Real, effective, saved and file system user.
    pub(super) users: Told<Vec<u32>>,
    /// The same of the group.
    pub(super) groups: Told<Vec<u32>>,
    /// Supplementary groups.
    pub(super) supplementary: Told<Vec<u32>>,
    /// Inheritable, permitted, effective, bounding and ambient, in the kernel's hexadecimal form.
    pub(super) capabilities: Told<Capabilities>,
    /// Whether no exec gains a privilege.
    pub(super) no_new_privileges: Told<bool>,
    /// 0 none, 1 strict, 2 filters.
    pub(super) seccomp_mode: Told<u32>,
    /// How many filters.
    pub(super) seccomp_filters: Told<u32>,
}

/// Capabilities as sets of bits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Capabilities {
    pub(super) inheritable: String,
    pub(super) permitted: String,
    pub(super) effective: String,
    pub(super) bounding: String,
    pub(super) ambient: String,
}

impl Capabilities {
    /// Whether a process has none and passes none on.
    pub(super) fn are_none(&self) -> bool {
        let sets = [&self.inheritable, &self.permitted, &self.effective, &self.ambient];
        sets.iter().all(|set| u64::from_str_radix(set, 16) == Ok(0))
    }

    /// The sets that [`Capabilities::are_none`] asks about, for people.
    pub(super) fn held(&self) -> String {
        let Self { inheritable, permitted, effective, ambient, bounding: _ } = self;
        format!("effective {effective}, permitted {permitted}, inheritable {inheritable}, ambient {ambient}")
    }
}

/// The text of a process's or a thread's status.
pub(super) struct ProcessStatus(pub(super) String);

impl ProcessStatus {
    /// What follows the name of a member.
    fn member(&self, name: &str) -> Option<&str> {
        let lines = self.0.lines();
        lines
            .filter_map(|line| line.split_once(':'))
            .find(|(member, _)| *member == name)
            .map(|(_, value)| value.trim())
    }

    /// The numbers of a member.
    fn numbers<T: FromStr>(&self, name: &str) -> Told<Vec<T>> {
        let Some(value) = self.member(name) else { return lacks(name) };
        let numbers: Result<Vec<T>, _> = value.split_whitespace().map(str::parse).collect();
        numbers.map_or_else(|_| Told::unread(format!("{name} has another form")), Told::Read)
    }

    /// The one number of a member.
    pub(super) fn number<T: FromStr + Copy>(&self, name: &str) -> Told<T> {
        match self.numbers(name) {
            Told::Read(numbers) if numbers.len() == 1 => Told::Read(numbers[0]),
            Told::Read(_) => Told::unread(format!("{name} has another form")),
            Told::Unread { unread } => Told::Unread { unread },
        }
    }

    /// Whether the process has ended and waits to be reaped.
    pub(super) fn has_ended(&self) -> bool {
        self.member("State").is_some_and(|state| state.starts_with(['Z', 'X']))
    }

    pub(super) fn credentials(&self) -> Credentials {
        let set = |name: &str| self.member(name).map(str::to_owned);
        let capabilities = || {
            Some(Capabilities {
                inheritable: set("CapInh")?,
                permitted: set("CapPrm")?,
                effective: set("CapEff")?,
                bounding: set("CapBnd")?,
                ambient: set("CapAmb")?,
            })
        };
        Credentials {
            users: self.numbers("Uid"),
            groups: self.numbers("Gid"),
            supplementary: self.numbers("Groups"),
            capabilities: capabilities().map_or_else(|| lacks("CapAmb"), Told::Read),
            no_new_privileges: match self.number::<u32>("NoNewPrivs") {
                Told::Read(value) => Told::Read(value == 1),
                Told::Unread { unread } => Told::Unread { unread },
            },
            seccomp_mode: self.number("Seccomp"),
            seccomp_filters: self.number("Seccomp_filters"),
        }
    }
}

fn lacks<T>(name: &str) -> Told<T> {
    Told::unread(format!("this kernel states no {name}"))
}

/// The parent of a process; none where there is no such process, or none that may be seen.
pub(in crate::coreflowctl) fn parent_of(pid: u32) -> Option<u32> {
    let status = ProcessStatus(fs::read_to_string(format!("/proc/{pid}/status")).ok()?);
    status.number("PPid").read().copied()
}

/// A resource limit; none is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Limit {
    pub(super) soft: Option<u64>,
    pub(super) hard: Option<u64>,
}

/// The limits that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Limits {
    /// Bytes of a core file.
    pub(super) core_file: Limit,
    /// Descriptors.
    pub(super) open_files: Limit,
    /// Processes of its user.
    pub(super) processes: Limit,
}

impl Limits {
    /// Of the text of `/proc/PID/limits`.
    pub(super) fn of_text(text: &str) -> Told<Self> {
        let limit = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            let mut words = line.split_whitespace().map(|word| match word {
                "unlimited" => Some(None),
                number => number.parse().ok().map(Some),
            });
            Some(Limit { soft: words.next()??, hard: words.next()?? })
        };
        let limits = || {
            Some(Self {
                core_file: limit("Max core file size")?,
                open_files: limit("Max open files")?,
                processes: limit("Max processes")?,
            })
        };
        limits().map_or_else(|| Told::unread("the limits have another form"), Told::Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "\
Name:\tcoreflow-relayd
TracerPid:\t0
PPid:\t4711
Uid:\t60801\t60801\t60801\t60801
Gid:\t60801\t60801\t60801\t60801
Groups:\t 
CapInh:\t0000000000000000
CapPrm:\t0000000000000000
CapEff:\t0000000000000000
CapBnd:\t000001ffffffffff
CapAmb:\t0000000000000000
NoNewPrivs:\t1
Seccomp:\t2
Seccomp_filters:\t3
";

    /// The kernel's form is read; what it does not state is unread by name, and never a zero.
    #[test]
    fn a_status_is_read_as_the_kernel_writes_it() {
        let status = ProcessStatus(STATUS.to_owned());
        let credentials = status.credentials();
        assert_eq!(credentials.users, Told::Read(vec![60_801; 4]));
        assert_eq!(credentials.supplementary, Told::Read(vec![]));
        assert!(credentials.capabilities.read().unwrap().are_none());
        assert_eq!(credentials.no_new_privileges, Told::Read(true));
        assert_eq!((credentials.seccomp_mode, credentials.seccomp_filters), (Told::Read(2), Told::Read(3)));
        assert_eq!(status.number::<u32>("PPid"), Told::Read(4711));

        let older = ProcessStatus(
            STATUS.replace("Seccomp_filters:\t3\n", "").replace("NoNewPrivs:\t1", "NoNewPrivs:\tx"),
        );
        let credentials = older.credentials();
        assert_eq!(credentials.seccomp_filters, Told::unread("this kernel states no Seccomp_filters"));
        assert_eq!(credentials.no_new_privileges, Told::unread("NoNewPrivs has another form"));
    }

    /// One bit of any set that is used or passed on is a capability; the bounding set alone is none.
    #[test]
    fn one_bit_is_a_capability() {
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            let text =
                STATUS.replace(&format!("{set}:\t0000000000000000"), &format!("{set}:\t0000000000000400"));
            let credentials = ProcessStatus(text).credentials();
            assert!(!credentials.capabilities.read().unwrap().are_none(), "{set}");
        }
    }

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let text = "\
Limit                     Soft Limit           Hard Limit           Units     
Max core file size        0                    0                    bytes     
Max processes             unlimited            62817                processes 
Max open files            1024                 65536                files     
";
        let limits = *Limits::of_text(text).read().unwrap();
        assert_eq!(limits.core_file, Limit { soft: Some(0), hard: Some(0) });
        assert_eq!(limits.open_files, Limit { soft: Some(1024), hard: Some(65_536) });
        assert_eq!(limits.processes, Limit { soft: None, hard: Some(62_817) });
        assert_eq!(Limits::of_text("").read(), None);
    }

    #[test]
    fn the_parent_of_this_process_is_read() {
        assert_eq!(parent_of(std::process::id()), Some(std::os::unix::process::parent_id()));
        assert_eq!(parent_of(u32::MAX), None);
    }
}
