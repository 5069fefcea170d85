//! Real programs under a real keeper.

use crate::support::{Place, confine};
use detent_observer::probes::{ProcessProbe, ProcessProbeOptions};
use detent_protocol::expect::nothing_there;
use serde_json::{Value, json};
use std::sync::Arc;

fn probe() -> ProcessProbe {
    let owner = format!("probe-test-{}", std::process::id());
    ProcessProbe::new(Arc::new(confine()), ProcessProbeOptions::new(owner))
}

fn python(place: &Place, script: &str) -> Value {
    std::fs::write(place.config_dir().join("look.py"), script).unwrap();
    json!({"command": ["python3", "-I", "-S", "config:look.py"]})
}

#[tokio::test]
async fn a_program_gets_its_input_and_directories_and_its_output_is_seen() {
    let place = Place::new();
    let mut params = python(
        &place,
        "import json, os, sys\n\
         ask = json.load(sys.stdin)\n\
         names = sorted(n for n in os.environ if not n.startswith(('DETENT_RUN', 'LC_')))\n\
         print(json.dumps({'ask': ask, 'names': names, 'cwd': os.getcwd(),\n\
             'config': os.environ['DETENT_CONFIG_DIR'], 'data': os.environ['DETENT_DATA_DIR']}))",
    );
    params["input"] = json!({"order": 7});
    // Its directory is made where no tool has made it yet.
    std::fs::remove_dir(place.work_dir()).unwrap();
    let look = place.look(&probe(), params).await;
    assert_eq!(look.doubt, None);
    assert_eq!(
        look.seen,
        json!({"exit_code": 0, "output": {
            "ask": {"order": 7},
            "names": ["DETENT_CONFIG_DIR", "DETENT_DATA_DIR", "PATH"],
            "cwd": place.work_dir().to_str().unwrap(),
            "config": place.config_dir().to_str().unwrap(),
            "data": place.data_dir().to_str().unwrap(),
        }})
    );
    assert_eq!(look.what, "python3 -I -S config:look.py");
}

#[tokio::test]
async fn a_failing_program_is_seen_but_proves_nothing() {
    let place = Place::new();
    let params = python(&place, "import sys; sys.exit('the shop is closed')");
    let look = place.look(&probe(), params).await;
    assert!(
        nothing_there("process").contains(&look.seen),
        "{}",
        look.seen
    );
    let doubt = look.doubt.unwrap().message;
    assert!(
        doubt.contains("status 1") && doubt.contains("shop is closed"),
        "{doubt}"
    );
}

#[tokio::test]
async fn output_that_is_not_json_is_null_and_doubtful_unless_there_is_none() {
    let place = Place::new();
    for (script, doubtful) in [("print('hello')", true), ("pass", false)] {
        let look = place.look(&probe(), python(&place, script)).await;
        assert_eq!(look.seen, json!({"exit_code": 0, "output": null}));
        assert_eq!(look.doubt.is_some(), doubtful, "{script}");
    }
}

#[tokio::test]
async fn a_program_that_cant_finish_is_no_look() {
    let place = Place::new();
    for (params, timeout_ms, why) in [
        (json!({"command": ["no-such-program"]}), 60_000, "not found"),
        (json!({"command": ["config:none.py"]}), 60_000, "not found"),
        (
            json!({"command": ["sh", "-c", "sleep 600"]}),
            300,
            "did not end within 300 ms",
        ),
        (
            json!({"command": ["sh", "-c", "kill -9 $$"]}),
            60_000,
            "signal 9",
        ),
        (
            json!({"command": ["sh", "-c", "yes"]}),
            60_000,
            "printed more than",
        ),
        (json!({"command": []}), 60_000, "empty"),
        (json!({"command": "ls"}), 60_000, "unusable parameters"),
        (
            json!({"command": ["sh", "config:../x"]}),
            60_000,
            "stay below its base",
        ),
    ] {
        let fault = place.fail(&probe(), params.clone(), timeout_ms).await;
        assert!(fault.message.contains(why), "{params}: {fault}");
    }
}
