//! The last steps of the program's process: giving up everything, in the order in which
//! it can be given up, then executing. It promises that nothing of the helper is left: no
//! descriptor, privilege, signal disposition or way back.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use super::init::{Plan, step};
use crate::clock::BootInstant;
use crate::egress::PROXY_PORT;
use crate::error::{SpawnError, Stage};
use crate::feature::Feature;
use crate::keeper::{candidates, find_program};
use crate::policy::Work;
use crate::sys;

/// Capabilities that a kernel can have.
const CAPABILITIES: u32 = 64;
/// How much sooner than the first process the program is killed for memory.
const OOM_SCORE: &str = "500";
/// The newest rules that are asked for; an older kernel does what it can of them.
const RULES: ABI = ABI::V6;

/// Becomes the program; returns why it could not.
pub(super) fn become_program(plan: &Plan<'_>) -> SpawnError {
    match prepare(plan) {
        Ok(mut command) => execute(plan, &mut command),
        Err(error) => error,
    }
}

fn prepare(plan: &Plan<'_>) -> Result<Command, SpawnError> {
    step("take the streams", streams(plan))?;
    step("start a session", rustix::process::setsid())?;
    step("enter the work directory", enter_work(plan))?;
    drop_privileges(plan)?;
    // The change of user made it unreadable, also to itself.
    let dumpable = DumpableBehavior::Dumpable;
    step(
        "be its own process",
        rustix::process::set_dumpable_behavior(dumpable),
    )?;
    // Left where /proc is missing: then the first process may be the one that is killed.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let command = command(plan)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    if plan.has(Feature::Landlock) {
        restrict(plan).map_err(|error| SpawnError::Setup {
            stage: format!("landlock: {error}"),
            errno: 0,
        })?;
    }
    step("limit resources", limits(plan))?;
    step("close descriptors", sys::close_on_exec_from(3))?;
    sys::default_signals();
    Ok(command)
}

fn streams(plan: &Plan<'_>) -> Result<(), Errno> {
    rustix::stdio::dup2_stdin(&plan.streams[0])?;
    rustix::stdio::dup2_stdout(&plan.streams[1])?;
    rustix::stdio::dup2_stderr(&plan.streams[2])
}

/// Where the program starts: in the sandbox's tree, or in the host's where there is none.
fn work_path<'a>(plan: &'a Plan<'_>) -> &'a Path {
    if plan.has(Feature::MountNamespace) {
        &plan.request.policy.files.work_at
    } else {
        &plan.request.spec.cwd
    }
}

fn enter_work(plan: &Plan<'_>) -> Result<(), Errno> {
    rustix::process::chdir(work_path(plan))
}

fn drop_privileges(plan: &Plan<'_>) -> Result<(), SpawnError> {
    let apart = plan.has(Feature::UserNamespace);
    if apart {
        for number in 0..CAPABILITIES {
            // Before the user changes, which takes away the right to do it.
            let one = CapabilitySet::from_bits_retain(1 << number);
            if rustix::thread::remove_capability_from_bounding_set(one).is_err() {
                break;
            }
        }
        let bits = CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
        step(
            "lock the secure bits",
            rustix::thread::set_capabilities_secure_bits(bits),
        )?;
        step("become the program's user", plan.ids.become_tool())?;
    }
    step(
        "clear ambient capabilities",
        rustix::thread::clear_ambient_capability_set(),
    )?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    step(
        "drop capabilities",
        rustix::thread::set_capabilities(None, none),
    )?;
    step(
        "refuse new privileges",
        rustix::thread::set_no_new_privs(true),
    )
}

fn command(plan: &Plan<'_>) -> Result<Command, SpawnError> {
    let spec = &plan.request.spec;
    let env = environment(plan);
    let path = env.get("PATH").copied();
    let program = find_program(
        &spec.program,
        candidates(&spec.program, path, work_path(plan)),
    )?;
    let mut command = Command::new(program);
    command
        .arg0(&spec.program)
        .args(&spec.args)
        .env_clear()
        .envs(env);
    Ok(command)
}

/// The specification's own entries win over the policy's, and the markers over all.
fn environment<'a>(plan: &'a Plan<'_>) -> BTreeMap<&'a str, &'a str> {
    const PROXY: &str = "http://127.0.0.1:3128";
    let policy = &plan.request.policy;
    let mut env: BTreeMap<&str, &str> = BTreeMap::new();
    env.extend(
        policy
            .environment
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str())),
    );
    if policy.has_network() {
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            env.insert(name, PROXY);
        }
        env.insert("NODE_USE_ENV_PROXY", "1");
    }
    env.extend(plan.request.spec.full_env());
    env
}

/// Rules about files and ports that hold whatever else fails.
fn restrict(plan: &Plan<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(RULES))?
        .handle_access(AccessNet::from_all(RULES))?
        .scope(Scope::from_all(RULES))?
        .create()?;
    let status = permit(plan, rules)?.restrict_self()?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err("the rules are not enforced".into());
    }
    Ok(())
}

fn permit(
    plan: &Plan<'_>,
    mut rules: RulesetCreated,
) -> Result<RulesetCreated, Box<dyn std::error::Error>> {
    let files = &plan.request.policy.files;
    let read = AccessFs::from_read(RULES);
    let change = AccessFs::from_all(RULES) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let mut permitted: Vec<(PathBuf, BitFlags<AccessFs>)> = Vec::new();
    if plan.has(Feature::MountNamespace) {
        // Only what the policy names is there, and mounted read-only.
        permitted.push(("/".into(), read));
    } else {
        permitted.extend(files.read_only.iter().map(|path| (path.clone(), read)));
        permitted.push(("/proc".into(), read));
        permitted.push(("/dev".into(), AccessFs::ReadDir.into()));
    }
    permitted.extend(
        files
            .devices
            .iter()
            .map(|name| (Path::new("/dev").join(name), device)),
    );
    permitted.push(("/dev/shm".into(), change));
    permitted.push(("/tmp".into(), change));
    let work = if files.work == Work::ReadOnly {
        read
    } else {
        change
    };
    permitted.push((work_path(plan).to_owned(), work));
    for (path, access) in permitted {
        // Absent ones cannot be reached either.
        let Ok(opened) = PathFd::new(&path) else {
            continue;
        };
        let access = if path.is_dir() {
            access
        } else {
            access & AccessFs::from_file(RULES)
        };
        rules = rules.add_rule(PathBeneath::new(opened, access))?;
    }
    if plan.request.policy.has_network() {
        rules = rules.add_rule(NetPort::new(PROXY_PORT, AccessNet::ConnectTcp))?;
    }
    Ok(rules)
}

fn limits(plan: &Plan<'_>) -> Result<(), Errno> {
    let policy = &plan.request.policy;
    let set = |resource, value: u64| {
        let both = Rlimit {
            current: Some(value),
            maximum: Some(value),
        };
        rustix::process::setrlimit(resource, both)
    };
    set(Resource::Nofile, policy.resources.open_files_max.into())?;
    set(Resource::Fsize, u64::from(policy.files.file_mib_max) << 20)?;
    set(Resource::Core, 0)?;
    set(Resource::Memlock, 64 * 1024)?;
    set(Resource::Msgqueue, 0)?;
    set(Resource::Nice, 0)?;
    set(Resource::Rtprio, 0)?;
    if !plan.has(Feature::CgroupPids) {
        // Of the user, not of the tree; better than nothing.
        set(Resource::Nproc, policy.resources.processes_max.into())?;
    }
    Ok(())
}

fn execute(plan: &Plan<'_>, command: &mut Command) -> SpawnError {
    if plan
        .request
        .spec
        .start_deadline
        .is_some_and(|last| BootInstant::now() >= last)
    {
        return SpawnError::StartDeadlinePassed;
    }
    if plan.has(Feature::Seccomp) {
        for filter in plan.filters {
            if let Err(error) = seccompiler::apply_filter(filter) {
                return SpawnError::Setup {
                    stage: format!("seccomp: {error}"),
                    errno: 0,
                };
            }
        }
    }
    let error = command.exec();
    let program = plan.request.spec.program.clone();
    match Errno::from_io_error(&error) {
        Some(Errno::ACCESS | Errno::PERM) => SpawnError::PermissionDenied { program },
        Some(Errno::NOENT) => SpawnError::NotFound { program },
        Some(errno) => SpawnError::os(Stage::Exec, errno),
        None => SpawnError::InvalidSpec {
            reason: format!("the program cannot be executed: {:?}", OsStr::new(&program)),
        },
    }
}
