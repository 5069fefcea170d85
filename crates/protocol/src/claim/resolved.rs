//! A value of which some places have still to be fetched.

use super::{Claimed, Part};
use crate::error::{Code, Fault};
use crate::json::Digest;
use serde_json::Value;

/// A value, and the places in it whose values are parts of kept outputs. A marker stands
/// there ([`Part::marker`]), so that the value has a digest all the same.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resolved {
    /// The value, with its markers.
    pub value: Value,
    /// What is still to be fetched.
    pub claims: Vec<Claimed>,
}

impl From<Value> for Resolved {
    fn from(value: Value) -> Self {
        Self {
            value,
            claims: Vec::new(),
        }
    }
}

impl Resolved {
    /// Nothing but a part.
    pub fn part(part: Part) -> Self {
        Self {
            value: part.marker(),
            claims: vec![Claimed {
                at: String::new(),
                part,
            }],
        }
    }

    /// Is everything here?
    pub fn is_whole(&self) -> bool {
        self.claims.is_empty()
    }

    /// Digest of the value. Where nothing has to be fetched it is that of the value alone.
    pub fn digest(&self) -> Digest {
        Digest::of_json(&self.value)
    }

    /// What `pointer` names in it, also inside what has still to be fetched.
    pub fn pointer(&self, pointer: &str) -> Option<Resolved> {
        let outer = self.claims.iter().find_map(|c| {
            let rest = below(pointer, &c.at)?;
            Some(Resolved::part(c.part.inner(rest)))
        });
        if outer.is_some() {
            return outer;
        }
        let value = self.value.pointer(pointer)?.clone();
        let inside = self.claims.iter().filter_map(|c| {
            let at = below(&c.at, pointer)?.to_owned();
            let part = c.part.clone();
            Some(Claimed { at, part })
        });
        let claims = inside.collect();
        Some(Resolved { value, claims })
    }

    /// The value, if everything is here.
    ///
    /// # Errors
    /// [`Code::InputTooLarge`] with the place of the first part that is not.
    pub fn whole(self) -> Result<Value, Fault> {
        match self.claims.first() {
            None => Ok(self.value),
            Some(claim) => Err(too_large_here(&claim.at)),
        }
    }

    /// The first place among `pointers` (none: anywhere) whose value is not known even by
    /// its digest.
    pub fn unknown_in(&self, pointers: &[String]) -> Option<String> {
        let unknown = |of: &Resolved| {
            let mut claims = of.claims.iter();
            let first = claims.find(|c| c.part.value.is_none())?;
            Some(first.at.clone())
        };
        if pointers.is_empty() {
            return unknown(self);
        }
        pointers.iter().find_map(|p| {
            let at = unknown(&self.pointer(p)?)?;
            Some(format!("{p}{at}"))
        })
    }
}

/// A place where only a value can stand that is here.
pub(crate) fn too_large_here(at: &str) -> Fault {
    let message = format!(
        "what belongs at {at:?} is in an output that is too large to be used here; refer to a \
         small member at its top, or let a step take the part out"
    );
    Fault::new(Code::InputTooLarge, message).at(at)
}

/// What is left of `pointer` below `base`; `None` where it is not at or below it.
fn below<'a>(pointer: &'a str, base: &str) -> Option<&'a str> {
    let rest = pointer.strip_prefix(base)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}
