//! Values that are parsed once and valid ever after.

use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::value::RawValue;

/// Largest `Generation`, `Revision` and `Sequence`: 2^53 − 1.
pub const LARGEST_INTEGER: u64 = (1 << 53) - 1;

/// `Id`: 1 to 128 characters of `A–Z a–z 0–9 . _ : -`. Public, so it may be logged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Id(String);

impl Id {
    /// Parses an id; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let valid = (1..=128).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte));
        valid.then(|| Self(text.to_owned()))
    }

    /// The id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// In the order of their texts.
impl std::borrow::Borrow<str> for Id {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not an id"))
    }
}

/// `Generation`, `Revision` or `Sequence`: an integer from 0 to 2^53 − 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Generation(u64);

impl Generation {
    /// Parses a generation; `None` above 2^53 − 1.
    pub fn parse(number: u64) -> Option<Self> {
        (number <= LARGEST_INTEGER).then_some(Self(number))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Generation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        Self::parse(number).ok_or_else(|| D::Error::custom("not a generation"))
    }
}

/// `Reference`: an id and a generation, exact-key (REG-39).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// What is referred to.
    pub id: Id,
    /// Which of its generations.
    pub generation: Generation,
}

/// Whether a text is a lower-case DNS name, of one label or more.
pub fn is_dns_name(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        })
}

/// Reads a member that is an object: a derived reader would take an array of its members' values as well.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    let raw = <&'de RawValue>::deserialize(deserializer)?;
    from_object(raw).ok_or_else(|| D::Error::custom("not an object of its members"))
}

/// Reads an object; `None` for anything else.
pub fn from_object<'de, T: Deserialize<'de>>(raw: &'de RawValue) -> Option<T> {
    raw.get().starts_with('{').then(|| serde_json::from_str(raw.get()).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_its_alphabet_and_length() {
        for valid in ["a", "node-1", "A.b_c:d-9", &"x".repeat(128)] {
            assert!(Id::parse(valid).is_some(), "{valid}");
        }
        for invalid in ["", " a", "a/b", "é", "a\n", &"x".repeat(129)] {
            assert!(Id::parse(invalid).is_none(), "{invalid:?}");
        }
    }

    /// REG-39: the reference reader is exact-key.
    #[test]
    fn a_reference_with_a_missing_extra_or_wrong_member_is_refused() {
        let read = serde_json::from_str::<Reference>;
        assert!(read(r#"{"generation":9007199254740991,"id":"r"}"#).is_ok());
        for refused in [
            r#"{"id":"r"}"#,
            r#"{"generation":1}"#,
            r#"{"id":"r","generation":1,"more":1}"#,
            r#"{"id":"r","generation":9007199254740992}"#,
            r#"{"id":"r","generation":-1}"#,
            r#"{"id":"r","generation":1.5}"#,
            r#"{"id":"r","generation":"1"}"#,
            r#"{"id":"","generation":1}"#,
            r#"{"id":"r","id":"r","generation":1}"#,
            "null",
        ] {
            assert!(read(refused).is_err(), "{refused}");
        }
    }
}
