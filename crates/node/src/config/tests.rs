//! Configuration: layers, sources, and what is said about mistakes.

use super::*;
use std::fs;

fn nothing(_: &str) -> Option<String> {
    None
}

fn load(text: &str) -> Result<Config, Fault> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("detent.toml");
    fs::write(&file, text).unwrap();
    let flags = Flags {
        file: Some(file),
        set: Vec::new(),
    };
    Config::load(&flags, &nothing)
}

#[test]
fn later_layers_win_and_sources_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("detent.toml");
    fs::write(
        &file,
        "[node]\nname = \"from-file\"\ndrain_ms = 5\nscan_every_ms = 200\n",
    )
    .unwrap();
    let flags = Flags {
        file: Some(file.clone()),
        set: vec!["node.scan_every_ms=300".into()],
    };
    let env = |name: &str| (name == "DETENT_NODE_DRAIN_MS").then(|| "7".to_owned());
    let config = Config::load(&flags, &env).unwrap();
    let source = |path| {
        config
            .shown()
            .into_iter()
            .find(|s| s.path == path)
            .unwrap()
            .source
    };
    assert_eq!(config.text("node.name"), "from-file");
    assert_eq!(
        source("node.name"),
        Source::File(format!("{}:2:1", file.display()))
    );
    assert_eq!(
        (config.int("node.drain_ms"), source("node.drain_ms")),
        (7, Source::Env("DETENT_NODE_DRAIN_MS".into()))
    );
    assert_eq!(
        (
            config.int("node.scan_every_ms"),
            source("node.scan_every_ms")
        ),
        (300, Source::Flag)
    );
    assert_eq!(source("store.sync"), Source::Default);
}

#[test]
fn mistakes_are_said_with_their_place() {
    for (text, at, says) in [
        ("[node]\nnmae = \"x\"\n", "detent.toml:2:1", "node.name"),
        ("[nod]\n", "detent.toml:1:2", "unknown field"),
        ("[node]\nname = 5\n", "detent.toml:2:1", "text in quotes"),
        (
            "[node]\ndrain_ms = -1\n",
            "detent.toml:2:1",
            "takes 0 to 3600000",
        ),
        ("[node]\nname = \n", "detent.toml:2:8", ""),
        (
            "agents = [\"missing.toml\"]\n",
            "missing.toml",
            "can't be read",
        ),
        (
            "[reasoners.m]\nkind = \"openai\"\nmodle = \"x\"\n",
            "detent.toml",
            "modle",
        ),
        ("[reasoners.m]\nkind = \"opnai\"\n", "detent.toml", "opnai"),
    ] {
        let fault = load(text).unwrap_err();
        assert_eq!(fault.code, Code::ConfigInvalid, "{text}");
        let place = fault.at.clone().unwrap_or_default();
        assert!(place.contains(at), "{text:?}: {fault}");
        assert!(fault.message.contains(says), "{text:?}: {fault}");
    }
}

#[test]
fn environment_and_flags_are_checked_too() {
    let env = |name: &str| (name == "DETENT_STORE_SYNC").then(|| "maybe".to_owned());
    let fault = Config::load(&Flags::default(), &env).unwrap_err();
    assert_eq!(fault.at.as_deref(), Some("env DETENT_STORE_SYNC"));
    for (set, says) in [
        ("node.nmae=x", "node.name"),
        ("node.name", "section.key=value"),
        ("node.drain_ms=x", "whole number"),
    ] {
        let flags = Flags {
            set: vec![set.into()],
            ..Flags::default()
        };
        let fault = Config::load(&flags, &nothing).unwrap_err();
        assert!(fault.message.contains(says), "{fault}");
    }
}

#[test]
fn agents_and_tools_are_checked_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write(
        "detent.toml",
        "agents = [\"a.toml\"]\ntools = [\"t.toml\"]\n",
    );
    let agent = "name = \"a\"\ntools = [\"look\"]\ninput_schema = {}\nresult_schema = {}\n[playbook]\nsteps = []\nresult = 1\n";
    let tool = "[[tool]]\nname = \"look\"\neffect = \"read\"\nkind = \"process\"\n";
    let load = || {
        let flags = Flags {
            file: Some(dir.path().join("detent.toml")),
            ..Flags::default()
        };
        Config::load(&flags, &nothing)
    };
    write("a.toml", agent);
    write("t.toml", tool);
    assert_eq!(load().unwrap().definitions.len(), 1);
    for (file, text, says) in [
        (
            "t.toml",
            format!("{tool}fallback = \"gone\"\n"),
            "no tool gone",
        ),
        ("t.toml", format!("{tool}{tool}"), "is defined in"),
        ("t.toml", tool.replace("read", "raed"), "raed"),
        ("t.toml", format!("{tool}tiemout_ms = 5\n"), "tiemout_ms"),
        ("a.toml", agent.replace("look", "lok"), "no tool lok"),
        (
            "a.toml",
            agent.replace("input_schema = {}", "input_schema = { type = 5 }"),
            "JSON Schema",
        ),
        (
            "a.toml",
            agent.replace("[playbook]\nsteps = []\nresult = 1\n", ""),
            "no [playbook]",
        ),
        (
            "a.toml",
            format!("reasoners = [\"big\"]\n{agent}"),
            "no planner \"big\"",
        ),
    ] {
        write("a.toml", agent);
        write("t.toml", tool);
        write(file, &text);
        let fault = load().unwrap_err();
        assert!(fault.message.contains(says), "{text}: {fault}");
    }
}
