//! The filter for calls that are denied whatever their arguments are: a search by halves.
//!
//! The compiler makes a chain that looks at each denied number in turn, and the kernel walks
//! it once for every call there is when the filter is installed: a millisecond of each run
//! for a hundred numbers. It must not know why a call is denied.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, sock_filter};

const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_GE: u16 = 0x35;
const RETURN: u16 = 0x06;
/// Where the kernel puts what a filter looks at.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// From here on the numbers of the x32 table, which miss every number of the own one.
const X32: u32 = 0x4000_0000;

/// A filter that fails calls with these error numbers, lets others pass, fails all of the
/// x32 table with ENOSYS, and ends the process at a call of another architecture.
pub(super) fn search(denied: &BTreeMap<u32, i32>) -> BpfProgram {
    let mut program = vec![
        line(LOAD, 0, 0, ARCHITECTURE),
        line(JUMP_IF_EQUAL, 1, 0, architecture()),
        line(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        line(LOAD, 0, 0, NUMBER),
    ];
    if cfg!(target_arch = "x86_64") {
        program.push(line(JUMP_IF_GE, 0, 1, X32));
        program.push(fail(libc::ENOSYS));
    }
    let sorted: Vec<(u32, i32)> = denied
        .iter()
        .map(|(number, errno)| (*number, *errno))
        .collect();
    program.extend(halves(&sorted));
    program
}

fn halves(sorted: &[(u32, i32)]) -> BpfProgram {
    match sorted {
        [] => vec![line(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW)],
        [(number, errno)] => vec![
            line(JUMP_IF_EQUAL, 0, 1, *number),
            fail(*errno),
            line(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        ],
        _ => {
            let (low, high) = sorted.split_at(sorted.len() / 2);
            let (low, first_high) = (halves(low), high[0].0);
            // A conditional jump reaches 255 lines, this one any.
            let over = u32::try_from(low.len()).unwrap_or(u32::MAX);
            let mut program = vec![line(JUMP_IF_GE, 0, 1, first_high), line(JUMP, 0, 0, over)];
            program.extend(low);
            program.extend(halves(high));
            program
        }
    }
}

fn architecture() -> u32 {
    const X86_64: u32 = 0xc000_003e;
    const AARCH64: u32 = 0xc000_00b7;
    if cfg!(target_arch = "x86_64") {
        X86_64
    } else {
        AARCH64
    }
}

fn fail(errno: i32) -> sock_filter {
    line(
        RETURN,
        0,
        0,
        libc::SECCOMP_RET_ERRNO | errno.cast_unsigned(),
    )
}

fn line(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would return, and after how many lines.
    fn judge(program: &[sock_filter], architecture: u32, number: u32) -> (u32, usize) {
        let (mut at, mut loaded, mut steps) = (0, 0, 0);
        loop {
            let now = &program[at];
            steps += 1;
            at += 1;
            let jump = |taken: bool| usize::from(if taken { now.jt } else { now.jf });
            match now.code {
                LOAD if now.k == NUMBER => loaded = number,
                LOAD => loaded = architecture,
                JUMP => at += now.k as usize,
                JUMP_IF_EQUAL => at += jump(loaded == now.k),
                JUMP_IF_GE => at += jump(loaded >= now.k),
                RETURN => return (now.k, steps),
                other => panic!("no such line: {other}"),
            }
        }
    }

    #[test]
    fn exactly_the_denied_calls_fail_and_quickly() {
        for count in [0_u32, 1, 2, 3, 100, 300] {
            let denied: BTreeMap<u32, i32> = (0..count)
                .map(|n| (n * 3 + 1, 1 + (n % 2).cast_signed()))
                .collect();
            let program = search(&denied);
            assert!(program.len() < 4096);
            for number in 0..1000 {
                let expected = denied
                    .get(&number)
                    .map_or(libc::SECCOMP_RET_ALLOW, |errno| {
                        libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()
                    });
                let (verdict, steps) = judge(&program, architecture(), number);
                assert_eq!(verdict, expected, "{number} of {count}");
                assert!(steps < 32, "{steps} lines for {number} of {count}");
            }
        }
    }

    #[test]
    fn foreign_tables_are_refused() {
        let program = search(&BTreeMap::from([(39, 1)]));
        assert_eq!(
            judge(&program, 0x4000_0003, 20).0,
            libc::SECCOMP_RET_KILL_PROCESS
        );
        if cfg!(target_arch = "x86_64") {
            let enosys = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
            assert_eq!(judge(&program, architecture(), X32 | 39).0, enosys);
            assert_eq!(judge(&program, architecture(), X32).0, enosys);
        }
    }
}
