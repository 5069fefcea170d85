//! The book's pages about error codes are what the table of codes says.
//!
//! `DETENT_UPDATE_DOCS=1` writes them anew instead of comparing (`cargo xtask docs`).

use detent_protocol::Code;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/errors")
}

/// Each file of the folder with the text that it has to hold.
fn wanted() -> BTreeMap<String, String> {
    let page = |c: &Code| (format!("{c}.md"), c.page());
    let mut files: BTreeMap<_, _> = Code::ALL.iter().map(page).collect();
    files.insert("README.md".into(), index());
    files
}

fn index() -> String {
    let mut text = String::from(
        "# Error codes\n\n\
         Every way in which Detent says no. A code is public API: programs may match on it, \
         and it keeps its meaning. The sentence beside it is for people and may change. \
         `detent errors show CODE` prints the same page.\n\n\
         | code | what happened | retryable |\n|---|---|---|\n",
    );
    for code in Code::ALL {
        let retry = if code.retryable() { "yes" } else { "no" };
        text += &format!("| [{code}]({code}.md) | {} | {retry} |\n", code.what());
    }
    text
}

fn found() -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder()).into_iter().flatten();
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read_to_string(entry.path()).unwrap())
    };
    entries.map(read).collect()
}

fn write(files: &BTreeMap<String, String>) {
    fs::create_dir_all(folder()).unwrap();
    for stale in found().keys().filter(|name| !files.contains_key(*name)) {
        fs::remove_file(folder().join(stale)).unwrap();
    }
    for (name, text) in files {
        fs::write(folder().join(name), text).unwrap();
    }
}

#[test]
fn each_code_has_its_page_and_each_page_its_code() {
    let wanted = wanted();
    if std::env::var_os("DETENT_UPDATE_DOCS").is_some_and(|v| v == "1") {
        write(&wanted);
    }
    let found = found();
    let wrong = |name: &&String| wanted.get(*name) != found.get(*name);
    let wrong: Vec<_> = wanted.keys().chain(found.keys()).filter(wrong).collect();
    assert!(
        wrong.is_empty(),
        "not as the table of codes says: {wrong:?}; run `cargo xtask docs`"
    );
}
