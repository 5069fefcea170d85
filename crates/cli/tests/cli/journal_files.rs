//! Export and replay: a goal's journal as a file, and files that are none.

use super::support::{Bed, NOTHING, ONE_STEP, Up, eventually};
use serde_json::Value;

/// A bed with one goal that has ended, and its journal in `goal.detent`.
fn exported() -> (Bed, Value) {
    let bed = Bed::new(NOTHING, ONE_STEP);
    let out = bed.run_goal().exits(0);
    let goal = out.last()["goal"].as_str().unwrap().to_owned();
    let args = ["goals", "export", &goal, "--to", "goal.detent"];
    let told = bed.json(args).exits(0).last();
    assert!(told["entries"].as_u64().unwrap() > 2, "{told}");
    (bed, out.last())
}

#[test]
fn a_replay_ends_with_the_same_result() {
    let (bed, result) = exported();
    let out = bed.json(["replay", "goal.detent"]).exits(0);
    assert_eq!(out.last(), result);
    assert!(out.lines().iter().any(|l| l["type"] == "state"));
    let text = bed.detent(["replay", "goal.detent"]).exits(0).stdout;
    let goal = result["goal"].as_str().unwrap();
    assert!(text.contains(&format!("goal {goal}: succeeded")), "{text}");
    assert!(text.contains("EXECUTING, waits for tool of s"), "{text}");
}

#[test]
fn a_forgotten_goal_is_shown_followed_exported_and_replayed() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    let node = Up::start(&bed, &["retention.journal_ms=0"]);
    let submit = ["submit", "goal.json", "--wait", "--key", "k"];
    let result = bed.json(submit).exits(0).last();
    let goal = result["goal"].as_str().unwrap().to_owned();
    eventually("the goal to be forgotten", || {
        let line = bed.json(["goals", "list"]).exits(0).last();
        (line["archived"] == true).then_some(())
    });
    // The same from the node and, once it is stopped, from its data directory.
    let look = |file: &str| {
        let list = bed.detent(["goals", "list"]).exits(0).stdout;
        assert!(
            list.contains("succeeded") && list.contains("archived"),
            "{list}"
        );
        let text = bed.detent(["goals", "show", &goal]).exits(0).stdout;
        for told in ["state    succeeded", "archived: ", "evidence:"] {
            assert!(text.contains(told), "{told}: {text}");
        }
        let watched = bed.json(["goals", "watch", &goal]).exits(0);
        assert_eq!(watched.last(), result);
        let export = ["goals", "export", &goal, "--to", file];
        bed.json(export).exits(0);
        let replayed = bed.json(["replay", file]).exits(0);
        assert_eq!(replayed.last(), result);
        let events = |lines: Vec<Value>| -> Vec<Value> {
            lines.into_iter().filter(|l| l["type"] == "event").collect()
        };
        let (watched, replayed) = (events(watched.lines()), events(replayed.lines()));
        assert_eq!(watched, replayed);
        assert!(watched.len() > 5, "{watched:?}");
    };
    look("live.detent");
    assert_eq!(bed.json(submit).exits(0).last(), result);
    let metrics = node.page("/metrics").1;
    assert!(
        metrics.contains("detent_goals_forgotten_total 1"),
        "{metrics}"
    );
    node.stop();
    let audit = std::fs::read_to_string(bed.data("audit.log")).unwrap();
    assert!(audit.contains("\"event\":\"forget\""), "{audit}");
    look("offline.detent");
    let same = |name: &str| std::fs::read(bed.path(name)).unwrap();
    assert_eq!(same("live.detent"), same("offline.detent"));
}

#[test]
fn an_export_overwrites_nothing() {
    let (bed, result) = exported();
    let goal = result["goal"].as_str().unwrap();
    let args = ["goals", "export", goal, "--to", "goal.detent"];
    let fault = bed.json(args).refused(3, "INPUT_INVALID");
    assert!(
        fault["message"].as_str().unwrap().contains("exists"),
        "{fault}"
    );
}

#[test]
fn what_is_no_journal_or_a_damaged_one_is_said() {
    let (bed, _) = exported();
    let whole = std::fs::read(bed.path("goal.detent")).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 0x10;
    let mut longer = whole.clone();
    longer.extend([0xff; 6]);
    for (name, bytes) in [
        ("junk", &b"not a journal at all"[..]),
        ("empty", b""),
        ("head", b"DETENTJ1"),
        ("cut", &whole[..whole.len() - 7]),
        ("flipped", &flipped),
        ("longer", &longer),
    ] {
        bed.write(name, bytes);
        let fault = bed.json(["replay", name]).refused(6, "JOURNAL_CORRUPT");
        assert!(fault["at"].as_str().unwrap().contains(name), "{fault}");
    }
    bed.json(["replay", "gone"]).refused(3, "INPUT_INVALID");
    bed.json(["replay", "."]).refused(3, "INPUT_INVALID");
}

#[test]
fn every_flipped_byte_is_noticed() {
    let (bed, _) = exported();
    let whole = std::fs::read(bed.path("goal.detent")).unwrap();
    for i in (8..whole.len()).step_by(whole.len() / 12) {
        let mut flipped = whole.clone();
        flipped[i] ^= 1;
        bed.write("flipped", &flipped);
        bed.json(["replay", "flipped"])
            .refused(6, "JOURNAL_CORRUPT");
    }
}
