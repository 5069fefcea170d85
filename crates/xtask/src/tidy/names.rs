//! Who may name what: crates and calls that belong to one room, and what the pure
//! code must do without.

use super::Violation;
use super::lex::{Path, Source, paths};

const RULE: &str = "names";

/// What a rule looks for.
enum Hit {
    /// A crate.
    Crate(&'static str),
    /// A part of a path anywhere in it.
    Part(&'static str),
    /// A path of the standard library, and what lies below it.
    Std(&'static [&'static str]),
}

impl Hit {
    fn is_in(&self, path: &Path) -> bool {
        let parts: Vec<&str> = path.parts.iter().map(String::as_str).collect();
        match self {
            Hit::Crate(name) => parts[0] == *name && (path.import || parts.len() > 1),
            Hit::Part(name) => parts.contains(name) && (path.import || parts.len() > 1),
            Hit::Std(wanted) => parts.starts_with(wanted) || brings_in(path, &parts, wanted),
        }
    }

    fn shown(&self) -> String {
        match self {
            Hit::Crate(name) | Hit::Part(name) => (*name).to_owned(),
            Hit::Std(parts) => parts.join("::"),
        }
    }
}

/// Does the import of a whole module or its glob make `wanted` reachable?
fn brings_in(path: &Path, parts: &[&str], wanted: &[&str]) -> bool {
    let glob = parts.last() == Some(&"*");
    let module = if glob {
        &parts[..parts.len() - 1]
    } else {
        parts
    };
    path.import && module.len() > usize::from(!glob) && wanted.starts_with(module)
}

struct Name {
    hit: Hit,
    /// Does the rule forbid the name in this file?
    forbidden: fn(&str) -> bool,
    todo: &'static str,
}

const NAMES: &[Name] = &[
    Name {
        hit: Hit::Crate("sled"),
        forbidden: |file| !file.starts_with("crates/store/"),
        todo: "use detent-store",
    },
    Name {
        hit: Hit::Crate("cgroups_rs"),
        forbidden: outside_sandbox,
        todo: CONFINE,
    },
    Name {
        hit: Hit::Crate("seccompiler"),
        forbidden: outside_sandbox,
        todo: CONFINE,
    },
    Name {
        hit: Hit::Crate("landlock"),
        forbidden: outside_sandbox,
        todo: CONFINE,
    },
    Name {
        hit: Hit::Part("unshare"),
        forbidden: outside_sandbox,
        todo: CONFINE,
    },
    Name {
        hit: Hit::Part("prctl"),
        forbidden: outside_sandbox,
        todo: CONFINE,
    },
    Name {
        hit: Hit::Crate("ractor"),
        forbidden: |file| !(is_shell(file) || is_test(file)),
        todo: "keep the actor in a module named shell, service or actor; the rest is plain code",
    },
    Name {
        hit: Hit::Crate("reqwest"),
        forbidden: |file| !file.starts_with("crates/connect/"),
        todo: "use detent-connect's http client",
    },
    Name {
        hit: Hit::Crate("rusqlite"),
        forbidden: |file| {
            !(file.starts_with("crates/connect/")
                || file.starts_with("chaos-tests/")
                || is_test(file))
        },
        todo: "use detent-connect's sql client; tests may look for themselves",
    },
    Name {
        hit: Hit::Crate("async_nats"),
        forbidden: |file| {
            !(file.starts_with("crates/bus/src/nats/")
                || file.starts_with("crates/bus/tests/nats_"))
        },
        todo: "use the traits of detent-bus",
    },
    Name {
        hit: Hit::Crate("ort"),
        forbidden: |file| !file.starts_with("crates/gpu-owner/"),
        todo: "ask the owner of the inference memory",
    },
    Name {
        hit: Hit::Crate("tokio"),
        forbidden: is_pure,
        todo: NO_RUNTIME,
    },
    Name {
        hit: Hit::Crate("ractor"),
        forbidden: is_pure,
        todo: NO_RUNTIME,
    },
    Name {
        hit: Hit::Crate("rand"),
        forbidden: is_pure,
        todo: "let what is random come in as a value",
    },
    Name {
        hit: Hit::Std(&["std", "time", "SystemTime"]),
        forbidden: is_pure,
        todo: NO_CLOCK,
    },
    Name {
        hit: Hit::Std(&["std", "time", "Instant"]),
        forbidden: is_pure,
        todo: NO_CLOCK,
    },
    Name {
        hit: Hit::Std(&["std", "fs"]),
        forbidden: is_pure,
        todo: NO_IO,
    },
    Name {
        hit: Hit::Std(&["std", "net"]),
        forbidden: is_pure,
        todo: NO_IO,
    },
];

const CONFINE: &str = "use detent-sandbox: confinement has one home";
const NO_RUNTIME: &str = "move it to the shell: this code is pure";
const NO_CLOCK: &str = "let the time come in as a value";
const NO_IO: &str = "do the input and output in the shell: this code is pure";

fn outside_sandbox(file: &str) -> bool {
    !file.starts_with("crates/sandbox/")
}

/// Code that may know an actor runtime: the actors' outer shells, the node that
/// supervises them, and the simulation that stands beside the node.
fn is_shell(file: &str) -> bool {
    let host = file.starts_with("crates/node/") || file.starts_with("crates/sim/");
    let shells = ["shell", "service", "actor"];
    let mut parts = file.split('/').map(|p| p.trim_end_matches(".rs"));
    host || parts.any(|p| shells.contains(&p))
}

fn is_test(file: &str) -> bool {
    file.split('/').any(|part| part == "tests")
}

/// Code without a runtime, a clock, a random source, a file or a socket.
fn is_pure(file: &str) -> bool {
    let in_room = |room: &str, modules: &[&str]| {
        let inside = file.strip_prefix(room);
        inside.is_some_and(|f| modules.iter().any(|m| f.starts_with(m)))
    };
    in_room("crates/protocol/src/", &[""])
        || in_room(
            "crates/orchestrator/src/",
            &["decide", "state", "view", "event", "command"],
        )
}

/// Checks one file.
pub(super) fn check(file: &str, source: &Source) -> Vec<Violation> {
    let rules: Vec<_> = NAMES.iter().filter(|n| (n.forbidden)(file)).collect();
    let mut found = Vec::new();
    for path in paths(&source.code) {
        for rule in rules.iter().filter(|r| r.hit.is_in(&path)) {
            let what = format!("names {} ({})", path.parts.join("::"), rule.hit.shown());
            found.push(Violation::new((file, path.line), RULE, what, rule.todo));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(file: &str, code: &str) -> bool {
        check(file, &Source::parse(code)).is_empty()
    }

    #[test]
    fn one_room_has_each_outside_crate() {
        for (name, home, elsewhere) in [
            ("sled", "crates/store/src/open.rs", "crates/bus/src/lib.rs"),
            (
                "landlock",
                "crates/sandbox/src/a.rs",
                "crates/node/src/a.rs",
            ),
            (
                "cgroups_rs",
                "crates/sandbox/src/a.rs",
                "crates/node/src/a.rs",
            ),
            (
                "seccompiler",
                "crates/sandbox/src/a.rs",
                "crates/node/src/a.rs",
            ),
            (
                "reqwest",
                "crates/connect/src/a.rs",
                "crates/reasoner/src/a.rs",
            ),
            (
                "rusqlite",
                "crates/connect/src/a.rs",
                "crates/observer/src/a.rs",
            ),
            (
                "async_nats",
                "crates/bus/src/nats/mod.rs",
                "crates/bus/src/local/mod.rs",
            ),
            (
                "async_nats",
                "crates/bus/tests/nats_inbox.rs",
                "crates/bus/tests/local.rs",
            ),
            (
                "async_nats",
                "crates/bus/src/nats/inbox/mod.rs",
                "crates/node/src/roles.rs",
            ),
            (
                "ort",
                "crates/gpu-owner/src/a.rs",
                "crates/reasoner/src/a.rs",
            ),
            (
                "ractor",
                "crates/observer/src/service.rs",
                "crates/observer/src/probe.rs",
            ),
            (
                "ractor",
                "crates/orchestrator/src/shell/goal.rs",
                "crates/cli/src/a.rs",
            ),
        ] {
            for code in [
                format!("use {name}::Thing;"),
                format!("fn f() {{ {name}::call(); }}"),
                format!("extern crate {name};"),
                format!("use {{std::io, {name}}};"),
            ] {
                assert!(kept(home, &code), "{home}: {code}");
                assert!(!kept(elsewhere, &code), "{elsewhere}: {code}");
            }
            // Words, comments and texts are no use of a crate.
            let words = format!("// {name}::x\nlet {name} = \"{name}::x\";");
            assert!(kept(elsewhere, &words), "{name}");
        }
        assert!(kept(
            "crates/node/tests/kill.rs",
            "use rusqlite::Connection;"
        ));
    }

    #[test]
    fn confinement_calls_have_one_home() {
        for code in ["libc::prctl(1);", "use rustix::thread::{unshare};"] {
            assert!(kept("crates/sandbox/src/tree.rs", code));
            assert!(
                !kept("crates/tool-executor/src/process/mod.rs", code),
                "{code}"
            );
        }
    }

    #[test]
    fn pure_code_has_no_runtime_clock_chance_or_io() {
        let pure = [
            "crates/protocol/src/plan.rs",
            "crates/orchestrator/src/decide/step.rs",
            "crates/orchestrator/src/state.rs",
            "crates/orchestrator/src/view.rs",
        ];
        let bad = [
            "use tokio::sync::mpsc;",
            "#[tokio::test]\nfn f() {}",
            "use std::time::{Duration, Instant};",
            "let t = std::time::SystemTime::now();",
            "use std::time;",
            "use std::time::*;",
            "use std::{fs, fmt};",
            "use std::*;",
            "std::net::TcpStream::connect(a);",
            "use rand::Rng;",
            "use ractor::Actor;",
        ];
        for file in pure {
            for code in bad {
                assert!(!kept(file, code), "{file}: {code}");
            }
            assert!(kept(file, "use std::time::Duration;\nuse std::fmt;"));
        }
        let shell = "crates/orchestrator/src/shell/carry.rs";
        assert!(bad.iter().all(|code| kept(shell, code)));
    }

    #[test]
    fn the_line_is_the_one_of_the_name() {
        let source = Source::parse("//! x\nuse std::{\n    fmt,\n    fs,\n};\n");
        let found = check("crates/protocol/src/a.rs", &source);
        assert_eq!((found.len(), found[0].line), (1, 4));
    }
}
