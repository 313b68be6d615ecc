//! SHA-256 of files and texts, in lower-case hexadecimal digits.

use std::{fs, path::Path};

use ring::digest::{SHA256, digest};

use crate::failure::Failure;

/// The digest of `bytes`.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digest of the file at `path`.
///
/// # Errors
/// The file cannot be read.
pub fn sha256_of_file(path: &Path) -> Result<String, Failure> {
    Ok(sha256(&fs::read(path).map_err(Failure::file(path))?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_digest_of_nothing_is_the_known_one() {
        let known = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(super::sha256(b""), known);
    }
}
