//! Takes one part out of JSON text and passes over the rest, so that a small part of a
//! large text costs no more memory than itself.

use crate::json;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt;

pub(super) enum Picked {
    Part(Value),
    TooLarge,
    Missing,
}

/// The part that `pointer` names in `text`, if it is no larger than `bytes_max`, as
/// canonical text.
pub(super) fn pick(
    text: &[u8],
    pointer: &str,
    bytes_max: usize,
) -> Result<Picked, serde_json::Error> {
    // Unescaped once, here: `a~1b` is the name `a/b`.
    let path: Vec<_> = pointer
        .split('/')
        .skip(1)
        .map(json::pointer_unescape)
        .collect();
    if path.is_empty() && text.len() > bytes_max {
        return Ok(Picked::TooLarge);
    }
    let mut reader = serde_json::Deserializer::from_slice(text);
    let part = Seed { path: &path }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(match part {
        Some(part) if json::size_bytes(&part) > bytes_max => Picked::TooLarge,
        Some(part) => Picked::Part(part),
        None => Picked::Missing,
    })
}

struct Seed<'p> {
    path: &'p [String],
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        match self.path {
            [] => Value::deserialize(from).map(Some),
            _ => from.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (first, path) = self.path.split_first().ok_or_else(no_path)?;
        let mut found = None;
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if name == first.as_str() {
                found = map.next_value_seed(Seed { path })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let (first, path) = self.path.split_first().ok_or_else(no_path)?;
        let wanted = index(first);
        let (mut found, mut at) = (None, 0);
        loop {
            if Some(at) == wanted {
                let Some(part) = seq.next_element_seed(Seed { path })? else {
                    return Ok(None);
                };
                found = part;
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            at += 1;
        }
    }

    // A text, a number or the like has no parts.
    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Unreachable: a seed without a path reads the whole value.
fn no_path<E: serde::de::Error>() -> E {
    E::custom("no path")
}

/// As in a JSON pointer: no sign, no leading zero.
fn index(text: &str) -> Option<usize> {
    let plain = text == "0" || (!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()));
    plain.then(|| text.parse().ok()).flatten()
}
