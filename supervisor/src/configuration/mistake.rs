//! What is wrong with a configuration, each mistake with its name and remedy and all of them at once
//! (CFG-07). No value is ever part of one (LOG-01).

use std::fmt;

use super::bounded_file::FileFault;
use super::cloudly_url::CloudlyUrlFault;
use super::variable::Variable;
use crate::bearer::BearerFault;

/// Everything that keeps a configuration from being used: at least one missing variable or mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigurationError {
    /// The required variables that no source holds, in the order of [`Variable::ALL`].
    pub missing: Vec<Variable>,
    /// What stands in a source and cannot be used.
    pub mistakes: Vec<Mistake>,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mistake {
    /// A variable's value cannot be used.
    Value {
        /// Which variable.
        variable: Variable,
        /// Where its value comes from.
        source: Source,
        /// What is wrong with it.
        fault: ValueFault,
    },
    /// A file of the configuration cannot be used.
    File {
        /// Its name, relative to its directory.
        name: &'static str,
        /// What is wrong with it.
        fault: MapFault,
    },
    /// `qenv.yml` requires a name that no reader treats as mandatory on every boot (CFG-09).
    Required {
        /// The name, where it has the form of a variable's name.
        name: Option<String>,
    },
    /// `CREDENTIALS_DIRECTORY` is not an absolute path.
    CredentialsDirectory,
    /// One of the VPN pair is set without the other (CFG-26).
    HalfPair {
        /// The one that no source holds.
        missing: Variable,
        /// The one that is set.
        present: Variable,
    },
}

/// A source of the reader, in the order of precedence (CFG-03).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The process environment.
    Environment,
    /// The `.nogit` overlay's file of this name.
    Overlay(&'static str),
    /// `$CREDENTIALS_DIRECTORY/<NAME>`.
    Credential,
    /// The Docker secret of the variable's name, or one that is a JSON object holding it.
    Secret,
}

/// What is wrong with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueFault {
    /// The file that holds it cannot be used.
    File(FileFault),
    /// It is not UTF-8.
    NotText,
    /// It holds a line break or another control character.
    ControlCharacter,
    /// It is a list or a map.
    NotScalar,
    /// It is a number whose notation would be lost, or a bearer that is not written as a string.
    NotQuoted,
    /// The bearer cannot be used.
    Bearer(BearerFault),
    /// It is no usable Cloudly endpoint.
    CloudlyUrl(CloudlyUrlFault),
    /// It has not the form of an id.
    NodeId,
    /// It is neither an IP literal nor a host name.
    BindHostname,
    /// It is no port from 1 to 65535.
    Port,
    /// It is no unicast IPv4 literal (CFG-23).
    NotUnicastIpv4,
}

/// What is wrong with a file that should be a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapFault {
    /// It cannot be read.
    File(FileFault),
    /// It cannot be parsed; line and column from 1 where the parser states them.
    Broken(Option<(usize, usize)>),
    /// A member is a list or a map (CFG-36).
    NotFlat,
    /// A variable stands in it twice.
    Repeated(Variable),
}

impl ConfigurationError {
    /// Nothing when there is nothing to refuse.
    pub(super) fn of(missing: Vec<Variable>, mistakes: Vec<Mistake>) -> Option<Self> {
        (!missing.is_empty() || !mistakes.is_empty()).then_some(Self { missing, mistakes })
    }
}

impl std::error::Error for ConfigurationError {}

/// One line: the missing variables together, then each mistake.
impl fmt::Display for ConfigurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if !self.missing.is_empty() {
            f.write_str("missing ")?;
            for variable in &self.missing {
                write!(f, "{separator}{variable}")?;
                separator = ", ";
            }
            f.write_str(" (set in the environment, the overlay, a systemd credential or a Docker secret)")?;
            separator = "; ";
        }
        for mistake in &self.mistakes {
            write!(f, "{separator}{mistake}")?;
            separator = "; ";
        }
        Ok(())
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value { variable, source, fault } => write!(f, "{variable} (from {source}) {fault}"),
            Self::File { name, fault } => write!(f, "{name} {fault}"),
            Self::Required { name } => write!(
                f,
                "qenv.yml requires {}, which is not mandatory on every boot; list {} and {} only",
                name.as_deref().unwrap_or("a text that is no variable's name"),
                Variable::REQUIRED[0],
                Variable::REQUIRED[1],
            ),
            Self::CredentialsDirectory => {
                f.write_str("CREDENTIALS_DIRECTORY is not an absolute path; leave it to the service manager")
            }
            Self::HalfPair { missing, present } => {
                write!(f, "{missing} is missing while {present} is set; set both or neither")
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment => f.write_str("the environment"),
            Self::Overlay(name) => f.write_str(name),
            Self::Credential => f.write_str("the systemd credential"),
            Self::Secret => f.write_str("the Docker secret"),
        }
    }
}

impl fmt::Display for ValueFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(fault) => fault.fmt(f),
            Self::NotText => f.write_str("is not UTF-8 text; store it as UTF-8"),
            Self::ControlCharacter => {
                f.write_str("holds a line break or another control character; store the value without it")
            }
            Self::NotScalar => f.write_str("is a list or a map; write one value"),
            Self::NotQuoted => f.write_str("is not written as a string; put it in quotes"),
            Self::Bearer(fault) => fault.fmt(f),
            Self::CloudlyUrl(fault) => fault.fmt(f),
            Self::NodeId => f.write_str("is no id; write 1 to 128 characters of A-Z a-z 0-9 . _ : -"),
            Self::BindHostname => {
                f.write_str("is neither an IP literal nor a host name; name one address to bind")
            }
            Self::Port => f.write_str("is no port; write a decimal number from 1 to 65535"),
            Self::NotUnicastIpv4 => {
                f.write_str("is no unicast IPv4 literal; write an address of this host such as 192.0.2.15")
            }
        }
    }
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(kind) => write!(f, "cannot be read ({kind}); let the relay's user read it"),
            Self::NotRegular => f.write_str("is not a regular file; put a file in its place"),
            Self::TooLong(limit) => write!(f, "is longer than {limit} bytes; shorten it"),
            Self::Changed => {
                f.write_str("changed while it was read; replace files by renaming and start again")
            }
        }
    }
}

impl fmt::Display for MapFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(fault) => fault.fmt(f),
            Self::Broken(Some((line, column))) => {
                write!(f, "cannot be parsed at line {line}, column {column}; mend it")
            }
            Self::Broken(None) => f.write_str("cannot be parsed; mend it"),
            Self::NotFlat => f.write_str("is not flat; give each name one plain value"),
            Self::Repeated(variable) => write!(f, "holds {variable} twice; keep one"),
        }
    }
}
