//! The command line of `coreflow` and its launch options: the two of the specification and the path of the
//! control socket, all absolute and normalized, and every other option is refused by name (CFG-38..CFG-40,
//! CFG-43, CFG-44).

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// What `--help` prints.
pub const HELP: &str = "\
coreflow - the relay of a serve.zone cluster

Usage: coreflow [OPTION]...

  --qenv-directory PATH    read qenv.yml from this directory, and no .nogit overlay
  --vpn-daemon-path PATH   run this executable as the managed VPN hub's daemon
  --control-socket PATH    answer coreflowctl on a Unix socket at this path
  --help                   print this text and end
  --version                print the version and end

Paths are absolute and normalized.
";

/// What `--version` prints: the compiled-in version (CFG-45).
pub const VERSION: &str = concat!("coreflow ", env!("CARGO_PKG_VERSION"));

/// The launch options, valid by construction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    qenv_directory: Option<PathBuf>,
    vpn_daemon_path: Option<PathBuf>,
    control_socket: Option<PathBuf>,
}

/// What a command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invocation {
    /// Run the relay.
    Run(Options),
    /// Print [`HELP`] and end.
    Help,
    /// Print [`VERSION`] and end.
    Version,
}

/// The mistakes of a command line, at least one, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionsError(pub Vec<OptionMistake>);

/// One mistake. It holds no option's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionMistake {
    /// There is no option of this name.
    Unknown(String),
    /// The argument at this place, counted from 1, is no option.
    NoOption(usize),
    /// The option has no value.
    NoValue(&'static str),
    /// The option takes no value.
    NeedlessValue(&'static str),
    /// The option is given twice.
    Repeated(&'static str),
    /// The option's value is not an absolute, normalized path.
    Path(&'static str),
}

const QENV_DIRECTORY: &str = "--qenv-directory";
const VPN_DAEMON_PATH: &str = "--vpn-daemon-path";
const CONTROL_SOCKET: &str = "--control-socket";

impl Options {
    /// Options from the values themselves, for a caller that has no command line.
    ///
    /// # Errors
    /// Every value that is not an absolute and normalized path (CFG-43).
    pub fn new(
        qenv_directory: Option<PathBuf>,
        vpn_daemon_path: Option<PathBuf>,
        control_socket: Option<PathBuf>,
    ) -> Result<Self, OptionsError> {
        let given = [
            (QENV_DIRECTORY, &qenv_directory),
            (VPN_DAEMON_PATH, &vpn_daemon_path),
            (CONTROL_SOCKET, &control_socket),
        ];
        let mistakes: Vec<_> = given
            .into_iter()
            .filter(|(_, path)| path.as_deref().is_some_and(|path| !is_absolute_and_normalized(path)))
            .map(|(name, _)| OptionMistake::Path(name))
            .collect();
        if mistakes.is_empty() {
            Ok(Self { qenv_directory, vpn_daemon_path, control_socket })
        } else {
            Err(OptionsError(mistakes))
        }
    }

    /// The directory that holds `qenv.yml`; with it no overlay is read (CFG-38, CFG-39).
    #[must_use]
    pub fn qenv_directory(&self) -> Option<&Path> {
        self.qenv_directory.as_deref()
    }

    /// The exact hub daemon; no other takes its place (CFG-40).
    #[must_use]
    pub fn vpn_daemon_path(&self) -> Option<&Path> {
        self.vpn_daemon_path.as_deref()
    }

    /// Where the control socket is to be, in the place of the unit's runtime directory.
    #[must_use]
    pub fn control_socket(&self) -> Option<&Path> {
        self.control_socket.as_deref()
    }
}

impl Invocation {
    /// Reads the arguments behind the program's name.
    ///
    /// # Errors
    /// Every mistake at once.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, OptionsError> {
        let mut arguments = arguments.into_iter().enumerate();
        let (mut qenv_directory, mut vpn_daemon_path, mut control_socket) = (None, None, None);
        let (mut help, mut version) = (false, false);
        let mut mistakes = Vec::new();
        while let Some((place, argument)) = arguments.next() {
            let (name, value) = split(&argument);
            let (option, slot) = match name {
                b"--qenv-directory" => (QENV_DIRECTORY, &mut qenv_directory),
                b"--vpn-daemon-path" => (VPN_DAEMON_PATH, &mut vpn_daemon_path),
                b"--control-socket" => (CONTROL_SOCKET, &mut control_socket),
                b"--help" | b"--version" => {
                    let (name, asked) =
                        if name == b"--help" { ("--help", &mut help) } else { ("--version", &mut version) };
                    *asked = true;
                    if value.is_some() {
                        mistakes.push(OptionMistake::NeedlessValue(name));
                    }
                    continue;
                }
                [b'-', _, ..] => {
                    mistakes.push(OptionMistake::Unknown(printable(name)));
                    continue;
                }
                _ => {
                    mistakes.push(OptionMistake::NoOption(place + 1));
                    continue;
                }
            };
            let Some(value) = value.or_else(|| arguments.next().map(|(_, value)| value)) else {
                mistakes.push(OptionMistake::NoValue(option));
                continue;
            };
            if slot.replace(PathBuf::from(value)).is_some() {
                mistakes.push(OptionMistake::Repeated(option));
            }
        }
        let options = Options::new(qenv_directory, vpn_daemon_path, control_socket).unwrap_or_else(|error| {
            mistakes.extend(error.0);
            Options::default()
        });
        match (mistakes.is_empty(), help, version) {
            (false, _, _) => Err(OptionsError(mistakes)),
            (true, true, _) => Ok(Self::Help),
            (true, false, true) => Ok(Self::Version),
            (true, false, false) => Ok(Self::Run(options)),
        }
    }
}

/// `--name=value` in its parts; any other argument is a name.
fn split(argument: &OsStr) -> (&[u8], Option<OsString>) {
    let bytes = argument.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) if bytes.starts_with(b"-") => {
            (&bytes[..at], Some(OsString::from_vec(bytes[at + 1..].to_vec())))
        }
        Some(_) | None => (bytes, None),
    }
}

/// An option's name for a message: at most 64 characters, others than printable ASCII replaced.
fn printable(name: &[u8]) -> String {
    name.iter().take(64).map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }).collect()
}

/// Whether the path begins at the root and is spelled in the one shortest way: no `.`, `..`, `//`, no `/` at
/// its end.
fn is_absolute_and_normalized(path: &Path) -> bool {
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let respelled: PathBuf = path.components().collect();
    path.is_absolute()
        && plain
        && respelled.as_os_str() == path.as_os_str()
        && !path.as_os_str().as_bytes().contains(&0)
}

impl std::error::Error for OptionsError {}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for mistake in &self.0 {
            write!(f, "{separator}{mistake}")?;
            separator = "; ";
        }
        Ok(())
    }
}

impl fmt::Display for OptionMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "{name} is no option of coreflow; see --help"),
            Self::NoOption(place) => write!(f, "argument {place} is no option; see --help"),
            Self::NoValue(name) => write!(f, "{name} has no value; give it an absolute path"),
            Self::NeedlessValue(name) => write!(f, "{name} takes no value"),
            Self::Repeated(name) => write!(f, "{name} is given twice; give it once"),
            Self::Path(name) => {
                write!(f, "{name} is not an absolute, normalized path; write it from / without ., .. or //")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Invocation, OptionsError> {
        Invocation::parse(arguments.iter().map(OsString::from))
    }

    fn mistakes(arguments: &[&str]) -> Vec<OptionMistake> {
        parse(arguments).unwrap_err().0
    }

    /// CFG-38, CFG-40: both spellings of each option, and none at all.
    #[test]
    fn reads_each_option_in_both_spellings() {
        let paths = ["/etc/coreflow", "/opt/coreflow/coreflow-vpnd", "/run/coreflow/control.sock"];
        let [qenv, daemon, control] = paths.map(|path| Some(PathBuf::from(path)));
        let options = Options::new(qenv, daemon, control).unwrap();
        assert_eq!(options.qenv_directory(), Some(Path::new("/etc/coreflow")));
        assert_eq!(options.vpn_daemon_path(), Some(Path::new("/opt/coreflow/coreflow-vpnd")));
        assert_eq!(options.control_socket(), Some(Path::new("/run/coreflow/control.sock")));
        let run = Ok(Invocation::Run(options));
        let names = [QENV_DIRECTORY, VPN_DAEMON_PATH, CONTROL_SOCKET];
        let apart: Vec<&str> = names.into_iter().zip(paths).flat_map(|(name, path)| [name, path]).collect();
        assert_eq!(parse(&apart), run);
        let joined = [2, 0, 1].map(|at| format!("{}={}", names[at], paths[at]));
        assert_eq!(parse(&joined.each_ref().map(String::as_str)), run);
        assert_eq!(parse(&[]), Ok(Invocation::Run(Options::default())));
    }

    /// CFG-43: by the option's name, never by the value, on the command line and from the library.
    #[test]
    fn refuses_a_path_that_is_not_absolute_and_normalized() {
        for path in [
            "",
            ".",
            "etc",
            "./etc",
            "/etc/",
            "/etc//coreflow",
            "//etc",
            "/etc/./a",
            "/etc/../a",
            "/..",
            "/a\0b",
        ] {
            assert_eq!(
                mistakes(&["--qenv-directory", path]),
                [OptionMistake::Path(QENV_DIRECTORY)],
                "{path}"
            );
            let error = Options::new(Some(path.into()), Some(path.into()), Some(path.into())).unwrap_err();
            assert_eq!(error.0, [QENV_DIRECTORY, VPN_DAEMON_PATH, CONTROL_SOCKET].map(OptionMistake::Path));
        }
        let error = parse(&["--vpn-daemon-path=bin/secret"]).unwrap_err().to_string();
        assert!(error.starts_with("--vpn-daemon-path is not an absolute, normalized path"), "{error}");
        assert!(!error.contains("secret"), "{error}");
        assert!(Options::new(Some("/".into()), Some("/a b/ä".into()), None).is_ok());
    }

    /// CFG-44: any other option is refused by name, all mistakes at once.
    #[test]
    fn refuses_everything_else_by_name() {
        use OptionMistake::{NeedlessValue, NoOption, NoValue, Repeated, Unknown};
        assert_eq!(
            mistakes(&["--token=a-secret", "-q", "run", "-", "--qenvDirectory", "/a", "--qenv-directory"]),
            [
                Unknown("--token".into()),
                Unknown("-q".into()),
                NoOption(3),
                NoOption(4),
                Unknown("--qenvDirectory".into()),
                NoOption(6),
                NoValue(QENV_DIRECTORY),
            ]
        );
        assert_eq!(mistakes(&["--qenv-directory=/a", "--qenv-directory", "/b"]), [Repeated(QENV_DIRECTORY)]);
        assert_eq!(
            mistakes(&["--help=x", "--version=y"]),
            [NeedlessValue("--help"), NeedlessValue("--version")]
        );
        assert_eq!(mistakes(&["--"]), [Unknown("--".into())]);
    }

    /// CFG-45: the version is compiled in.
    #[test]
    fn help_and_version_print_and_end() {
        assert_eq!(parse(&["--help"]), Ok(Invocation::Help));
        assert_eq!(parse(&["--version"]), Ok(Invocation::Version));
        assert_eq!(parse(&["--version", "--help"]), Ok(Invocation::Help));
        for option in [QENV_DIRECTORY, VPN_DAEMON_PATH, CONTROL_SOCKET] {
            assert!(HELP.contains(option));
        }
        assert_eq!(VERSION, format!("coreflow {}", env!("CARGO_PKG_VERSION")));
    }
}
