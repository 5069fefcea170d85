//! Configuration, registry and doctor.

use super::support::{Bed, NOTHING, ONE_STEP, finish, quickstart};

#[test]
fn show_names_each_value_with_its_source() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    bed.write(
        "detent.toml",
        "agents = [\"a.toml\"]\ntools = [\"tools.toml\"]\n[node]\nname = \"n7\"\n",
    );
    let mut command = bed.command(["config", "show", "-o", "json", "--set", "node.drain_ms=5"]);
    command.env("DETENT_STORE_SYNC", "false");
    let lines = finish(command).exits(0).lines();
    let of = |key: &str| {
        let line = lines.iter().find(|l| l["key"] == key).unwrap();
        (
            line["value"].as_str().unwrap(),
            line["source"].as_str().unwrap(),
        )
    };
    assert_eq!(of("node.name").0, "\"n7\"");
    assert!(of("node.name").1.ends_with("detent.toml:4:1"));
    assert_eq!(of("node.drain_ms"), ("5", "flag --set"));
    assert_eq!(of("store.sync"), ("false", "env DETENT_STORE_SYNC"));
    assert_eq!(of("audit.on").1, "default");
    assert!(lines.iter().any(|l| l["agent"] == "a"));

    let text = bed.detent(["config", "show"]).exits(0).stdout;
    assert!(
        text.contains("node.name") && text.contains("detent.toml:4:1"),
        "{text}"
    );
}

#[test]
fn validate_says_what_was_read() {
    let config = quickstart().join("detent.toml").display().to_string();
    let out = Bed::empty()
        .json(["config", "validate", "--config", &config])
        .exits(0);
    let last = out.last();
    assert_eq!((&last["valid"], &last["agents"]), (&true.into(), &1.into()));
}

#[test]
fn mistakes_are_said_with_file_line_and_column() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    for (text, at, says) in [
        ("agents = [\n\n[node]\n", "detent.toml:", ""),
        ("[node]\ndrian_ms = 5\n", "detent.toml:2:1", "node.drain_ms"),
        (
            "[node]\ndrain_ms = \"5\"\n",
            "detent.toml:2:1",
            "whole number",
        ),
        ("[nodes]\nx = 1\n", "detent.toml:1:2", "nodes"),
        ("agents = [\"gone.toml\"]\n", "gone.toml", "can't be read"),
        ("tools = [\"a.toml\"]\n", "a.toml:", "unknown field"),
    ] {
        bed.write("detent.toml", text);
        for command in [&["config", "validate"][..], &["run", "goal.json"], &["up"]] {
            let fault = bed.json(command).refused(3, "CONFIG_INVALID");
            let place = fault["at"].as_str().unwrap();
            assert!(place.contains(at), "{text:?}: {fault}");
            assert!(
                fault["message"].as_str().unwrap().contains(says),
                "{text:?}: {fault}"
            );
        }
    }
    let args = ["config", "validate", "--config", "gone.toml"];
    let fault = bed.json(args).refused(3, "CONFIG_INVALID");
    assert!(fault["at"].as_str().unwrap().contains("gone.toml"));
}

#[test]
fn an_environment_variable_with_a_wrong_value_is_named() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    for (name, value) in [
        ("DETENT_STORE_SYNC", "maybe"),
        ("DETENT_NODE_DRAIN_MS", "-1"),
    ] {
        let mut command = bed.command(["config", "validate", "-o", "json"]);
        command.env(name, value);
        let fault = finish(command).refused(3, "CONFIG_INVALID");
        assert_eq!(fault["at"], format!("env {name}"));
    }
    let mut command = bed.command(["doctor"]);
    command.env("DETENT_FAILPOINT", "no.such.place:1");
    let out = finish(command).exits(2);
    assert!(out.stderr.contains("no.such.place"), "{out:#?}");
}

#[test]
fn list_shows_tools_with_their_effects() {
    let config = quickstart().join("detent.toml").display().to_string();
    let bed = Bed::empty();
    let lines = bed
        .json(["tools", "list", "--config", &config])
        .exits(0)
        .lines();
    let once: Vec<_> = lines.iter().filter(|t| t["effect"] == "once").collect();
    assert_eq!(once.len(), 1);
    assert_eq!(once[0]["name"], "post_ledger");
    let text = bed
        .detent(["tools", "list", "--config", &config])
        .exits(0)
        .stdout;
    assert!(
        text.lines()
            .any(|l| l.starts_with("post_ledger") && l.contains(" once "))
    );
    let out = bed.detent(["tools", "lint", "--config", &config]).exits(0);
    assert!(
        out.stdout.is_empty() && out.stderr.contains(" 0 problems"),
        "{out:#?}"
    );
}

#[test]
fn lint_finds_what_a_goal_would_stumble_over() {
    let script = "[[tool]]\nname = \"t\"\neffect = \"read\"\nkind = \"process\"\nrun.command = [\"sh\", \"config:gone.sh\"]\n";
    let kind = NOTHING.replace("process", "proces");
    let ghost = ONE_STEP.replace("tool = \"t\"", "tool = \"ghost\"");
    for (tools, playbook, code, says) in [
        (script, ONE_STEP, "TOOL_UNAVAILABLE", "gone.sh"),
        (&kind, ONE_STEP, "CONFIG_INVALID", "proces"),
        (NOTHING, &ghost, "MODEL_HALLUCINATION", "ghost"),
    ] {
        let out = Bed::new(tools, playbook).json(["tools", "lint"]).exits(3);
        let found = out.last();
        assert_eq!(found["code"], code, "{out:#?}");
        assert!(found.to_string().contains(says), "{out:#?}");
        assert!(found["at"].as_str().unwrap().contains(".toml"), "{out:#?}");
    }
}

#[test]
fn a_probe_that_proves_nothing_is_refused_with_the_configuration() {
    let probe = "[tool.probe]\nprobe = \"file\"\nparams = { path = \"x\" }\nschema = { properties = { exists = { type = \"boolean\" } } }\n";
    let bed = Bed::new(&format!("{NOTHING}{probe}"), ONE_STEP);
    for command in [&["tools", "lint"][..], &["run", "goal.json"]] {
        let fault = bed.json(command).refused(3, "EXPECTATION_TRIVIAL");
        assert!(
            fault["at"].as_str().unwrap().contains("tools.t.probe"),
            "{fault}"
        );
    }
}

#[test]
fn the_doctor_tries_everything() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    bed.run_goal().exits(0);
    let lines = bed.json(["doctor"]).exits(0).lines();
    let names: Vec<_> = lines.iter().map(|l| l["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["config", "data directory", "journal", "sandbox", "tool t"]
    );
    let journal = lines[2]["found"].as_str().unwrap();
    assert!(journal.contains("every checksum holds"), "{journal}");
}

#[test]
fn the_doctor_names_a_damaged_store() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    bed.run_goal().exits(0);
    // Damage in one place is mended from another; a witness cut short can't be.
    let witness = bed.data("store/WITNESS");
    let bytes = std::fs::metadata(&witness).unwrap().len();
    let file = std::fs::File::options().write(true).open(&witness);
    file.unwrap().set_len(bytes - 4096).unwrap();
    let lines = bed.json(["doctor"]).exits(3).lines();
    assert_eq!(lines[2]["fault"]["code"], "JOURNAL_CORRUPT", "{lines:#?}");
    bed.json(["run", "goal.json"]).refused(6, "JOURNAL_CORRUPT");
    bed.json(["goals", "list"]).refused(6, "JOURNAL_CORRUPT");
}
