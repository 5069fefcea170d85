//! Real files, and what only looks like one.

use crate::support::Place;
use detent_observer::probes::FileProbe;
use detent_protocol::expect::nothing_there;
use detent_protocol::json::Digest;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

async fn see(place: &Place, params: Value) -> Value {
    let mut seen = place.look(&FileProbe::new(), params).await.seen;
    if seen["exists"] == true {
        let modified = seen.as_object_mut().unwrap().remove("modified_ms").unwrap();
        assert!(modified.as_u64().unwrap() > 1_600_000_000_000, "{modified}");
    }
    seen
}

#[tokio::test]
async fn a_file_has_size_and_hash_and_content_if_asked() {
    let place = Place::new();
    let content = "{\"rows\": [1, 2]}\n";
    let path = place.write("report.json", content);
    let sha256 = Digest::of_bytes(content.as_bytes()).to_string();
    let plain = json!({"exists": true, "bytes": 17, "sha256": sha256});
    assert_eq!(see(&place, json!({"path": "report.json"})).await, plain);
    for (parse, key, value) in [
        ("text", "text", json!(content)),
        ("json", "json", json!({"rows": [1, 2]})),
    ] {
        let mut whole = plain.clone();
        whole[key] = value;
        for path in ["report.json", "work:report.json", path.to_str().unwrap()] {
            let params = json!({"path": path, "parse": parse});
            assert_eq!(see(&place, params).await, whole);
        }
    }
}

#[tokio::test]
async fn nothing_there_is_exactly_the_form_by_which_expectations_are_checked() {
    let place = Place::new();
    place.write("file", "");
    std::os::unix::fs::symlink("/nowhere/at/all", place.work_dir().join("dangling")).unwrap();
    for path in [
        "none.txt",
        "no/such/dir/none.txt",
        "file/below",
        "dangling",
        "/nowhere/at/all",
        "config:none",
        "data:none",
    ] {
        let seen = see(&place, json!({"path": path, "parse": "json"})).await;
        assert_eq!(vec![seen], nothing_there("file"), "{path}");
    }
    // A goal whose first tool has not run yet has no directory.
    std::fs::remove_dir_all(place.work_dir()).unwrap();
    let seen = see(&place, json!({"path": "none.txt"})).await;
    assert_eq!(vec![seen], nothing_there("file"));
}

#[tokio::test]
async fn a_base_that_is_gone_proves_nothing() {
    let place = Place::new();
    std::fs::remove_dir_all(place.root().join("work")).unwrap();
    std::fs::remove_dir_all(place.data_dir()).unwrap();
    for path in ["none.txt", "data:none.txt"] {
        let fault = place.fail(&FileProbe, json!({"path": path}), 60_000).await;
        assert!(fault.message.contains("is not there"), "{fault}");
    }
}

#[tokio::test]
async fn an_empty_file_exists() {
    let place = Place::new();
    place.write("empty", "");
    let plain = json!({"exists": true, "bytes": 0, "sha256": EMPTY_SHA256});
    assert_eq!(see(&place, json!({"path": "empty"})).await, plain);
    let text = see(&place, json!({"path": "empty", "parse": "text"})).await;
    assert_eq!(text["text"], "");
    let json = see(&place, json!({"path": "empty", "parse": "json"})).await;
    assert_eq!(json["json"], Value::Null);
    assert_eq!(json["unparsed"], "not JSON at line 1 column 0");
}

#[tokio::test]
async fn what_cant_be_parsed_says_why_and_keeps_its_hash() {
    let place = Place::new();
    for (content, parse, why) in [
        (&b"abc\xff\xfe"[..], "text", "not UTF-8 at byte 3"),
        (b"abc\xff\xfe", "json", "not JSON at line 1 column 1"),
        (b"{\"half\": [1, 2", "json", "not JSON at line 1 column 14"),
        (b"{} {}", "json", "not JSON at line 1 column 4"),
        (b"123456789", "text", "larger than 8 bytes"),
        (b"123456789", "json", "larger than 8 bytes"),
    ] {
        place.write("f", content);
        let bytes_max = if why.starts_with("larger") { 8 } else { 100 };
        let params = json!({"path": "f", "parse": parse, "bytes_max": bytes_max});
        let seen = see(&place, params).await;
        assert_eq!(seen["unparsed"], why);
        assert_eq!(seen["sha256"], Digest::of_bytes(content).to_string());
        assert!(seen.get(parse).is_none(), "{seen}");
    }
    place.write("f", "12345678");
    let exact = json!({"path": "f", "parse": "text", "bytes_max": 8});
    assert_eq!(see(&place, exact).await["text"], "12345678");
}

#[tokio::test]
async fn a_big_file_is_hashed_whole() {
    let place = Place::new();
    let content: Vec<u8> = (0..20_000_000_u32).map(|i| (i % 251) as u8).collect();
    place.write("big", &content);
    let seen = see(&place, json!({"path": "big", "parse": "text"})).await;
    let expected = json!({
        "exists": true,
        "bytes": 20_000_000,
        "sha256": Digest::of_bytes(&content).to_string(),
        "unparsed": "larger than 1048576 bytes",
    });
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn what_is_no_regular_file_is_refused_and_never_waited_for() {
    let place = Place::new();
    let fifo = place.work_dir().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    std::os::unix::fs::symlink("fifo", place.work_dir().join("to-fifo")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.work_dir().join("socket")).unwrap();
    for (path, kind) in [
        ("fifo", "a named pipe"),
        ("to-fifo", "a named pipe"),
        ("socket", "a socket"),
        (".", "a directory"),
        ("/dev/zero", "a device"),
        ("/dev/tty", "a device"),
    ] {
        let fault = place.fail(&FileProbe, json!({"path": path}), 60_000).await;
        assert!(fault.message.contains(kind), "{path}: {fault}");
    }
}

#[tokio::test]
async fn a_link_is_followed_and_told() {
    let place = Place::new();
    place.write("aim", "x");
    std::os::unix::fs::symlink("aim", place.work_dir().join("link")).unwrap();
    let look = place
        .look(&FileProbe, json!({"path": "link", "parse": "text"}))
        .await;
    assert_eq!(look.seen["symlink"], true);
    assert_eq!(look.seen["text"], "x");
    assert!(look.what.ends_with("link -> aim"), "{}", look.what);
    std::os::unix::fs::symlink("loop", place.work_dir().join("loop")).unwrap();
    place
        .fail(&FileProbe, json!({"path": "loop"}), 60_000)
        .await;
}

#[tokio::test]
async fn reading_ends_with_the_time_for_it() {
    let place = Place::new();
    // A hole of a terabyte: no disk is needed for it, but reading it takes minutes.
    let path = place.write("huge", "");
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(1 << 40).unwrap();
    let fault = place.fail(&FileProbe, json!({"path": "huge"}), 200).await;
    assert!(fault.message.contains("200 ms"), "{fault}");
}

#[tokio::test]
async fn unusable_parameters_are_refused() {
    let place = Place::new();
    for params in [
        json!({}),
        json!(null),
        json!({"path": 7}),
        json!({"path": "a", "parse": "xml"}),
        json!({"path": "a", "pares": "text"}),
        json!({"path": "a", "bytes_max": 1_u64 << 40}),
        json!({"path": "../a"}),
    ] {
        let fault = place.fail(&FileProbe, params.clone(), 60_000).await;
        assert!(
            fault.at.is_some_and(|at| at.starts_with("/params")),
            "{params}"
        );
    }
}
