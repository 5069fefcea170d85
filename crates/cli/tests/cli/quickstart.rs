//! The quickstart: one goal from its file to a report that is right.

use super::support::{Bed, Out, finish, quickstart};
use serde_json::{Value, json};
use std::process::Command;

fn goal_file() -> String {
    quickstart().join("goal.json").display().to_string()
}

/// What `python3` prints for a query, without any of the quickstart's own code.
fn sqlite(database: &std::path::Path, query: &str) -> Value {
    let script = "import json, sqlite3, sys\n\
        rows = sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall()\n\
        print(json.dumps(rows))";
    let mut command = Command::new("python3");
    command.args(["-I", "-c", script]).arg(database).arg(query);
    serde_json::from_str(&finish(command).exits(0).stdout).unwrap()
}

/// The total of the goal's product and range, added up independently.
fn total_cents() -> i64 {
    // Units times price, not the column of totals that the tool adds up.
    let query = "SELECT sum(units * unit_cents) FROM sales WHERE product = 'widget' \
         AND sold_on BETWEEN '2026-01-01' AND '2026-03-31'";
    sqlite(&quickstart().join("data/sales.db"), query)[0][0]
        .as_i64()
        .unwrap()
}

fn check_world(bed: &Bed, goal: &str, result: &Value) {
    let total = total_cents();
    assert_eq!(result["status"], "succeeded", "{result}");
    assert_eq!(result["data"]["total_cents"], total);
    assert_eq!(result["data"]["targets_stale"], true);
    assert_eq!(result["evidence"].as_array().unwrap().len(), 5);

    let work = bed.data("work").join(goal);
    let report = std::fs::read_to_string(work.join("report.md")).unwrap();
    let (whole, cents) = (total / 100, total % 100);
    let digits: String = report.chars().filter(char::is_ascii_digit).collect();
    assert!(
        digits.contains(&format!("{whole}{cents:02}")),
        "no total in {report}"
    );
    assert!(
        report.contains("widget") && report.contains("stale"),
        "{report}"
    );
    let chart = std::fs::read_to_string(work.join("chart.svg")).unwrap();
    assert!(
        chart.contains("<svg") && chart.trim_end().ends_with("</svg>"),
        "{chart}"
    );

    let rows = sqlite(
        &bed.data("ledger.db"),
        "SELECT reference, total_cents FROM ledger",
    );
    assert_eq!(rows, json!([[goal, total]]));
}

#[test]
fn for_programs_every_line_is_json_and_the_last_is_the_result() {
    let bed = Bed::empty();
    let out = bed.json(["run", &goal_file()]).exits(0);
    let lines = out.lines();
    assert_eq!(lines[0]["type"], "accepted");
    let goal = lines[0]["goal"].as_str().unwrap();
    let events = &lines[1..lines.len() - 1];
    let numbers: Vec<_> = events
        .iter()
        .map(|l| l["event"]["n"].as_u64().unwrap())
        .collect();
    let gap_free: Vec<_> = (1..=events.len() as u64).collect();
    assert_eq!(numbers, gap_free);
    assert!(events.iter().any(|l| l["event"]["kind"] == "fell_back"));
    check_world(&bed, goal, &out.result());
}

/// The id in `goal ID: succeeded`.
fn goal_of(out: &Out) -> String {
    let line = out.stdout.lines().next().unwrap();
    let goal = line
        .strip_prefix("goal ")
        .and_then(|l| l.strip_suffix(": succeeded"));
    goal.unwrap_or_else(|| panic!("{out:#?}")).to_owned()
}

#[test]
fn for_people_events_go_to_stderr_and_the_result_to_stdout() {
    let bed = Bed::empty();
    let out = bed.detent(["run", &goal_file()]).exits(0);
    let goal = goal_of(&out);
    assert!(out.stdout.contains("\"total_cents\""), "{out:#?}");
    assert!(out.stdout.contains("second-best source"), "{out:#?}");
    assert!(!out.stdout.contains("PLANNING"), "{out:#?}");
    for told in [
        &format!("accepted {goal}"),
        "chart = draw_chart after sales, targets",
        "falling back to cached_targets",
        "ledger: 1.0 s (delay)",
        "ENDED",
    ] {
        assert!(out.stderr.contains(told), "{told}: {out:#?}");
    }
    // No bare Unix times, no endless lines.
    assert!(
        out.stderr.lines().all(|l| l.chars().count() < 220),
        "{out:#?}"
    );
    assert!(!out.stderr.contains("until 1"), "{out:#?}");
    let view = bed.show(&goal);
    check_world(&bed, &goal, &view["result"]);
}

#[test]
fn a_key_names_one_goal_for_ever() {
    let bed = Bed::empty();
    let first = bed.json(["run", &goal_file(), "--key", "order-1"]).exits(0);
    let again = bed.json(["run", &goal_file(), "--key", "order-1"]).exits(0);
    let (a, b) = (first.lines(), again.lines());
    assert_eq!(
        (&a[0]["duplicate"], &b[0]["duplicate"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(a[0]["goal"], b[0]["goal"]);
    // At once: accepted and the result, no event between.
    assert_eq!(b.len(), 2);
    assert_eq!(first.result(), again.result());
    let rows = sqlite(&bed.data("ledger.db"), "SELECT count(*) FROM ledger");
    assert_eq!(rows, json!([[1]]));

    let mut other: Value = serde_json::from_slice(&std::fs::read(goal_file()).unwrap()).unwrap();
    other["input"]["product"] = json!("gadget");
    bed.write("other.json", other.to_string());
    let config = quickstart().join("detent.toml").display().to_string();
    let args = ["run", "other.json", "--key", "order-1", "--config", &config];
    let fault = bed.json(args).refused(3, "IDEMPOTENCY_CONFLICT");
    assert_eq!(fault["at"], "/key");
}
