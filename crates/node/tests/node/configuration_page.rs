//! The reference page of the settings is the table of settings.
//!
//! `DETENT_UPDATE_DOCS=1 cargo test -p detent-node page` writes the table anew.

use detent_node::config::{KEYS, Key, Kind};
use std::fmt::Write as _;
use std::path::Path;

const BEGIN: &str = "<!-- generated: settings -->\n";
const END: &str = "<!-- end of the settings -->\n";

fn takes(key: &Key) -> (String, String) {
    match key.kind {
        Kind::Text { default: "" } => ("text".into(), "empty".into()),
        Kind::Text { default } => ("text".into(), format!("`{default}`")),
        Kind::Int { default, min, max } => (format!("{min} to {max}"), default.to_string()),
        Kind::Bool { default } => ("`true`, `false`".into(), format!("`{default}`")),
    }
}

fn table() -> String {
    let mut out = String::from(
        "\n| setting | takes | default | environment | what it is |\n|---|---|---|---|---|\n",
    );
    for key in KEYS {
        let (takes, default) = takes(key);
        let (path, env, doc) = (key.path, key.env_name(), key.doc);
        writeln!(out, "| `{path}` | {takes} | {default} | `{env}` | {doc} |").unwrap();
    }
    out.push('\n');
    out
}

#[test]
fn the_page_of_settings_is_the_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/config.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (head, rest) = text.split_once(BEGIN).expect("the page has its mark");
    let (is, tail) = rest.split_once(END).expect("the page has its end mark");
    if std::env::var_os("DETENT_UPDATE_DOCS").is_some() {
        let text = format!("{head}{BEGIN}{}{END}{tail}", table());
        std::fs::write(&file, text).unwrap();
        return;
    }
    assert_eq!(is, table(), "DETENT_UPDATE_DOCS=1 writes it anew");
}
