//! Golden files: the bytes of every message, answer and record of version 1.
//!
//! `v1/*.msgpack` is what goes over the wire and into the journal; the `.json` beside
//! it says the same for people. Both were written once, with `DETENT_UPDATE_GOLDEN=1`,
//! and are never rewritten for another meaning: a change that would alter them needs a
//! new version beside the old one, and the old ones must still be read.
#![allow(missing_docs)]

mod decoders;
mod samples;

use bytes::Bytes;
use detent_protocol::effect::SlotMark;
use detent_protocol::envelope::{
    self, Message, expect, expect_json, from_msgpack, seal, to_msgpack,
};
use detent_protocol::goal::Accepted;
use detent_protocol::goal::Submit;
use detent_protocol::messages::*;
use detent_protocol::record::*;
use detent_protocol::result::*;
use detent_protocol::tombstone::ArchivePart;
use detent_protocol::*;
use samples::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

/// Compares with the files, or writes them.
fn golden(group: &str, name: &str, bytes: &[u8], json: &Value) {
    let path = folder().join(group).join(name);
    let (binary, text) = (path.with_extension("msgpack"), path.with_extension("json"));
    let json = serde_json::to_string_pretty(json).unwrap() + "\n";
    if std::env::var_os("DETENT_UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&binary, bytes).unwrap();
        std::fs::write(&text, &json).unwrap();
    }
    let missing = |e: std::io::Error| -> ! {
        panic!(
            "{}: {e}; write it with DETENT_UPDATE_GOLDEN=1",
            path.display()
        )
    };
    let kept = std::fs::read(&binary).unwrap_or_else(|e| missing(e));
    assert!(
        kept == bytes,
        "{}: the bytes on the wire have changed",
        binary.display()
    );
    let kept = std::fs::read_to_string(&text).unwrap_or_else(|e| missing(e));
    assert_eq!(kept, json, "{}", text.display());
}

fn message<T: Message + PartialEq + Debug>(name: &str, message: &T) {
    let bytes = seal(message).unwrap();
    let json = json!({"kind": T::KIND, "v": T::VERSION, "body": message});
    golden("message", name, &bytes, &json);
    assert_eq!(&expect::<T>(&bytes).unwrap(), message, "{name}");
    let text = serde_json::to_vec(&json).unwrap();
    assert_eq!(&expect_json::<T>(&text).unwrap(), message, "{name} as JSON");
    assert_eq!(name.split('-').next(), Some(T::KIND));
}

fn answer<T: Serialize + DeserializeOwned + PartialEq + Debug + Clone>(name: &str, answer: &T) {
    let bytes = envelope::reply(Ok(answer.clone()));
    golden("answer", name, &bytes, &json!({"ok": answer}));
    assert_eq!(
        &envelope::read_reply::<T>(&bytes).unwrap(),
        answer,
        "{name}"
    );
}

#[test]
fn messages_are_written_as_ever() {
    each_message!(message);
}

#[test]
fn answers_are_written_as_ever() {
    each_answer!(answer);
    let refused = envelope::reply(Err::<(), _>(fault()));
    golden("answer", "refused", &refused, &json!({"fault": fault()}));
}

#[test]
fn records_are_written_as_ever() {
    let mut kinds = BTreeSet::new();
    for (name, body) in records() {
        let bytes = to_msgpack(&body).unwrap();
        golden("record", &name, &bytes, &json!(body));
        assert_eq!(from_msgpack::<Body>(&bytes).unwrap(), body, "{name}");
        kinds.insert(body.kind());
    }
    assert_eq!(
        kinds,
        Body::KINDS.iter().copied().collect(),
        "a kind has no golden file"
    );
}

#[test]
fn an_entry_of_the_journal_is_written_as_ever() {
    let (bytes, _) = decoders::entry()
        .encode(&detent_protocol::journal::GENESIS)
        .unwrap();
    let text = json!({"at_error_ms": 50, "at_ms": 1_760_000_000_000_u64, "epoch": 3, "records": records().len()});
    golden("entry", "all-records", &bytes, &text);
}

#[test]
fn a_tombstone_and_an_archive_are_written_as_ever() {
    let entry = decoders::tombstone();
    let (bytes, _) = entry.encode_tombstone(&samples::digest()).unwrap();
    let text = json!({"epoch": 3, "n": 17, "replaces": samples::digest()});
    golden("entry", "tombstone", &bytes, &text);
    let mut part = ArchivePart::new(entry.tenant, entry.goal, 1);
    part.entries.push(serde_bytes::ByteBuf::from(vec![1, 2, 3]));
    let kept = part.encode().unwrap();
    golden("entry", "archive", &kept, &json!(part));
}

/// What a file of `v1` holds now, read by this version, as JSON.
fn read(group: &str, name: &str, bytes: &Bytes) -> Result<Value, Fault> {
    let kind = name.split('-').next().unwrap_or_default();
    fn as_json<T: Serialize>(value: T) -> Value {
        serde_json::to_value(value).unwrap()
    }
    fn enveloped<T: Message>(bytes: &Bytes) -> Result<Value, Fault> {
        let body = as_json(expect::<T>(bytes)?);
        Ok(json!({"kind": T::KIND, "v": envelope::head(bytes)?.v, "body": body}))
    }
    fn replied<T: Serialize + DeserializeOwned>(bytes: &Bytes) -> Result<Value, Fault> {
        from_msgpack::<envelope::Reply<T>>(bytes).map(as_json)
    }
    match (group, kind) {
        ("message", "submit") => enveloped::<Submit>(bytes),
        ("message", "plan_request") => enveloped::<PlanRequest>(bytes),
        ("message", "tool_call") => enveloped::<ToolCall>(bytes),
        ("message", "seal_attempt") => enveloped::<SealAttempt>(bytes),
        ("message", "seal_goal") => enveloped::<SealGoal>(bytes),
        ("message", "observe") => enveloped::<Observe>(bytes),
        ("message", "control") => enveloped::<Control>(bytes),
        ("message", "refused") => enveloped::<Refused>(bytes),
        ("message", "alert") => enveloped::<Alert>(bytes),
        ("message", "query") => enveloped::<Query>(bytes),
        ("message", "event") => enveloped::<GoalEvent>(bytes),
        ("message", "result") => enveloped::<ResultMessage>(bytes),
        ("answer", "accepted") => replied::<Accepted>(bytes),
        ("answer", "plan_answer") => replied::<PlanAnswer>(bytes),
        ("answer", "tool_outcome") => replied::<ToolOutcome>(bytes),
        ("answer", "attempt_sealed") => replied::<AttemptSealed>(bytes),
        ("answer", "goal_sealed") => replied::<GoalSealed>(bytes),
        ("answer", "observation") => replied::<Seen>(bytes),
        ("answer", "controlled") => replied::<Controlled>(bytes),
        ("answer", "answer") => replied::<Answer>(bytes),
        ("answer", "slot") => replied::<SlotMark>(bytes),
        ("answer", "fault" | "refused") => replied::<Fault>(bytes),
        ("record", _) => from_msgpack::<Body>(bytes).map(as_json),
        _ => panic!("{group}/{name}: a golden file that nobody reads"),
    }
}

#[test]
fn what_version_1_wrote_is_still_read() {
    let mut files = 0;
    for group in ["message", "answer", "record"] {
        for file in std::fs::read_dir(folder().join(group)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|e| e != "msgpack") {
                continue;
            }
            let name = path.file_stem().unwrap().to_str().unwrap();
            let bytes = Bytes::from(std::fs::read(&path).unwrap());
            let text = std::fs::read_to_string(path.with_extension("json")).unwrap();
            let expected: Value = serde_json::from_str(&text).unwrap();
            let read = read(group, name, &bytes).unwrap_or_else(|f| panic!("{name}: {f}"));
            assert_eq!(read, expected, "{}", path.display());
            files += 1;
        }
    }
    assert!(files >= 80, "only {files} files");
}
