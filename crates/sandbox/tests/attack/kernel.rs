//! Cases 1 to 20: the kernel's calls.

use detent_sandbox::End;

use crate::arena::{everyone, scratch};

/// A case whose every attempt has to fail in one of these ways.
macro_rules! refused {
    ($($test:ident = $number:literal: $case:literal fails with $($error:literal)|+;)*) => {
        $(#[tokio::test]
        async fn $test() {
            everyone($number, scratch(), async |arena| {
                arena.all_fail_with($case, &[], &[$($error),+]).await;
            })
            .await;
        })*
    };
}

refused! {
    case_01_ptrace_of_the_first_process = 1: "ptrace" fails with "EPERM";
    case_02_memory_of_other_processes = 2: "process_vm" fails with "EPERM";
    case_03_files_of_the_first_process = 3: "proc_one" fails with "ENOENT" | "EACCES" | "EPERM";
    case_04_overwriting_the_running_program = 4: "own_exe"
        fails with "EROFS" | "EACCES" | "ETXTBSY" | "ENOENT";
    case_05_mounts = 5: "mounts" fails with "EPERM";
    case_06_nested_user_namespace = 6: "nested" fails with "EPERM";
    case_07_clone3 = 7: "clone3" fails with "ENOSYS";
    case_08_setns = 8: "setns" fails with "EPERM";
    case_09_keys = 9: "keys" fails with "EPERM";
    case_10_bpf = 10: "bpf" fails with "EPERM";
    case_11_perf_events = 11: "perf" fails with "EPERM";
    case_12_userfaultfd = 12: "userfaultfd" fails with "EPERM";
    case_13_io_uring = 13: "io_uring" fails with "EPERM";
    case_14_kexec_modules_reboot_swap = 14: "machine" fails with "EPERM";
    case_15_clocks = 15: "clocks" fails with "EPERM";
    case_16_input_into_a_terminal = 16: "terminal" fails with "EPERM";
    case_18_files_by_handle = 18: "handles" fails with "EPERM";
    case_19_personality = 19: "personality" fails with "EPERM";
    case_20_device_files = 20: "devices" fails with "EPERM";
}

#[tokio::test]
async fn case_17_calls_of_other_architectures() {
    everyone(17, scratch(), async |arena| {
        arena.all_fail_with("x32", &[], &["ENOSYS"]).await;
        let exit = arena.run(arena.attack("i386", &[])).await;
        assert_eq!(exit.end(), End::Seccomp, "{:?} {exit:?}", arena.who);
    })
    .await;
}
