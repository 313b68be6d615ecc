//! The first frame of a link, in both directions: who speaks, and which build it is.
//!
//! A worker of another build is refused by name (ARC-24), so that a release which is swapped under a
//! running supervisor never mixes versions.

use bincode::{Decode, Encode};

/// The number of the link protocol; it changes whenever a message of any link does.
pub const LINK_PROTOCOL: u16 = 1;

/// A process of the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Role {
    /// `coreflow`.
    Supervisor,
    /// `coreflow-relayd`.
    Relayd,
    /// `coreflow-pulld`.
    Pulld,
    /// `coreflow-vpnd`.
    Vpnd,
}

impl Role {
    /// The workers, in the order in which they are listed.
    pub const WORKERS: [Self; 3] = [Self::Relayd, Self::Pulld, Self::Vpnd];

    /// The name of the process in logs and status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Supervisor => "supervisor",
            Self::Relayd => "relayd",
            Self::Pulld => "pulld",
            Self::Vpnd => "vpnd",
        }
    }

    /// The file name of the process's executable.
    pub fn program(self) -> &'static str {
        match self {
            Self::Supervisor => "coreflow",
            Self::Relayd => "coreflow-relayd",
            Self::Pulld => "coreflow-pulld",
            Self::Vpnd => "coreflow-vpnd",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What a process says of itself before anything else.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Hello {
    /// [`LINK_PROTOCOL`] of the speaker.
    pub protocol: u16,
    /// [`crate::VERSION`] of the speaker.
    pub version: String,
    /// What the speaker is.
    pub role: Role,
    /// The speaker's process id.
    pub pid: u32,
}

impl Hello {
    /// The hello of this process in `role`.
    pub fn of(role: Role) -> Self {
        Self { protocol: LINK_PROTOCOL, version: crate::VERSION.to_owned(), role, pid: std::process::id() }
    }

    /// Accepts a hello of `role` from this very build; anything else is refused by name.
    pub fn check(&self, role: Role) -> Result<(), HelloError> {
        if self.protocol != LINK_PROTOCOL {
            return Err(HelloError::Protocol { stated: self.protocol });
        }
        if self.role != role {
            return Err(HelloError::Role { stated: self.role, expected: role });
        }
        if self.version != crate::VERSION {
            return Err(HelloError::Version { role, stated: self.version.chars().take(32).collect() });
        }
        Ok(())
    }
}

/// Why a hello is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HelloError {
    /// The peer speaks another link protocol.
    Protocol {
        /// The number that it stated.
        stated: u16,
    },
    /// The peer is another process than the link was made for.
    Role {
        /// The role that it stated.
        stated: Role,
        /// The role of this link.
        expected: Role,
    },
    /// The peer is of another build.
    Version {
        /// The role of this link.
        role: Role,
        /// The version that it stated, cut at 32 characters.
        stated: String,
    },
    /// The first frame was another message.
    Missing,
}

impl std::fmt::Display for HelloError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Protocol { stated } => {
                write!(
                    f,
                    "hello-protocol-refused: the peer speaks link protocol {stated}, this build {LINK_PROTOCOL}"
                )
            }
            Self::Role { stated, expected } => {
                write!(f, "hello-role-refused: the peer is {stated}, the link is for {expected}")
            }
            Self::Version { role, stated } => write!(
                f,
                "hello-version-refused: {role} is version {stated:?}, this build {}; install one release",
                crate::VERSION
            ),
            Self::Missing => f.write_str("hello-missing: the first frame was another message"),
        }
    }
}

impl std::error::Error for HelloError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// ARC-24: the same version is built into every process, and another one is refused by name.
    #[test]
    fn another_version_role_or_protocol_is_refused_by_name() {
        assert_eq!(Hello::of(Role::Relayd).check(Role::Relayd), Ok(()));
        let other = Hello { version: "33.0.9".into(), ..Hello::of(Role::Relayd) };
        assert!(
            other.check(Role::Relayd).unwrap_err().to_string().starts_with("hello-version-refused: relayd")
        );
        let role = Hello::of(Role::Vpnd).check(Role::Pulld).unwrap_err();
        assert_eq!(role, HelloError::Role { stated: Role::Vpnd, expected: Role::Pulld });
        let protocol = Hello { protocol: 9, ..Hello::of(Role::Pulld) };
        assert_eq!(protocol.check(Role::Pulld), Err(HelloError::Protocol { stated: 9 }));
    }
}
