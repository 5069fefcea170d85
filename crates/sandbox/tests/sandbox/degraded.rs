//! Machines that lack something. A helper without privileges stands for one without
//! control groups; the tests of that need root, to have something to give up.

use detent_sandbox::{
    Cause, Confine, Feature, KeeperCommand, KillSwitch, Policy, SandboxConfine, SandboxOptions,
    SpawnError,
};

use crate::support::{KEEPER, scratch, sh, text};

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("SKIP: needs root to give up being root");
    }
    root
}

async fn as_nobody(policy: Policy) -> Result<SandboxConfine, SpawnError> {
    let args = [
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "--",
        KEEPER,
    ];
    let options = SandboxOptions {
        helper: KeeperCommand {
            program: "/usr/bin/setpriv".into(),
            args: args.map(str::to_owned).to_vec(),
        },
        helpers: 1,
        policy,
        give_work: true,
        egress_log: None,
    };
    SandboxConfine::start(options).await
}

#[tokio::test]
async fn what_is_missing_refuses_with_feature_errno_and_remedy() {
    if !is_root() {
        return;
    }
    match as_nobody(scratch()).await.map(drop) {
        Err(SpawnError::FeatureMissing {
            feature,
            errno,
            remedy,
            ..
        }) => {
            assert_eq!(feature, Feature::CgroupMemory);
            assert_ne!(errno, 0);
            assert!(remedy.contains("Delegate="), "{remedy}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_may_be_missing_is_said_in_every_result() {
    if !is_root() {
        return;
    }
    let mut policy = scratch();
    policy.allow_degraded = vec![Feature::CgroupMemory, Feature::CgroupPids];
    let refused = as_nobody(policy.clone()).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("cgroup-cpu"), "{refused}");
    policy.allow_degraded.push(Feature::CgroupCpu);
    let confine = as_nobody(policy).await.unwrap();
    let missing = ["cgroup-cpu", "cgroup-memory", "cgroup-pids"];
    assert_eq!(confine.level().missing, missing);
    let exit = confine.run(sh("id -u"), KillSwitch::new()).await.unwrap();
    assert_eq!(
        (exit.cause, text(&exit.stdout).trim()),
        (Cause::Exited(0), "1000")
    );
    assert_eq!(exit.level.missing, missing);
}
