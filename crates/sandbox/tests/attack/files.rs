//! Cases 21 to 35: files.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use detent_sandbox::{Cause, Confine, KillSwitch, Work, read_beneath};
use serde_json::json;

use crate::arena::{Arena, default, eventually, everyone, scratch, text};

#[tokio::test]
async fn case_21_setuid_programs_gain_nothing() {
    everyone(21, scratch(), async |arena| {
        let seen = arena.ask("setuid", &[]).await;
        // Not permitted, or (one user alone is mapped) there is no such user.
        for what in ["setuid", "setgid"] {
            assert!(
                ["EPERM", "EINVAL"].contains(&seen[what].as_str().unwrap()),
                "{seen}"
            );
        }
        let none = "0000000000000000";
        assert_eq!(
            seen["capabilities"],
            json!([none, none, none, none, none]),
            "{seen}"
        );
        assert_eq!(seen["no_new_privs"], "1", "{seen}");
        assert_eq!(seen["nosuid"], true, "{seen}");
        assert_eq!(seen["uid"], 1000, "{seen}");
    })
    .await;
}

#[tokio::test]
async fn case_22_the_system_s_files_cannot_be_written() {
    everyone(22, scratch(), async |arena| {
        let errors = ["EROFS", "EACCES", "ENOENT", "ETXTBSY", "EPERM"];
        arena.all_fail_with("host_files", &[], &errors).await;
    })
    .await;
}

#[tokio::test]
async fn case_23_the_kernel_s_files_are_not_there() {
    everyone(23, scratch(), async |arena| {
        let errors = ["ENOENT", "EACCES", "EPERM"];
        arena.all_fail_with("kernel_files", &[], &errors).await;
    })
    .await;
}

#[tokio::test]
async fn case_24_devices_sys_and_homes_are_not_there() {
    everyone(24, scratch(), async |arena| {
        arena.all_fail_with("hardware", &[], &["ENOENT"]).await;
    })
    .await;
}

#[tokio::test]
async fn case_25_links_and_dots_lead_nowhere() {
    everyone(25, scratch(), async |arena| {
        arena
            .all_fail_with("escapes", &[], &["ENOENT", "EACCES", "EPERM"])
            .await;
    })
    .await;
}

#[tokio::test]
async fn case_26_hard_links_across_mounts() {
    everyone(26, default(), async |arena| {
        arena
            .all_fail_with("hardlinks", &[], &["EXDEV", "EPERM", "EACCES"])
            .await;
    })
    .await;
}

#[tokio::test]
async fn case_27_a_result_that_becomes_a_link_while_it_is_read() {
    everyone(27, default(), async |arena| {
        let secret = tempfile::NamedTempFile::new().unwrap();
        fs::write(secret.path(), "secret").unwrap();
        let result = arena.work().join("result");
        let attack = arena.attack("swap_links", &[secret.path().to_str().unwrap()]);
        let (switch, confine) = (KillSwitch::new(), arena.confine.clone());
        let kill = switch.clone();
        let run = tokio::spawn(async move { confine.run(attack, kill).await });
        eventually("a result", || result.symlink_metadata().is_ok()).await;
        let (mut plain, mut refused) = (0, 0);
        let begin = Instant::now();
        while (plain < 100 || refused < 100) && begin.elapsed() < Duration::from_secs(60) {
            match read_beneath(arena.work(), Path::new("result"), 100) {
                Ok(bytes) => {
                    assert_eq!(text(&bytes), "plain");
                    plain += 1;
                }
                Err(_) => refused += 1,
            }
            tokio::task::yield_now().await;
        }
        switch.kill();
        let exit = run.await.unwrap().unwrap();
        assert_eq!(exit.cause, Cause::Killed);
        assert!(
            plain >= 100 && refused >= 100,
            "{plain} read, {refused} refused"
        );
    })
    .await;
}

#[tokio::test]
async fn case_28_a_working_directory_through_a_descriptor() {
    everyone(28, default(), async |arena| {
        // The caller holds a directory of the host open, also across exec.
        let host = fs::File::open("/").unwrap();
        rustix::io::fcntl_setfd(&host, rustix::io::FdFlags::empty()).unwrap();
        let seen = arena.ask("descriptors", &[]).await;
        assert_eq!(seen["entered"], json!([]), "{seen}");
        assert_eq!(seen["cwd"], "/job", "{seen}");
        // Asked for as the working directory it is that directory, and no way further up.
        let work = fs::File::open(arena.work()).unwrap();
        let mut spec = arena.attack("descriptors", &[]);
        spec.cwd = format!("/proc/{}/fd/{}", std::process::id(), work.as_raw_fd()).into();
        match arena.try_run(spec).await {
            Ok(exit) => assert!(text(&exit.stdout).contains("\"cwd\": \"/job\""), "{exit:?}"),
            Err(error) => assert!(!error.may_have_started(), "{error}"),
        }
    })
    .await;
}

/// What an earlier run left behind must not lead the building of the next one astray.
#[tokio::test]
async fn case_29_races_on_protected_paths() {
    everyone(29, default(), async |arena| {
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir(outside.path().join("hooks")).unwrap();
        fs::write(outside.path().join("hooks/secret"), "secret").unwrap();
        open_to_all(outside.path());
        let look = "cat .git/hooks/secret .bashrc/secret 2>/dev/null; ls /etc";
        let clean = text(&arena.run(arena.spec("/bin/sh", &["-c", look])).await.stdout);
        // A link in place of a directory on the way, and in place of the last one.
        symlink(outside.path(), arena.work().join(".git")).unwrap();
        symlink(outside.path().join("hooks"), arena.work().join(".bashrc")).unwrap();
        let exit = arena.run(arena.spec("/bin/sh", &["-c", look])).await;
        assert_eq!(text(&exit.stdout), clean, "{:?}", arena.who);
        // The same while the place is being built.
        race(arena, outside.path(), look, &clean).await;
    })
    .await;
}

async fn race(arena: &Arena, outside: &Path, look: &str, clean: &str) {
    let git = arena.work().join(".git");
    fs::remove_file(&git).unwrap();
    let (plain, link) = (arena.work().join("plain"), arena.work().join("link"));
    fs::create_dir_all(plain.join("hooks")).unwrap();
    symlink(outside, &link).unwrap();
    fs::rename(&plain, &git).unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let swapper = {
        let (git, link, stop) = (git.clone(), link.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let here = rustix::fs::CWD;
                let _ = rustix::fs::renameat_with(here, &git, here, &link, flags);
            }
        })
    };
    for _ in 0..60 {
        // A run may be refused; what it must not do is show what lies outside.
        if let Ok(exit) = arena.try_run(arena.spec("/bin/sh", &["-c", look])).await {
            let said = text(&exit.stderr_tail);
            assert_eq!(text(&exit.stdout), clean, "{:?} {exit:?} {said}", arena.who);
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    swapper.join().unwrap();
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn case_30_no_descriptor_leaks_in() {
    everyone(30, scratch(), async |arena| {
        let leaked = fs::File::open("/").unwrap();
        rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
        let seen = arena.ask("descriptors", &[]).await;
        let open: Vec<&str> = seen["open"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|v| v.as_str())
            .collect();
        assert_eq!(open.len(), 3, "{seen}");
        assert!(open.iter().all(|name| name.starts_with("pipe:")), "{seen}");
    })
    .await;
}

#[tokio::test]
async fn case_31_hooks_and_start_files_stay_as_they_are() {
    everyone(31, default(), async |arena| {
        let at = |relative: &str| arena.work().join(relative);
        fs::create_dir_all(at(".git/hooks")).unwrap();
        for file in [".git/hooks/pre-commit", ".git/config", ".bashrc"] {
            fs::write(at(file), "mine").unwrap();
            std::os::unix::fs::chown(at(file), owner(arena), owner(arena)).unwrap();
        }
        for directory in [".git", ".git/hooks"] {
            std::os::unix::fs::chown(at(directory), owner(arena), owner(arena)).unwrap();
        }
        let seen = arena.ask("protected", &[]).await;
        for (what, outcome) in seen.as_object().unwrap() {
            let may = ["index", "file"].contains(&what.as_str());
            assert_eq!(outcome == "OK", may, "{:?} {what}: {outcome}", arena.who);
        }
        for file in [".git/hooks/pre-commit", ".git/config", ".bashrc"] {
            assert_eq!(fs::read_to_string(at(file)).unwrap(), "mine");
        }
    })
    .await;
}

/// The user that works there, so that nothing but the sandbox stands in its way.
fn owner(arena: &Arena) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    // The privileged helper makes the directory the program's own at the first run.
    match arena.who {
        crate::arena::Who::Root => Some(1_900_001_000),
        crate::arena::Who::Nobody => Some(fs::metadata(arena.work()).unwrap().uid()),
    }
}

async fn fills_up(arena: &Arena, case: &str, mib_max: u64) {
    let seen = arena.ask(case, &[]).await;
    assert_eq!(seen[1], "ENOSPC", "{:?} {case}: {seen}", arena.who);
    let mib = seen[0].as_u64().unwrap();
    assert!(
        mib <= mib_max && mib + 2 >= mib_max,
        "{:?} {case}: {seen}",
        arena.who
    );
}

#[tokio::test]
async fn case_32_filling_tmp() {
    everyone(32, scratch(), async |arena| {
        fills_up(arena, "fill_tmp", 64).await
    })
    .await;
}

#[tokio::test]
async fn case_33_using_up_the_files_of_tmp() {
    everyone(33, scratch(), async |arena| {
        let seen = arena.ask("inodes", &[]).await;
        assert_eq!(seen[1], "ENOSPC", "{seen}");
        assert!(seen[0].as_u64().unwrap() < 10_000, "{seen}");
    })
    .await;
}

#[tokio::test]
async fn case_34_filling_shared_memory() {
    everyone(34, scratch(), async |arena| {
        fills_up(arena, "fill_shm", 16).await
    })
    .await;
}

#[tokio::test]
async fn case_35_filling_the_work_directory() {
    let mut policy = scratch();
    policy.files.work_mib_max = 32;
    everyone(35, policy, async |arena| {
        fills_up(arena, "fill_work", 32).await;
    })
    .await;
    // On disk a single file is bounded; the sum is the file system's.
    let mut policy = default();
    policy.files.work = Work::ReadWrite;
    let arena = Arena::new(crate::arena::everybody()[0], policy).await;
    assert_eq!(arena.ask("one_large_file", &[]).await, "EFBIG");
}
