//! Bad input of every kind: a coded refusal with a next step and the documented exit
//! code; never a panic, never a hang.

use super::support::{Bed, NOTHING, ONE_STEP, Up, finish, quickstart};
use bytes::Bytes;
use detent_bus::Messages;
use detent_bus::local::socket::SocketClient;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

/// `detent run` of a goal for the quickstart's agent.
fn run_sales(goal: &str) -> super::support::Out {
    let bed = Bed::empty();
    let file = bed.write("goal.json", goal).display().to_string();
    let config = quickstart().join("detent.toml").display().to_string();
    bed.json(["run", &file, "--config", &config])
}

fn sales(input: &Value) -> String {
    json!({"agent": "sales-report", "input": input}).to_string()
}

#[test]
fn an_input_that_breaks_the_schema_is_refused_at_its_place() {
    let range = json!({"from": "2026-01-01", "to": "2026-03-31"});
    let wrong_date = json!({"from": "2026-02-30", "to": "2026-03-31"});
    for (input, at) in [
        (json!({"product": 5, "date_range": range}), "/input/product"),
        (json!({"product": "widget"}), "/input"),
        (
            json!({"product": "widget", "date_range": range, "x": 1}),
            "/input",
        ),
        (
            json!({"product": "widget", "date_range": wrong_date}),
            "/input/date_range/from",
        ),
    ] {
        let fault = run_sales(&sales(&input)).refused(3, "INPUT_INVALID");
        let place = fault["at"].as_str().unwrap();
        assert!(place.starts_with(at), "{input}: {fault}");
    }
}

#[test]
fn what_is_no_goal_is_refused_with_line_and_column() {
    let fault = run_sales("{\n  \"agent\": oops\n}").refused(3, "INPUT_INVALID");
    let at = fault["at"].as_str().unwrap();
    assert!(at.contains("goal.json:2:"), "{fault}");
    for goal in [
        "",
        "[1, 2]",
        "\u{0}\u{1}",
        r#"{"agent": "sales-report"}"#,
        r#"{"agent": "a b", "input": {}}"#,
    ] {
        run_sales(goal).refused(3, "INPUT_INVALID");
    }
    let misspelt = r#"{"agent": "sales-report", "inptu": {}}"#;
    let fault = run_sales(misspelt).refused(3, "INPUT_INVALID");
    assert!(
        fault["message"].as_str().unwrap().contains("inptu"),
        "{fault}"
    );
}

#[test]
fn an_unknown_agent_is_refused_with_the_known_ones() {
    let fault = run_sales(r#"{"agent": "sale-report", "input": {}}"#).refused(3, "AGENT_UNKNOWN");
    assert!(
        fault["message"].as_str().unwrap().contains("sales-report"),
        "{fault}"
    );
}

#[test]
fn a_goal_of_two_mebibytes_is_refused_unread() {
    let text = "x".repeat(2 << 20);
    run_sales(&sales(&json!({"product": text}))).refused(3, "INPUT_TOO_LARGE");
}

#[test]
fn a_goal_that_is_not_there_is_refused() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    bed.json(["run", "gone.json"]).refused(3, "INPUT_INVALID");
    bed.json(["run", "."]).refused(3, "INPUT_INVALID");
}

#[test]
fn a_goal_is_taken_from_stdin() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    let mut command = bed.command(["run", "-", "-o", "json"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(br#"{"agent": "a", "input": {}}"#)
        .unwrap();
    assert_eq!(super::support::wait(child).code(), Some(0));
}

/// Playbooks that can't be carried out: the goal ends at once, with the code of what is
/// wrong and its place.
#[test]
fn a_playbook_that_makes_no_sound_plan_ends_the_goal() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    let step = |more: &str| {
        format!(
            "[[playbook.steps]]\nid = \"s\"\ntool = \"t\"\n{more}\n[playbook.result]\nout = {{ \"$step\" = \"s\" }}\n"
        )
    };
    let trivial =
        "[[playbook.steps.expect]]\nprobe = \"file\"\nparams = { path = \"x\" }\nschema = {}\n";
    for (playbook, code, says) in [
        (
            step("").replace("tool = \"t\"", "tool = \"ghost\""),
            "MODEL_HALLUCINATION",
            "ghost",
        ),
        (
            format!(
                "{}[[playbook.steps]]\nid = \"b\"\ntool = \"t\"\nafter = [\"s\"]\n",
                step("after = [\"b\"]")
            ),
            "PLAN_INVALID",
            "wait for one another",
        ),
        (
            step("args = { x = { \"$step\" = \"nobody\" } }"),
            "PLAN_INVALID",
            "nobody",
        ),
        (
            step("at = \"2026-12-24T18:00:00Z\""),
            "PLAN_INVALID",
            "delay_seconds",
        ),
        (step("delay_seconds = -5"), "PLAN_INVALID", "delay_seconds"),
        (step(trivial), "EXPECTATION_TRIVIAL", "nothing is there"),
    ] {
        bed.agent(&playbook);
        let out = bed.run_goal();
        let said = out.stdout.clone();
        out.failed(code);
        assert!(said.contains(says), "{says}: {said}");
        assert!(!said.contains("\"intended\""), "a tool ran: {said}");
    }
}

#[test]
fn an_answer_that_is_no_goal_id_is_a_mistake_of_usage() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    for args in [
        &["goals", "show", "no-id"][..],
        &["goals", "list", "--limit", "0"],
        &["frobnicate"],
        &["run"],
        &["-o", "yaml", "doctor"],
    ] {
        let out = bed.detent(args).exits(2);
        assert!(out.stderr.contains("--help"), "{out:#?}");
    }
    let fault = bed
        .json(["errors", "show", "NOPE"])
        .refused(3, "INPUT_INVALID");
    assert!(fault["message"].as_str().unwrap().contains("errors list"));
}

#[test]
fn a_reader_that_goes_away_does_not_stop_the_work() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    let mut command = bed.command(["run", "goal.json", "-o", "json"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut one = [0];
    child.stdout.take().unwrap().read_exact(&mut one).unwrap();
    let mut stderr = child.stderr.take().unwrap();
    assert_eq!(super::support::wait(child).code(), Some(0));
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(bed.json(["goals", "list"]).last()["status"], "succeeded");

    // Nobody at all: neither stdout nor stderr.
    let mut command = bed.command(["errors", "list"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(super::support::wait(child).code(), Some(0));
}

/// Writes straight to the node's socket.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_msgpack_is_refused_and_the_node_goes_on() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    let node = Up::start(&bed, &[]);
    let socket = bed.data("detent.sock");
    let client = SocketClient::connect(&socket).await.unwrap();
    let ask = |subject: &'static str, junk: &'static [u8]| {
        let (client, wait) = (&client, Duration::from_secs(60));
        async move {
            client
                .request(subject, Bytes::from_static(junk), wait)
                .await
        }
    };
    for junk in [
        &b""[..],
        b"\xc1\xff\xff",
        b"{\"agent\": \"a\"}",
        &[0x91; 4096],
    ] {
        for subject in ["detent.default.submit.a", "detent.default.query"] {
            let answer = ask(subject, junk).await.unwrap();
            let text = String::from_utf8_lossy(&answer);
            assert!(text.contains("INPUT_INVALID"), "{subject}: {text}");
        }
    }
    // Not for everybody's ears.
    ask("detent.executor.local", b"\x80").await.unwrap_err();

    // Not even frames.
    for junk in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 64],
        &[0, 0, 0, 4, 1, 2, 3, 4],
    ] {
        let mut raw = UnixStream::connect(&socket).unwrap();
        raw.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        raw.write_all(junk).unwrap();
        let mut last_word = Vec::new();
        // Cut off, with or without a last word.
        let _ = raw.read_to_end(&mut last_word);
    }
    bed.json(["submit", "goal.json", "--wait"]).exits(0);
    node.stop();
}

#[test]
fn a_port_that_is_taken_is_said() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("node.http_listen={}", held.local_addr().unwrap());
    let fault = bed.json(["up", "--set", &listen]).refused(4, "PORT_TAKEN");
    assert_eq!(fault["at"], "node.http_listen");
    let fault = bed
        .json(["up", "--set", "node.http_listen=nonsense"])
        .refused(3, "CONFIG_INVALID");
    assert_eq!(fault["at"], "node.http_listen");
}

#[test]
fn two_nodes_do_not_share_a_data_directory() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    let node = Up::start(&bed, &[]);
    let up = ["up", "--set", "node.http_listen="];
    bed.json(up).refused(4, "DATA_DIR_LOCKED");
    bed.json(["run", "goal.json"]).refused(4, "DATA_DIR_LOCKED");
    // The first one does not mind.
    bed.json(["submit", "goal.json", "--wait"]).exits(0);
    node.stop();
}

#[test]
fn a_data_directory_that_can_not_be_one_is_refused() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    let file = bed.write("data", "a file").display().to_string();
    let fault = bed.json(["run", "goal.json"]).refused(3, "CONFIG_INVALID");
    assert!(
        fault["message"].as_str().unwrap().contains("--data"),
        "{fault}"
    );
    assert_eq!(fault["at"], file);
    for command in [&["run", "goal.json"][..], &["up"], &["goals", "list"]] {
        let mut command = bed.command(command);
        // Nothing can be made there, not even by a superuser.
        command.args(["-o", "json", "--data", "/proc/self/detent"]);
        let out = finish(command);
        let code = out.status.code();
        assert!(matches!(code, Some(3 | 4)), "{out:#?}");
        assert_eq!(out.last()["type"], "fault");
    }
}

#[test]
fn without_a_node_submit_says_how_to_start_one() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    let out = bed.detent(["submit", "goal.json"]).exits(4);
    assert!(out.stderr.contains("NODE_UNREACHABLE"), "{out:#?}");
    assert!(out.stderr.contains("detent up"), "{out:#?}");
    bed.json(["goals", "list"]).refused(4, "NODE_UNREACHABLE");
}
