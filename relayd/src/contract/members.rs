//! Reads a few members of an object that is only carried, and leaves the rest of it unread (FWD-28,
//! FWD-31).
//!
//! A member that stands twice, in whatever notation, is refused: of two sessions the relay could check
//! one and Cloudly act on the other. Any other member may be what JSON admits, a name with half a
//! surrogate pair and a depth beyond every recursion limit included, so that it crosses as it is (FWD-02).

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The texts of the members `names`, `None` for one that does not stand there.
///
/// # Errors
/// One of them stands twice, or this is no object.
pub fn members<'de, D: Deserializer<'de>, const N: usize>(
    deserializer: D,
    names: [&'static str; N],
) -> Result<[Option<&'de RawValue>; N], D::Error> {
    deserializer.deserialize_map(Members(names))
}

struct Members<const N: usize>([&'static str; N]);

impl<'de, const N: usize> Visitor<'de> for Members<N> {
    type Value = [Option<&'de RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(place) = map.next_key_seed(Place(&self.0))? {
            let Some(place) = place else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if found[place].replace(map.next_value()?).is_some() {
                return Err(A::Error::custom("a member stands twice"));
            }
        }
        Ok(found)
    }
}

/// Which of the names a key is. It is compared as bytes: a key need not be a text that Unicode has.
struct Place<'n>(&'n [&'static str]);

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Place<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_bytes<E>(self, key: &[u8]) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|name| name.as_bytes() == key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<[Option<String>; 2]> {
        let found = members(&mut serde_json::Deserializer::from_str(text), ["a", "b"]).ok()?;
        Some(found.map(|member| member.map(|raw| raw.get().to_owned())))
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    /// FWD-02, FWD-28, FWD-31: what is not asked for is skipped, whatever it is.
    #[test]
    fn members_are_found_among_whatever_json_admits() {
        assert_eq!(read("{}"), Some([None, None]));
        assert_eq!(read(r#"{"b":[1.0 ],"\u0061" : 1E400}"#), Some([some("1E400"), some("[1.0 ]")]));
        assert_eq!(
            read(r#"{"\ud800":"\udfff","":0,"a\u0000":1,"A":2,"b":null}"#),
            Some([None, some("null")])
        );
        let deep = format!(r#"{{"x":{}{},"a":7}}"#, "[".repeat(200_000), "]".repeat(200_000));
        assert_eq!(read(&deep), Some([some("7"), None]));
    }

    /// FWD-12: of a member that stands twice, relay and peer could read different ones.
    #[test]
    fn a_member_that_stands_twice_is_refused_in_any_notation() {
        for twice in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":1}"#,
            r#"{"\u0062":1,"x":{"b":0},"b":null}"#,
            r#"{"a":null,"a":null}"#,
        ] {
            assert_eq!(read(twice), None, "{twice}");
        }
        assert!(read(r#"{"x":1,"x":2,"y":{"a":1,"a":2}}"#).is_some(), "what is not read may stand twice");
        for other in ["[]", r#"["a"]"#, "null", r#""a""#, "{", ""] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
