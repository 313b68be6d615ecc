//! Why a worker could not be confined and must not run: the mechanisms every supported kernel has.

use std::fmt;
use std::io;

use crate::sys::Errno;

/// A confinement that failed. What the kernel merely lacks is in the report instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfineError {
    /// The process already has this many threads, of which all but one would stay free.
    Threads(usize),
    /// `/proc/self/task` cannot be read, so nobody knows whether there is a thread that would stay free.
    ThreadsUnknown(io::ErrorKind),
    /// The parent-death signal was refused.
    ParentDeath(Errno),
    /// The parent is not the supervisor that started this worker: it has ended.
    Orphaned {
        /// The process id of the supervisor.
        supervisor: u32,
        /// The process id of the present parent.
        parent: u32,
    },
    /// `no_new_privs` was refused.
    NoNewPrivileges(Errno),
    /// The inherited descriptors could not be closed.
    Descriptors(Errno),
    /// The process could not be made undumpable.
    Dumpable(Errno),
    /// The system call filter was refused.
    SystemCallFilter(Errno),
}

impl fmt::Display for ConfineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads(count) => {
                write!(f, "a worker is confined before it starts threads, and {count} run")
            }
            Self::ThreadsUnknown(kind) => {
                write!(f, "the threads cannot be counted in /proc/self/task ({kind}); mount /proc")
            }
            Self::ParentDeath(errno) => write!(f, "the parent-death signal was refused: {errno}"),
            Self::Orphaned { supervisor, parent } => {
                write!(f, "the supervisor {supervisor} has ended; the parent is {parent}")
            }
            Self::NoNewPrivileges(errno) => write!(f, "no_new_privs was refused: {errno}"),
            Self::Descriptors(errno) => {
                write!(f, "inherited descriptors could not be closed ({errno}); Linux 5.9 or later is needed")
            }
            Self::Dumpable(errno) => write!(f, "the process could not be made undumpable: {errno}"),
            Self::SystemCallFilter(errno) => write!(
                f,
                "the system call filter was refused ({errno}); the service manager or the container has to admit `seccomp`"
            ),
        }
    }
}

impl std::error::Error for ConfineError {}
