//! Tools that misbehave: each ends its goal with the code of what happened.

use super::support::{Bed, ONE_STEP, Out, finish, tool};

fn run(tools: &str) -> Out {
    Bed::new(tools, ONE_STEP).run_goal()
}

/// The fault of the one step.
#[track_caller]
fn step_fault(tools: &str, code: &str) -> String {
    let result = run(tools).failed(code);
    let step = &result["steps"][0];
    assert_eq!(step["step"], "s");
    assert_eq!(step["fault"]["code"], code, "{result}");
    step["fault"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn an_output_that_is_not_one_json_object_is_refused() {
    for (tools, says) in [
        (tool!("read", "echo hello"), "not print one JSON object"),
        (tool!("read", "echo '[1]'"), "not an object"),
        (tool!("read", "echo '{} {}'"), "not print one JSON object"),
        (tool!("read", "true"), "printed nothing"),
        (tool!("read", "printf '{\"a\": \"\\377\"}'"), "not UTF-8"),
    ] {
        let message = step_fault(tools, "TOOL_OUTPUT_INVALID");
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn an_endless_output_ends_at_its_bound() {
    let message = step_fault(tool!("read", "exec yes"), "RESPONSE_TOO_LARGE");
    assert!(message.contains("1048576"), "{message}");
    // Noise on stderr is nobody's output: the end of it is kept.
    let noisy = tool!(
        "read",
        "yes noise | head -c 5000000 >&2; echo last words >&2; exit 3"
    );
    let message = step_fault(noisy, "TOOL_FAILED");
    assert!(
        message.contains("exit code 3") && message.contains("last words"),
        "{message}"
    );
    assert!(message.len() < 4096, "{message}");
}

#[test]
fn a_tool_that_says_nothing_for_ever_is_killed() {
    let hangs = tool!("read", "sleep 600").replace("10_000", "1_000");
    let message = step_fault(&hangs, "TOOL_TIMEOUT");
    assert!(message.contains("1000 ms"), "{message}");
}

#[test]
fn a_tool_that_a_signal_ends_is_told_apart_from_one_that_fails() {
    let message = step_fault(tool!("read", "kill -SEGV $$"), "TOOL_CRASHED");
    assert!(message.contains("SIGSEGV"), "{message}");
    let message = step_fault(tool!("read", "echo why >&2; exit 7"), "TOOL_FAILED");
    assert!(message.contains("exit code 7: why"), "{message}");
}

#[test]
fn people_are_told_what_failed_and_what_to_do_next() {
    let bed = Bed::new(tool!("read", "echo why >&2; exit 7"), ONE_STEP);
    let out = bed.detent(["run", "goal.json"]).exits(1);
    assert!(
        out.stdout
            .contains(": failed\nTOOL_FAILED: it ended with exit code 7: why\n  s "),
        "{out:#?}"
    );
    assert!(
        out.stderr
            .contains("next: Its last words are in the message."),
        "{out:#?}"
    );
    assert!(
        out.stderr.contains("detent errors show TOOL_FAILED"),
        "{out:#?}"
    );
    // The plan is shown once, not with the result again.
    assert_eq!(out.stderr.matches(" = t\n").count(), 1, "{out:#?}");
    let page = bed
        .detent(["errors", "show", "tool_failed"])
        .exits(0)
        .stdout;
    assert!(page.starts_with("# TOOL_FAILED\n"), "{page}");
}

const PYTHON: &str = "[[tool]]\nname = \"t\"\neffect = \"read\"\nkind = \"process\"\nretry.attempts_max = 1\nrun.command = [\"python3\", \"-c\", \"print({})\"]\n";

fn without_python(bed: &Bed, args: &[&str]) -> Out {
    let mut command = bed.command(args);
    command
        .args(["-o", "json"])
        .env("PATH", bed.path("no-such-folder"));
    finish(command)
}

#[test]
fn a_missing_interpreter_is_named_with_what_to_install() {
    let bed = Bed::new(PYTHON, ONE_STEP);
    let result = without_python(&bed, &["run", "goal.json"]).failed("TOOL_UNAVAILABLE");
    let message = result["message"].as_str().unwrap();
    assert!(message.contains("install Python 3"), "{message}");
    // The doctor finds it before any goal does.
    let out = without_python(&bed, &["doctor"]).exits(3);
    let check = out
        .lines()
        .into_iter()
        .find(|c| c["name"] == "tool t")
        .unwrap();
    assert_eq!(check["fault"]["code"], "TOOL_UNAVAILABLE");
    // And so does the lint.
    let out = without_python(&bed, &["tools", "lint"]).exits(3);
    assert_eq!(out.last()["code"], "TOOL_UNAVAILABLE");
}

#[test]
fn a_fallback_takes_over_and_the_result_says_so() {
    let second = "[[tool]]\nname = \"second\"\neffect = \"read\"\nkind = \"process\"\nstale = true\nrun.command = [\"/bin/sh\", \"-c\", \"echo '{\\\"from\\\": 2}'\"]\n";
    let first = PYTHON.replace("effect", "fallback = \"second\"\neffect");
    let bed = Bed::new(&format!("{first}{second}"), ONE_STEP);
    let result = without_python(&bed, &["run", "goal.json"])
        .exits(0)
        .result();
    assert_eq!(result["stale"], true);
    assert_eq!(result["data"]["out"]["from"], 2);
}
