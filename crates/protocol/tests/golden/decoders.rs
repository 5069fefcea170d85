//! Bytes from outside: decoders never panic, and what they take they took whole.

use super::samples::*;
use bytes::Bytes;
use detent_protocol::envelope::{self, from_msgpack, head, open, seal, to_msgpack};
use detent_protocol::goal::Submit;
use detent_protocol::journal::{Entry, GENESIS};
use detent_protocol::messages::{PlanAnswer, ToolCall};
use detent_protocol::plan;
use detent_protocol::record::{Body, Record, Said};
use detent_protocol::tombstone::ArchivePart;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use serde_json::Value;

/// An entry with a record of every kind.
pub(crate) fn entry() -> Entry {
    let records = records().into_iter().zip(1..).map(|((_, body), n)| Record {
        n,
        cause: "golden".into(),
        said: Said::Known(body),
    });
    Entry {
        tenant: tenant(),
        goal: goal(),
        epoch: 3,
        at_ms: 1_760_000_000_000,
        at_error_ms: 50,
        records: records.collect(),
    }
}

/// What a goal's journal becomes.
pub(crate) fn tombstone() -> Entry {
    let goal = Box::new(super::samples::tombstone());
    let record = Record {
        n: 17,
        cause: "forget".into(),
        said: Said::Known(Body::Forgotten { goal }),
    };
    let records = vec![record];
    Entry { records, ..entry() }
}

/// Everything that reads bytes from outside.
fn decode_all(bytes: &[u8]) {
    let shared = Bytes::copy_from_slice(bytes);
    let _ = head(bytes);
    let _ = open::<Submit>(&shared);
    let _ = open::<ToolCall>(&shared);
    let _ = envelope::expect_json::<Submit>(bytes);
    let _ = envelope::read_reply::<PlanAnswer>(bytes);
    let _ = from_msgpack::<Body>(bytes);
    if let Ok(value) = from_msgpack::<Value>(bytes) {
        let _ = plan::parse(&value);
    }
    if let Ok((entry, _)) = Entry::decode(bytes, &GENESIS) {
        let (again, _) = match Entry::is_tombstone(bytes) {
            true => entry.encode_tombstone(&digest()).unwrap(),
            false => entry.encode(&GENESIS).unwrap(),
        };
        assert_eq!(
            again, shared,
            "an entry that was taken is written as it was"
        );
    }
    let _ = Entry::decode_alone(bytes);
    let _ = ArchivePart::decode(bytes, &tenant(), &goal());
}

/// JSON of any shape, with the words that plans are made of.
fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "id",
        "tool",
        "args",
        "after",
        "steps",
        "result",
        "expect",
        "delay_seconds",
        "$step",
        "$goal",
        "$concat",
        "at",
        "run_at",
        "done",
        "probe",
        "schema",
        "a",
        "fetch-rows",
        "/x",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6)
                .prop_map(|all| all.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

fn mutated(mut bytes: Vec<u8>, changes: &[(usize, u8)], cut: usize) -> Vec<u8> {
    for (at, byte) in changes {
        let at = at % bytes.len();
        bytes[at] = *byte;
    }
    bytes.truncate(bytes.len() - cut % bytes.len());
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/regressions/decoders.txt"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_bytes_are_no_trouble(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        decode_all(&bytes);
    }

    #[test]
    fn damaged_messages_are_no_trouble(
        which in 0usize..5,
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        cut in prop_oneof![Just(0usize), any::<usize>()],
    ) {
        let bytes = match which {
            0 => seal(&submit()).unwrap(),
            1 => entry().encode(&GENESIS).unwrap().0,
            2 => to_msgpack(&plan()).unwrap(),
            3 => tombstone().encode_tombstone(&digest()).unwrap().0,
            _ => envelope::reply(Err::<u32, _>(fault())),
        };
        decode_all(&mutated(bytes.to_vec(), &changes, cut));
    }

    #[test]
    fn records_with_damaged_bodies_are_kept_or_read(
        index in any::<usize>(),
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4),
    ) {
        // The frame is sound, so a body that can't be read is of a newer version.
        let (_, body) = records().swap_remove(index % records().len());
        let raw = mutated(to_msgpack(&body).unwrap().to_vec(), &changes, 0);
        let said = Said::Unknown { kind: body.kind().into(), raw };
        let records = vec![Record { n: 1, cause: "test".into(), said }];
        let written = Entry { records, ..entry() };
        let (bytes, _) = written.encode(&GENESIS).unwrap();
        let (read, _) = Entry::decode(&bytes, &GENESIS).unwrap();
        match &read.records[0].said {
            Said::Known(_) => {}
            Said::Unknown { .. } => prop_assert_eq!(&read, &written),
        }
    }

    #[test]
    fn plans_of_any_shape_are_no_trouble(value in any_json()) {
        let _ = plan::parse(&value);
        let steps = serde_json::json!({"steps": [value.clone()], "result": value});
        let _ = plan::parse(&steps);
    }
}
