//! `docs/reference/api` is what the types say, and what was written meets it.
//!
//! `DETENT_UPDATE_DOCS=1` writes the files anew instead of comparing (`cargo xtask docs`).

mod asyncapi;
mod golden;
mod howto;
mod readme;
mod schemas;
mod structure;
mod subjects;

use detent_protocol::schema::{names, schema_of};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// A path below the folder of this package.
fn path(below: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(below)
}

fn folder() -> PathBuf {
    path("../../docs/reference/api")
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap() + "\n"
}

/// Each file of the folder with the text that it has to hold.
fn wanted() -> BTreeMap<String, String> {
    let file = |name| {
        let schema = schema_of(name).unwrap();
        (format!("schemas/{name}.json"), pretty(&schema))
    };
    let mut files: BTreeMap<_, _> = names().map(file).collect();
    files.insert("asyncapi.yaml".into(), asyncapi::text());
    files.insert("README.md".into(), readme::text());
    files
}

fn found() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for below in ["", "schemas/"] {
        for entry in fs::read_dir(folder().join(below)).into_iter().flatten() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_file() {
                let text = fs::read_to_string(entry.path()).unwrap();
                files.insert(format!("{below}{name}"), text);
            }
        }
    }
    files
}

fn write(files: &BTreeMap<String, String>) {
    fs::create_dir_all(folder().join("schemas")).unwrap();
    for stale in found().keys().filter(|name| !files.contains_key(*name)) {
        fs::remove_file(folder().join(stale)).unwrap();
    }
    for (name, text) in files {
        fs::write(folder().join(name), text).unwrap();
    }
}

#[test]
fn the_files_are_what_the_types_say() {
    let wanted = wanted();
    if std::env::var_os("DETENT_UPDATE_DOCS").is_some_and(|v| v == "1") {
        write(&wanted);
    }
    let found = found();
    let wrong = |name: &&String| wanted.get(*name) != found.get(*name);
    let wrong: Vec<_> = wanted.keys().chain(found.keys()).filter(wrong).collect();
    assert!(
        wrong.is_empty(),
        "not as the types and the golden messages say: {wrong:?}; run `cargo xtask docs`"
    );
}
