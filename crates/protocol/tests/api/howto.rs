//! The examples of the how-to meet the schemas that they are examples of: a block is
//! marked with its form and the name of its schema, as in "json submit".

use crate::path;
use detent_protocol::schema::{check, json_of};
use serde_json::Value;
use std::collections::BTreeSet;

struct Block {
    form: String,
    shape: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut parts = page.split("\n```");
    parts.next();
    // Opening and closing fences take turns.
    while let Some(opened) = parts.next() {
        let (mark, text) = opened.split_once('\n').unwrap();
        let (form, shape) = mark.split_once(' ').unwrap_or((mark, ""));
        blocks.push(Block {
            form: form.into(),
            shape: shape.into(),
            text: text.into(),
        });
        parts.next().expect("a fence is not closed");
    }
    blocks
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.split_whitespace();
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

#[test]
fn examples_meet_their_schemas() {
    let page = std::fs::read_to_string(path("../../docs/how-to/publish-goals.md")).unwrap();
    let mut shapes = BTreeSet::new();
    let mut first: Option<Value> = None;
    for block in blocks(&page) {
        let payload = match block.form.as_str() {
            "json" => block.text.trim().as_bytes().to_vec(),
            "hex" => bytes(&block.text),
            other => panic!("a block of form {other:?}"),
        };
        check(&block.shape, &payload).unwrap_or_else(|f| panic!("{f}\n{}", block.text));
        let said = json_of(&payload).unwrap();
        if block.form == "hex" {
            assert_eq!(Some(&said), first.as_ref(), "both forms say the same");
        }
        first.get_or_insert(said);
        shapes.insert(block.shape);
    }
    let wanted = [
        "accepted",
        "answer",
        "asked",
        "control",
        "controlled",
        "query",
        "refused",
        "result",
        "submit",
    ];
    assert_eq!(
        shapes.iter().map(String::as_str).collect::<Vec<_>>(),
        wanted
    );
}
