//! The envelope of every message: msgpack, fields by name, versioned.
//!
//! `{kind, v, body}`. A reader that does not know the kind, or only older versions
//! of it, keeps the bytes as they are ([`Opened::Unknown`]); trailing bytes are
//! refused, because the msgpack reader itself would accept them in silence.

use crate::error::{Code, Fault};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A type that travels in an envelope.
pub trait Message: Serialize + DeserializeOwned {
    /// Name on the wire; never reused for another meaning.
    const KIND: &'static str;
    /// Version on the wire. Adding an optional field does not raise it; a change
    /// that an old reader would misread does.
    const VERSION: u16 = 1;
}

#[derive(Serialize)]
struct Out<'a, T> {
    kind: &'a str,
    v: u16,
    body: &'a T,
}

#[derive(Deserialize)]
struct In<T> {
    body: T,
}

#[derive(Deserialize)]
struct Whole<T> {
    kind: String,
    v: u16,
    body: T,
}

/// Kind and version of an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Head {
    /// Name of the message type.
    pub kind: String,
    /// Its version.
    pub v: u16,
}

/// An envelope that was opened by a reader of `T`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened<T> {
    /// A message of the expected type.
    Known(T),
    /// Another kind, or a newer version; its bytes are kept.
    Unknown(Head, Bytes),
}

/// Encodes as msgpack with field names.
pub fn to_msgpack<T: Serialize>(value: &T) -> Result<Bytes, Fault> {
    rmp_serde::to_vec_named(value)
        .map(Bytes::from)
        .map_err(|e| Fault::new(Code::InternalLogicError, format!("can't encode: {e}")))
}

/// Decodes msgpack; trailing bytes are refused.
pub fn from_msgpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    let mut reader = rmp_serde::Deserializer::new(std::io::Cursor::new(bytes));
    // Far above what a legitimate message needs, far below what overflows a stack.
    reader.set_max_depth(128);
    let value = T::deserialize(&mut reader).map_err(|e| {
        let at = format!("byte {}", reader.position());
        Fault::new(Code::InputInvalid, format!("not the expected msgpack: {e}")).at(at)
    })?;
    let used = reader.position();
    if used != bytes.len() as u64 {
        let message = format!("{} trailing bytes", bytes.len() as u64 - used);
        return Err(Fault::new(Code::InputInvalid, message).at(format!("byte {used}")));
    }
    Ok(value)
}

/// Puts `body` in its envelope.
pub fn seal<T: Message>(body: &T) -> Result<Bytes, Fault> {
    to_msgpack(&Out {
        kind: T::KIND,
        v: T::VERSION,
        body,
    })
}

/// Kind and version, without reading the body.
pub fn head(bytes: &[u8]) -> Result<Head, Fault> {
    from_msgpack(bytes)
}

/// Opens an envelope; another kind or a newer version is kept, not an error.
pub fn open<T: Message>(bytes: &Bytes) -> Result<Opened<T>, Fault> {
    // Nearly every message is what its reader expects: read whole at once. Only where
    // that fails, or it was another message with the same fields, is the head read.
    let whole = from_msgpack::<Whole<T>>(bytes);
    if let Ok(whole) = whole
        && whole.kind == T::KIND
        && whole.v <= T::VERSION
    {
        return Ok(Opened::Known(whole.body));
    }
    let head = head(bytes)?;
    if head.kind != T::KIND || head.v > T::VERSION {
        return Ok(Opened::Unknown(head, bytes.clone()));
    }
    from_msgpack::<In<T>>(bytes).map(|e| Opened::Known(e.body))
}

/// Opens an envelope that must hold a `T`.
pub fn expect<T: Message>(bytes: &Bytes) -> Result<T, Fault> {
    match open(bytes)? {
        Opened::Known(body) => Ok(body),
        Opened::Unknown(head, _) => {
            let message = format!(
                "expected a message {} v{}, got {:?} v{}",
                T::KIND,
                T::VERSION,
                head.kind,
                head.v
            );
            Err(Fault::new(Code::InputInvalid, message).at("/kind"))
        }
    }
}

/// The same envelope as JSON, for publishers that send `Content-Type: application/json`.
pub fn expect_json<T: Message>(bytes: &[u8]) -> Result<T, Fault> {
    let wrong = |e: serde_json::Error| {
        let at = format!("line {} column {}", e.line(), e.column());
        Fault::new(Code::InputInvalid, format!("not the expected JSON: {e}")).at(at)
    };
    let head: Head = serde_json::from_slice(bytes).map_err(wrong)?;
    if head.kind != T::KIND || head.v > T::VERSION {
        let message = format!("expected a message {} v{}", T::KIND, T::VERSION);
        return Err(Fault::new(Code::InputInvalid, message).at("/kind"));
    }
    serde_json::from_slice::<In<T>>(bytes)
        .map(|e| e.body)
        .map_err(wrong)
}

/// A reply: the answer or the fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reply<T> {
    /// It was done.
    Ok(T),
    /// It was refused or failed.
    Fault(Fault),
}

impl<T> From<Result<T, Fault>> for Reply<T> {
    fn from(r: Result<T, Fault>) -> Self {
        match r {
            Ok(v) => Reply::Ok(v),
            Err(f) => Reply::Fault(f),
        }
    }
}

impl<T> Reply<T> {
    /// As a `Result`.
    pub fn into_result(self) -> Result<T, Fault> {
        match self {
            Reply::Ok(v) => Ok(v),
            Reply::Fault(f) => Err(f),
        }
    }
}

/// Encodes a reply. The fault itself is encoded where the answer can't be.
pub fn reply<T: Serialize>(result: Result<T, Fault>) -> Bytes {
    let plain: Reply<T> = result.into();
    to_msgpack(&plain).unwrap_or_else(|fault| {
        // A Fault is three strings and a number: encoding it has no way to fail.
        to_msgpack(&Reply::<()>::Fault(fault)).unwrap_or_default()
    })
}

/// Encodes a reply in the form of the request: JSON for a JSON request, else msgpack.
pub fn reply_like<T: Serialize>(request: &[u8], result: Result<T, Fault>) -> Bytes {
    if !is_json(request) {
        return reply(result);
    }
    let plain: Reply<T> = result.into();
    let json = serde_json::to_vec(&plain).map_err(|e| {
        let message = format!("the answer has no form in JSON: {e}");
        Fault::new(Code::InternalLogicError, message)
    });
    let or_fault = |fault| serde_json::to_vec(&Reply::<()>::Fault(fault)).unwrap_or_default();
    json.unwrap_or_else(or_fault).into()
}

/// Is this message JSON? No msgpack envelope begins with `{`, which is the number 123
/// there.
pub fn is_json(message: &[u8]) -> bool {
    message.first() == Some(&b'{')
}

/// Reads a message in either form.
pub fn expect_either<T: Message>(message: &Bytes) -> Result<T, Fault> {
    if is_json(message) {
        return expect_json(message);
    }
    expect(message)
}

/// Encodes a message as JSON.
pub fn seal_json<T: Message>(body: &T) -> Result<Bytes, Fault> {
    let out = Out {
        kind: T::KIND,
        v: T::VERSION,
        body,
    };
    let json = serde_json::to_vec(&out);
    json.map(Bytes::from)
        .map_err(|e| Fault::new(Code::InternalLogicError, e.to_string()))
}

/// Reads a reply.
pub fn read_reply<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    from_msgpack::<Reply<T>>(bytes)?.into_result()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    struct Ping {
        n: u32,
    }
    impl Message for Ping {
        const KIND: &'static str = "ping";
        const VERSION: u16 = 2;
    }

    #[test]
    fn round_trip() {
        let bytes = seal(&Ping { n: 7 }).unwrap();
        assert_eq!(expect::<Ping>(&bytes).unwrap(), Ping { n: 7 });
        assert_eq!(head(&bytes).unwrap().kind, "ping");
    }

    #[test]
    fn unknown_kinds_and_newer_versions_are_kept() {
        for (kind, v) in [("pong", 1), ("ping", 3)] {
            let bytes = to_msgpack(&Out { kind, v, body: &1 }).unwrap();
            match open::<Ping>(&bytes).unwrap() {
                Opened::Unknown(head, kept) => {
                    assert_eq!((head.kind.as_str(), head.v), (kind, v));
                    assert_eq!(kept, bytes);
                }
                Opened::Known(_) => panic!("{kind} v{v} was read"),
            }
            assert_eq!(expect::<Ping>(&bytes).unwrap_err().code, Code::InputInvalid);
        }
    }

    #[test]
    fn older_versions_and_added_fields_are_read() {
        #[derive(Serialize)]
        struct Wide {
            n: u32,
            new: &'static str,
        }
        let body = Wide { n: 1, new: "x" };
        let bytes = to_msgpack(&Out {
            kind: "ping",
            v: 1,
            body: &body,
        })
        .unwrap();
        assert_eq!(expect::<Ping>(&bytes).unwrap(), Ping { n: 1 });
    }

    #[test]
    fn junk_is_refused() {
        let good = seal(&Ping { n: 7 }).unwrap();
        let mut trailing = good.to_vec();
        trailing.push(0);
        let cut = &good[..good.len() - 1];
        let deep = [0x91; 100_000];
        for bad in [&trailing[..], cut, b"", b"{}", &deep[..], &[0xc1]] {
            let f = expect::<Ping>(&Bytes::copy_from_slice(bad)).unwrap_err();
            assert_eq!(f.code, Code::InputInvalid);
            assert!(f.at.is_some());
        }
    }

    #[test]
    fn json_says_line_and_column() {
        let good = br#"{"kind":"ping","v":1,"body":{"n":7}}"#;
        assert_eq!(expect_json::<Ping>(good).unwrap(), Ping { n: 7 });
        let f = expect_json::<Ping>(b"{\"kind\":\n\"ping\"").unwrap_err();
        assert!(f.at.unwrap().starts_with("line 2"));
    }

    #[test]
    fn replies_carry_faults() {
        let ok = reply(Ok::<_, Fault>(5u32));
        assert_eq!(read_reply::<u32>(&ok).unwrap(), 5);
        let no = reply(Err::<u32, _>(Fault::new(Code::Draining, "going down")));
        assert_eq!(read_reply::<u32>(&no).unwrap_err().code, Code::Draining);
    }
}
