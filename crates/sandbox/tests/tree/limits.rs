//! Programs that run into a limit, and programs that handle their pipes badly.

use detent_sandbox::{Cause, Limits};

use crate::support::{python, run_clean, sh, spec, text};

fn with_wall(mut spec: detent_sandbox::ProcessSpec, wall_ms: u64) -> detent_sandbox::ProcessSpec {
    spec.limits.wall_ms = wall_ms;
    spec
}

#[tokio::test]
async fn the_deadline_ends_a_program_that_ignores_signals() {
    let stubborn = "trap '' TERM INT HUP QUIT; echo deaf; while :; do sleep 1000; done";
    let exit = run_clean(with_wall(sh(stubborn), 2_000)).await;
    assert_eq!(exit.cause, Cause::Deadline);
    assert!(exit.wall_ms >= 2_000, "{exit:?}");
    assert_eq!(text(&exit.stdout), "deaf\n");
}

#[tokio::test]
async fn the_deadline_ends_a_program_that_stopped_itself() {
    let exit = run_clean(with_wall(sh("kill -STOP $$"), 500)).await;
    assert_eq!(exit.cause, Cause::Deadline);
}

#[tokio::test]
async fn the_deadline_ends_a_program_that_spins() {
    let exit = run_clean(with_wall(sh("while :; do :; done"), 500)).await;
    assert_eq!(exit.cause, Cause::Deadline);
}

#[tokio::test]
async fn the_deadline_ends_a_slow_drip() {
    let drip = "while :; do echo drop; sleep 0.05; done";
    let exit = run_clean(with_wall(sh(drip), 2_000)).await;
    assert_eq!(exit.cause, Cause::Deadline);
    assert!(exit.stdout.starts_with(b"drop\n"));
}

#[tokio::test]
async fn the_deadline_ends_a_program_that_closed_its_output() {
    let mute = "exec >&- 2>&- <&-; while :; do sleep 1000; done";
    let exit = run_clean(with_wall(sh(mute), 500)).await;
    assert_eq!(exit.cause, Cause::Deadline);
}

#[tokio::test]
async fn a_flood_of_output_is_cut_at_the_cap() {
    let mut flood = spec("yes", &[]);
    flood.limits.stdout_bytes_max = 100_000;
    let exit = run_clean(flood).await;
    assert_eq!(exit.cause, Cause::OutputLimit);
    assert_eq!(text(&exit.stdout), "y\n".repeat(50_000));
}

#[tokio::test]
async fn output_of_exactly_the_cap_is_fine_and_one_byte_more_is_not() {
    for (bytes, cause) in [("70000", Cause::Exited(0)), ("70001", Cause::OutputLimit)] {
        let mut zeros = spec("head", &["-c", bytes, "/dev/zero"]);
        zeros.limits.stdout_bytes_max = 70_000;
        let exit = run_clean(zeros).await;
        assert_eq!(exit.cause, cause);
        assert_eq!(exit.stdout.len(), 70_000);
    }
}

#[tokio::test]
async fn a_cap_of_zero_permits_silence_only() {
    let limits = Limits {
        stdout_bytes_max: 0,
        ..Limits::default()
    };
    let mut silent = sh("exit 0");
    silent.limits = limits;
    assert_eq!(run_clean(silent).await.cause, Cause::Exited(0));
    let mut chatty = sh("echo; sleep 1000");
    chatty.limits = limits;
    assert_eq!(run_clean(chatty).await.cause, Cause::OutputLimit);
}

#[tokio::test]
async fn of_a_flood_of_errors_the_end_is_kept() {
    let exit = run_clean(sh("seq 1 1000000 >&2; echo the end >&2")).await;
    assert_eq!(exit.cause, Cause::Exited(0));
    assert_eq!(exit.stderr_tail.len(), 16 * 1024);
    assert!(exit.stderr_tail.ends_with(b"999999\n1000000\nthe end\n"));
}

#[tokio::test]
async fn a_program_that_never_reads_a_large_input_does_not_hang() {
    let mut deaf = sh("head -c 500000 /dev/zero; exit 3");
    deaf.stdin = vec![b'x'; 8 << 20];
    let exit = run_clean(deaf).await;
    assert_eq!(exit.cause, Cause::Exited(3));
    assert_eq!(exit.stdout.len(), 500_000);
}

#[tokio::test]
async fn a_program_that_closes_its_input_early_runs_on() {
    let mut picky = sh("read line; exec <&-; sleep 0.1; echo \"$line\"");
    picky.stdin = [b"first\n".to_vec(), vec![b'x'; 8 << 20]].concat();
    assert_eq!(text(&run_clean(picky).await.stdout), "first\n");
}

#[tokio::test]
async fn a_large_input_is_read_while_the_output_is_written() {
    let mut cat = spec("cat", &[]);
    cat.stdin = (0..8_u32 << 20).map(|i| (i % 251) as u8).collect();
    cat.limits.stdout_bytes_max = 8 << 20;
    let sent = cat.stdin.clone();
    let exit = run_clean(cat).await;
    assert_eq!(exit.cause, Cause::Exited(0));
    assert!(exit.stdout == sent);
}

#[tokio::test]
async fn without_input_the_program_sees_the_end_of_file() {
    let exit = run_clean(python("import sys; print(repr(sys.stdin.read()))")).await;
    assert_eq!(text(&exit.stdout), "''\n");
}

/// Fills a large pipe and ends while its keeper is stopped; its child lets the
/// keeper go on once the program is a zombie. So all is still in the pipe when
/// the keeper sees the end.
const LEAVES_ALL_IN_THE_PIPE: &str = "\
import fcntl, os, signal
F_SETPIPE_SZ = 1031
keeper, program = os.getppid(), os.getpid()
fcntl.fcntl(1, F_SETPIPE_SZ, 1 << 20)
os.kill(keeper, signal.SIGSTOP)
if os.fork() == 0:
    while ') Z' not in open(f'/proc/{program}/stat').read():
        pass
    os.kill(keeper, signal.SIGCONT)
    os._exit(0)
os._exit(0 if os.write(1, b'x' * 600000) == 600000 else 1)
";

#[tokio::test]
async fn what_a_dead_program_left_in_its_pipe_is_read() {
    let exit = run_clean(python(LEAVES_ALL_IN_THE_PIPE)).await;
    assert_eq!(exit.cause, Cause::Exited(0), "{}", text(&exit.stderr_tail));
    assert_eq!(exit.stdout.len(), 600_000);
}

#[tokio::test]
async fn the_cap_holds_for_what_a_dead_program_left_in_its_pipe() {
    let mut spec = python(LEAVES_ALL_IN_THE_PIPE);
    spec.limits.stdout_bytes_max = 500_000;
    let exit = run_clean(spec).await;
    assert_eq!(exit.cause, Cause::OutputLimit);
    assert_eq!(exit.stdout.len(), 500_000);
}
