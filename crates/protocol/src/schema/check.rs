//! Holding bytes from the wire against their schema.

use super::shape_of;
use crate::contract::Contract;
use crate::envelope::{from_msgpack, is_json};
use crate::error::{Code, Fault};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// Does this payload, msgpack or JSON, meet the schema of this name?
///
/// # Errors
/// `INPUT_INVALID`, with each broken rule and its place, or where it is neither msgpack
/// nor JSON; `INTERNAL_LOGIC_ERROR` where nothing has this name.
pub fn check(name: &str, payload: &[u8]) -> Result<(), Fault> {
    let unknown = || Fault::new(Code::InternalLogicError, format!("no schema {name:?}"));
    let shape = shape_of(name).ok_or_else(unknown)?;
    let value = json_of(payload)?;
    Contract::compile(&shape.schema())?.check_as(Code::InputInvalid, &value)
}

/// What a payload, msgpack or JSON, says, as JSON. Bytes become arrays of numbers, as
/// they are in the JSON form of a message.
///
/// # Errors
/// `INPUT_INVALID` where it is neither, or says what JSON can't.
pub fn json_of(payload: &[u8]) -> Result<Value, Fault> {
    if is_json(payload) {
        let wrong = |e| Fault::new(Code::InputInvalid, format!("not JSON: {e}"));
        return serde_json::from_slice(payload).map_err(wrong);
    }
    from_msgpack::<Anything>(payload).map(|any| any.0)
}

/// Any JSON value, with bytes allowed.
struct Anything(Value);

impl<'de> Deserialize<'de> for Anything {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any).map(Anything)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can say")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_bytes<E>(self, v: &[u8]) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Anything(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(items.into())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some((name, Anything(field))) = map.next_entry::<String, _>()? {
            fields.insert(name, field);
        }
        Ok(fields.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{reply, to_msgpack};
    use crate::messages::Answer;
    use serde_json::json;

    #[test]
    fn an_export_is_read_from_msgpack_and_meets_its_schema() {
        let entries = vec![serde_bytes::ByteBuf::from(vec![0, 255])];
        let payload = reply(Ok(Answer::Entries { entries }));
        let wanted = json!({"ok": {"is": "entries", "entries": [[0, 255]]}});
        assert_eq!(json_of(&payload).unwrap(), wanted);
        check("answer", &payload).unwrap();
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let bad = json!({"fault": {"code": "NO_SUCH_CODE", "message": "x"}});
        for payload in [to_msgpack(&bad).unwrap(), bad.to_string().into()] {
            let fault = check("accepted", &payload).unwrap_err();
            assert_eq!(fault.code, Code::InputInvalid);
        }
        assert_eq!(
            check("accepted", b"\xc1").unwrap_err().code,
            Code::InputInvalid
        );
        let unnamed = check("no-such-name", b"{}").unwrap_err();
        assert_eq!(unnamed.code, Code::InternalLogicError);
    }
}
