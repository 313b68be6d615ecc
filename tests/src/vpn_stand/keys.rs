//! Private keys in files of mode 0600, base64, one to a file; a file that others can read is refused.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coreflow_vpnd::protocol::noise::StaticKey;
use zeroize::Zeroizing;

/// Permission bits that only the owner's reading and writing leave unset.
const OF_OTHERS: u32 = 0o077;
/// Bytes that a key file has at most: 44 characters and an end of line.
const LARGEST: u64 = 64;

/// Makes the key in the file at `path` unless it is there.
///
/// # Errors
/// What the file system refuses, or no random numbers.
pub fn make(path: &Path) -> Result<(), String> {
    let mut key = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *key).map_err(|error| format!("no random numbers: {error}"))?;
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let text = Zeroizing::new(STANDARD.encode(*key));
    file.write_all(text.as_bytes()).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads the key in the file at `path`.
///
/// # Errors
/// Its name, and why it holds no key that may be used.
pub fn read(path: &Path) -> Result<StaticKey, String> {
    let fault = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let file = std::fs::File::open(path).map_err(|error| fault(&error))?;
    let mode = file.metadata().map_err(|error| fault(&error))?.permissions().mode();
    if mode & OF_OTHERS != 0 {
        return Err(fault(&format!("mode {:o}, and a key is its owner's alone (0600)", mode & 0o777)));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(LARGEST).read_to_string(&mut text).map_err(|error| fault(&error))?;
    let key = decode(text.trim_end()).map_err(|_| fault(&"no base64 of 32 bytes"))?;
    Ok(StaticKey::of_bytes(Zeroizing::new(key)))
}

/// The 32 bytes that `text` is the base64 of.
///
/// # Errors
/// That it is none; a text is not repeated, which may be a private one.
pub fn decode(text: &str) -> Result<[u8; 32], String> {
    let bytes = Zeroizing::new(STANDARD.decode(text).unwrap_or_default());
    bytes.as_slice().try_into().map_err(|_| "a key is the base64 of 32 bytes".to_owned())
}

/// A public key as text.
pub fn encode(public: &[u8; 32]) -> String {
    STANDARD.encode(public)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key survives the second call, and one that others can read is not used.
    #[test]
    fn a_key_is_made_once_and_is_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.key");
        make(&path).unwrap();
        let first = read(&path).ok().unwrap().public();
        make(&path).unwrap();
        assert_eq!(read(&path).ok().unwrap().public(), first);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read(&path).err().unwrap().contains("0600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "short").unwrap();
        assert!(read(&path).err().unwrap().ends_with("no base64 of 32 bytes"));
    }
}
