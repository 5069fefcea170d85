//! The system calls that fail, as programs for the kernel: one per action, because a
//! filter of the compiler has one action for what it matches. It must not know why a
//! policy denies a call.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

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

/// The filters of a policy, to be applied in this order.
///
/// `inet` says whether sockets to the network may be made at all.
pub(super) fn filters(policy: &Policy, inet: bool) -> Result<Vec<BpfProgram>, SpawnError> {
    let mut filters = vec![
        compile(
            policy,
            denied(policy, inet).map_err(|e| wrong(policy, &e))?,
            libc::EPERM,
        )?,
        // The C library falls back to clone, whose flags a filter can read.
        compile(
            policy,
            Rules::from([(libc::SYS_clone3, vec![])]),
            libc::ENOSYS,
        )?,
    ];
    if cfg!(target_arch = "x86_64") {
        filters.push(no_x32());
    }
    Ok(filters)
}

fn denied(policy: &Policy, inet: bool) -> Result<Rules, seccompiler::BackendError> {
    let mut rules = Rules::new();
    for name in &policy.denied_calls {
        if let Some(number) = syscalls::number(name) {
            rules.insert(number, vec![]);
        }
    }
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
    rules.entry(libc::SYS_clone).or_insert(flags?);
    // The kernel reads 32 bits of the command: whatever stands above must not matter.
    let command = |value| one(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    let commands: Result<Vec<_>, _> = TERMINAL_COMMANDS.into_iter().map(command).collect();
    rules.entry(libc::SYS_ioctl).or_insert(commands?);
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

/// Calls of the x32 table have bit 30 set, and so miss every number above; the compiler
/// has no condition on the number.
fn no_x32() -> BpfProgram {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_GE: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const X32: u32 = 0x4000_0000;
    let line = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let enosys = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    vec![
        line(LOAD_NUMBER, 0, 0, 0),
        line(JUMP_IF_GE, 0, 1, X32),
        line(RETURN, 0, 0, enosys),
        line(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
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
