//! A flat map from variable name to scalar, the form of an overlay file and of a Docker secret that is a JSON
//! object (CFG-36). Only the values of known names are kept; nothing of a file's content reaches an error.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, EnumAccess, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use zeroize::Zeroizing;

use super::variable::Variable;

/// The known names of one flat map.
#[derive(Default)]
pub(super) struct FlatMap {
    /// The value of each known name.
    pub(super) values: BTreeMap<Variable, Scalar>,
    /// Whether any member, known or not, is a list or a map.
    pub(super) nested: bool,
    /// A known name that occurs twice.
    pub(super) repeated: Option<Variable>,
}

/// A member's value. It has no `Debug`: it may be the bearer.
pub(super) enum Scalar {
    /// A string, as it is.
    Text(Zeroizing<String>),
    /// A whole number or a boolean, in its usual notation.
    Plain(String),
    /// A number with a fraction or an exponent, whose notation the parser does not keep.
    Float,
    /// `null`: no value.
    Null,
    /// A list or a map.
    Nested,
}

impl<'de> Deserialize<'de> for FlatMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FlatMapVisitor)
    }
}

struct FlatMapVisitor;

impl<'de> Visitor<'de> for FlatMapVisitor {
    type Value = FlatMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a flat map")
    }

    /// An empty YAML document.
    fn visit_unit<E: Error>(self) -> Result<FlatMap, E> {
        Ok(FlatMap::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<FlatMap, A::Error> {
        let mut map = FlatMap::default();
        while let Some(name) = members.next_key::<String>()? {
            let name = Zeroizing::new(name);
            let value: Scalar = members.next_value()?;
            map.nested |= matches!(value, Scalar::Nested);
            let Some(variable) = Variable::of_name(&name) else { continue };
            if map.values.insert(variable, value).is_some() {
                map.repeated = Some(variable);
            }
        }
        Ok(map)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar")
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(Zeroizing::new(value.to_owned())))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Scalar, E> {
        Ok(Scalar::Text(Zeroizing::new(value)))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar::Plain(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar::Plain(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Scalar, E> {
        Ok(Scalar::Plain(value.to_string()))
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Scalar, E> {
        Ok(Scalar::Plain(value.to_string()))
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Scalar, E> {
        Ok(Scalar::Plain(value.to_string()))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Scalar, E> {
        Ok(Scalar::Float)
    }

    fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
        Ok(Scalar::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Scalar, E> {
        Ok(Scalar::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Scalar, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Nested)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Scalar, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Nested)
    }

    /// A value with a YAML tag of its own.
    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<Scalar, A::Error> {
        Err(A::Error::custom("a tagged value"))
    }
}
