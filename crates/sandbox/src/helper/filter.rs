//! The system calls that fail, as programs for the kernel: one for those that depend on
//! their arguments, and one for the others. It must not know why a policy denies a call.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::search::search;
use crate::error::SpawnError;
use crate::policy::{Policy, syscalls};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Flags of clone(2) that make namespaces.
const NEW_NAMESPACES: [libc::c_int; 8] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWTIME,
];

/// Input put into a terminal as if typed, and the console's own multiplexer.
const TERMINAL_COMMANDS: [u64; 2] = [libc::TIOCSTI, 0x541c];

/// The filters of a policy: the kernel applies all of them, and the strictest answer holds.
///
/// `inet` says whether sockets to the network may be made at all.
pub(super) fn filters(policy: &Policy, inet: bool) -> Result<Vec<BpfProgram>, SpawnError> {
    let by_argument = by_argument(policy, inet).map_err(|e| wrong(policy, &e))?;
    Ok(vec![
        compile(policy, by_argument, libc::EPERM)?,
        search(&by_number(policy)),
    ])
}

/// Calls that fail whatever their arguments are, with their error numbers.
fn by_number(policy: &Policy) -> BTreeMap<u32, i32> {
    let numbers = policy
        .denied_calls
        .iter()
        .filter_map(|name| syscalls::number(name));
    let numbers = numbers.filter_map(|number| u32::try_from(number).ok());
    let mut denied: BTreeMap<u32, i32> = numbers.map(|number| (number, libc::EPERM)).collect();
    // The C library falls back to clone, whose flags a filter can read.
    denied.extend(u32::try_from(libc::SYS_clone3).map(|clone3| (clone3, libc::ENOSYS)));
    denied
}

fn by_argument(policy: &Policy, inet: bool) -> Result<Rules, seccompiler::BackendError> {
    let mut rules = Rules::new();
    let bit = |flag: libc::c_int| {
        let flag = u64::from(flag.cast_unsigned());
        one(
            0,
            SeccompCmpArgLen::Qword,
            SeccompCmpOp::MaskedEq(flag),
            flag,
        )
    };
    let flags: Result<Vec<_>, _> = NEW_NAMESPACES.into_iter().map(bit).collect();
    rules.insert(libc::SYS_clone, flags?);
    // The kernel reads 32 bits of the command: whatever stands above must not matter.
    let command = |value| one(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    let commands: Result<Vec<_>, _> = TERMINAL_COMMANDS.into_iter().map(command).collect();
    rules.insert(libc::SYS_ioctl, commands?);
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        rules.insert(call, vec![other_families(policy, inet)?]);
    }
    Ok(rules)
}

/// Matches every address family that is not permitted.
fn other_families(policy: &Policy, inet: bool) -> Result<SeccompRule, seccompiler::BackendError> {
    let permitted = policy
        .socket_families
        .iter()
        .filter(|name| inet || *name == "unix");
    let mut conditions = Vec::new();
    for family in permitted.filter_map(|name| syscalls::socket_family(name)) {
        let differs = SeccompCmpOp::Ne;
        conditions.push(SeccompCondition::new(
            0,
            SeccompCmpArgLen::Dword,
            differs,
            family,
        )?);
    }
    if conditions.is_empty() {
        // All of them: a rule needs a condition, and this one always holds.
        let all = SeccompCmpOp::Ge;
        conditions.push(SeccompCondition::new(0, SeccompCmpArgLen::Dword, all, 0)?);
    }
    SeccompRule::new(conditions)
}

fn one(
    argument: u8,
    length: SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(
        argument, length, operator, value,
    )?])
}

/// A filter that lets everything pass but what `rules` match; calls of another
/// architecture end the process.
fn compile(policy: &Policy, rules: Rules, errno: i32) -> Result<BpfProgram, SpawnError> {
    let arch = if cfg!(target_arch = "x86_64") {
        TargetArch::x86_64
    } else {
        TargetArch::aarch64
    };
    let refusal = SeccompAction::Errno(errno.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch)
        .and_then(BpfProgram::try_from)
        .map_err(|error| wrong(policy, &error))
}

fn wrong(policy: &Policy, error: &dyn std::fmt::Display) -> SpawnError {
    SpawnError::Policy {
        policy: policy.name.clone(),
        reason: format!("its system calls cannot be compiled: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_compiles_within_the_kernel_s_bound() {
        for name in Policy::BUILTIN {
            let policy = Policy::builtin(name).unwrap();
            for inet in [false, true] {
                let lengths: Vec<_> = filters(&policy, inet)
                    .unwrap()
                    .iter()
                    .map(Vec::len)
                    .collect();
                assert!(lengths.iter().all(|n| *n > 0 && *n < 4096), "{lengths:?}");
            }
        }
    }
}
