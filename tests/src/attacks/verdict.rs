//! How an attack ended.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;

use coreflow_ipc::sys::{Errno, Signal};

use super::child::{Answer, Outcome};

/// How an attack ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The attacker got what it wanted.
    Succeeded,
    /// The kernel refused it.
    Refused(Errno),
    /// The attempt ended the attacker.
    Lethal,
    /// The attacker ended itself and left no core file.
    NoCore,
    /// It ended in a way that no attack is to end.
    Broken,
}

impl Verdict {
    /// The verdict on an attempt that has ended.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        match &outcome.answer {
            Answer::Done(_) => Self::Succeeded,
            // It became another program, which ended well.
            Answer::Silent if outcome.status.success() => Self::Succeeded,
            Answer::Refused(errno) => Self::Refused(*errno),
            Answer::Killed(Signal::SIGSYS) => Self::Lethal,
            Answer::Killed(Signal::SIGABRT) if outcome.status.core_dumped() => Self::Succeeded,
            Answer::Killed(Signal::SIGABRT) if outcome.last_words.is_empty() => Self::NoCore,
            Answer::Killed(_) | Answer::Silent => Self::Broken,
        }
    }

    /// Whether it says that this kernel does not have what was attacked.
    pub(crate) fn is_absence(self) -> bool {
        let Self::Refused(errno) = self else { return false };
        let absent = [Errno::ENOSYS, Errno::EAFNOSUPPORT, Errno::EPROTONOSUPPORT, Errno::ENOPROTOOPT];
        absent.contains(&errno)
    }

    /// Whether the attacker was not permitted what it wanted. That it wanted it at a wrong place is no wall.
    pub(crate) fn is_stopped(self) -> bool {
        match self {
            Self::Refused(errno) => matches!(errno, Errno::EPERM | Errno::EACCES),
            Self::Lethal | Self::NoCore => true,
            Self::Succeeded | Self::Broken => false,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded => f.write_str("succeeds"),
            Self::Refused(errno) => write!(f, "{errno:?}"),
            Self::Lethal => f.write_str("SIGSYS"),
            Self::NoCore => f.write_str("no core"),
            Self::Broken => f.write_str("broken"),
        }
    }
}
