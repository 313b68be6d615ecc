//! Reads exact-key objects and lists as the texts of their parts, so that what is wrong has a path and
//! nothing of it is copied.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer as _,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Deserializer, value::RawValue};

/// Longest name of an unknown member that is repeated: shorter than a line of a PEM body.
const NAME_LENGTH: usize = 32;

/// Why an object is not the exact-key one.
pub(super) enum Wrong {
    /// It is no object, or has a member whose name does not look like one.
    Object,
    /// This member is missing, unknown, or stands twice.
    Member(String),
}

impl Wrong {
    /// The path of what is wrong, of an object at `path`.
    pub(super) fn below(self, path: &str, separator: &str) -> String {
        match self {
            Self::Object => path.to_owned(),
            // The members of a body's one object are named without it.
            Self::Member(name) if separator.is_empty() => name,
            Self::Member(name) => format!("{path}{separator}{name}"),
        }
    }
}

/// The members of an object that has these and no other, each once, in the order of `names`.
pub(super) fn members<'a, const N: usize>(
    raw: &'a RawValue,
    names: [&str; N],
) -> Result<[&'a RawValue; N], Wrong> {
    let visitor = Members { names, found: [None; N], wrong: None };
    let (found, wrong) =
        Deserializer::from_str(raw.get()).deserialize_map(visitor).map_err(|_| Wrong::Object)?;
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    let mut whole = [raw; N];
    for (at, member) in found.into_iter().enumerate() {
        whole[at] = member.ok_or_else(|| Wrong::Member(names[at].to_owned()))?;
    }
    Ok(whole)
}

struct Members<'n, 'a, const N: usize> {
    names: [&'n str; N],
    found: [Option<&'a RawValue>; N],
    wrong: Option<Wrong>,
}

impl<'de, const N: usize> Visitor<'de> for Members<'_, 'de, N> {
    type Value = ([Option<&'de RawValue>; N], Option<Wrong>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        while let Some(Name(name)) = map.next_key()? {
            let known = self.names.iter().position(|known| *known == name);
            match known.filter(|at| self.found[*at].is_none()) {
                Some(at) => self.found[at] = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                    self.wrong.get_or_insert_with(|| unknown(&name));
                }
            }
        }
        Ok((self.found, self.wrong))
    }
}

/// A member's name, copied only where it has escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

fn unknown(name: &str) -> Wrong {
    let plain = (1..=NAME_LENGTH).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric());
    if plain { Wrong::Member(name.to_owned()) } else { Wrong::Object }
}

/// Visits the elements of a list in order and counts them; ends with the first error of `visit`, `None`
/// where it is no list.
pub(super) fn each<'a, E>(
    raw: &'a RawValue,
    visit: impl FnMut(usize, &'a RawValue) -> Result<(), E>,
) -> Result<usize, Option<E>> {
    let mut error = None;
    let visitor = Elements { visit, error: &mut error };
    Deserializer::from_str(raw.get()).deserialize_seq(visitor).map_err(|_| error)
}

struct Elements<'e, F, E> {
    visit: F,
    error: &'e mut Option<E>,
}

impl<'de, F, E> Visitor<'de> for Elements<'_, F, E>
where
    F: FnMut(usize, &'de RawValue) -> Result<(), E>,
{
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<usize, A::Error> {
        let mut count = 0;
        while let Some(element) = list.next_element()? {
            if let Err(error) = (self.visit)(count, element) {
                *self.error = Some(error);
                return Err(A::Error::custom("ended by its visitor"));
            }
            count += 1;
        }
        Ok(count)
    }
}
