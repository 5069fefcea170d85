//! The sandbox on a kernel of its own, for what this machine's kernel may not offer: control
//! groups of version 2 with all controllers, and an older landlock. The test program runs
//! as part of an initial file system, under software emulation: no rights are needed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Failure, run};

const HELP: &str = "\
Boots Debian's cloud kernel in an emulator and runs the tests of the sandbox there.

Usage: cargo xtask test-vm

Needs qemu-system-x86_64, busybox (static) and cpio, and a kernel: DETENT_VM_KERNEL names
its file, else target/tools/vm/vmlinuz is used, which is taken out of Debian's package
linux-image-cloud-amd64 with apt-get where it is missing. Without one of them it prints SKIP
and the reason, and ends with 0.
";

/// Start to power-off on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(180);
const PROGRAMS: [&str; 26] = [
    "sh",
    "mount",
    "cat",
    "echo",
    "ls",
    "mkdir",
    "sleep",
    "head",
    "id",
    "true",
    "grep",
    "cp",
    "switch_root",
    "env",
    "sort",
    "touch",
    "rm",
    "expr",
    "yes",
    "seq",
    "kill",
    "dmesg",
    "poweroff",
    "uname",
    "tail",
    "chown",
];
const INIT: &str = r#"#!/bin/sh
export PATH=/bin
if [ ! -e /switched ]; then
  # The root of an initial file system cannot be changed; one in memory can.
  mount -t tmpfs new /new
  for part in usr payload etc init bin lib lib64 keeper; do cp -a /$part /new/; done
  mkdir -p /new/proc /new/sys /new/dev /new/tmp
  KEEPER=$(cat /keeper)
  mkdir -p /new${KEEPER%/*}
  cp /payload/keeper /new$KEEPER
  echo 1 > /new/switched
  mount -t devtmpfs dev /new/dev
  exec switch_root /new /init
fi
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
mount -t cgroup2 none /sys/fs/cgroup
uname -r
$(cat /keeper) features
# What a service manager delegates to a user: a group, and a leaf in it to sit in.
G=/sys/fs/cgroup
echo "+cpu +memory +pids" > $G/cgroup.subtree_control
mkdir -p $G/unit/supervisor
for at in unit unit/cgroup.procs unit/cgroup.subtree_control unit/supervisor/cgroup.procs; do
  chown 65534 $G/$at
done
AS="/usr/bin/setpriv --reuid 65534 --regid 65534 --clear-groups --"
sh -c "echo 0 > $G/unit/supervisor/cgroup.procs; exec $AS $(cat /keeper) features" > /tmp/inside
echo "delegated: features ended with $?"
$AS $(cat /keeper) features > /tmp/outside
echo "not delegated: features ended with $?"
cat /tmp/inside /tmp/outside
/payload/tests --test-threads 1 --skip runtimes --skip first_line --skip fuzz
echo "tests ended with $?"
echo o > /proc/sysrq-trigger
sleep 60
"#;
const PASSED: [&str; 3] = [
    "tests ended with 0",
    "\ndelegated: features ended with 0",
    "not delegated: features ended with 1",
];

/// Runs the chore.
pub(crate) fn test_vm(args: &[String]) -> Result<(), Failure> {
    match args.first().map(String::as_str) {
        None => {}
        Some("-h" | "--help") => return crate::help(HELP),
        Some(other) => return Err(Failure::Usage(format!("unexpected argument {other:?}"))),
    }
    match prepare() {
        Ok(Ready { kernel, initrd }) => boot(&kernel, &initrd).map_err(Failure::Failed),
        Err(Obstacle::Skip(reason)) => {
            println!("SKIP test-vm: {reason}");
            Ok(())
        }
        Err(Obstacle::Failed(why)) => Err(Failure::Failed(why)),
    }
}

struct Ready {
    kernel: PathBuf,
    initrd: PathBuf,
}

enum Obstacle {
    /// The machine cannot.
    Skip(String),
    Failed(String),
}

impl From<String> for Obstacle {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

fn prepare() -> Result<Ready, Obstacle> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Obstacle::Skip("the kernel is for x86_64".into()));
    }
    for program in ["qemu-system-x86_64", "busybox", "cpio"] {
        if find(program).is_none() {
            return Err(Obstacle::Skip(format!("there is no {program}")));
        }
    }
    let folder = run::tools_dir().join("vm");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let kernel = kernel(&folder).map_err(Obstacle::Skip)?;
    let (tests, keeper) = build()?;
    let initrd = initrd(&folder, &tests, &keeper)?;
    Ok(Ready { kernel, initrd })
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// The kernel that is named, that is there, or that Debian has.
fn kernel(folder: &Path) -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("DETENT_VM_KERNEL") {
        return Ok(named.into());
    }
    let kernel = folder.join("vmlinuz");
    if kernel.is_file() {
        return Ok(kernel);
    }
    let depends = output(Command::new("apt-cache").args(["depends", "linux-image-cloud-amd64"]))?;
    let package = depends
        .split_whitespace()
        .find(|word| word.starts_with("linux-image-6"));
    let package = package.ok_or("Debian's package index has no linux-image-cloud-amd64")?;
    output(
        Command::new("apt-get")
            .args(["download", package])
            .current_dir(folder),
    )?;
    let deb = file_in(folder, package).ok_or("apt-get downloaded nothing")?;
    let unpacked = folder.join("unpacked");
    output(Command::new("dpkg").arg("-x").args([&deb, &unpacked]))?;
    let image = file_in(&unpacked.join("boot"), "vmlinuz").ok_or("the package has no kernel")?;
    fs::copy(image, &kernel).map_err(|e| e.to_string())?;
    Ok(kernel)
}

fn file_in(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let mut files = fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    files.find(|file| {
        file.file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with(prefix))
    })
}

/// The test program and the keeper that it starts by its absolute path.
fn build() -> Result<(PathBuf, PathBuf), String> {
    let args = [
        "test",
        "--package",
        "detent-sandbox",
        "--test",
        "sandbox",
        "--no-run",
    ];
    let mut command = run::cargo_command(&args);
    command.arg("--message-format=json");
    let messages = output(&mut command)?;
    let executable = |name: &str| {
        messages.lines().find_map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            let wanted = message["target"]["name"] == name;
            let file = message["executable"].as_str().filter(|_| wanted)?;
            Some(PathBuf::from(file))
        })
    };
    let tests = executable("sandbox").ok_or("cargo named no test program")?;
    let keeper = executable("detent-keeper").ok_or("cargo named no keeper")?;
    Ok((tests, keeper))
}

/// The initial file system, as a file.
fn initrd(folder: &Path, tests: &Path, keeper: &Path) -> Result<PathBuf, String> {
    let root = folder.join("root");
    // Absent at the first time.
    let _ = fs::remove_dir_all(&root);
    fill(&root, tests, keeper).map_err(|error| format!("{}: {error}", root.display()))?;
    let packed = folder.join("initrd");
    let script = "find . | cpio --quiet -o -H newc > ../initrd";
    output(Command::new("sh").args(["-c", script]).current_dir(&root))?;
    Ok(packed)
}

fn fill(root: &Path, tests: &Path, keeper: &Path) -> std::io::Result<()> {
    for folder in [
        "usr/bin",
        "usr/lib",
        "usr/lib64",
        "etc",
        "payload",
        "new",
        "proc",
        "dev",
        "sys",
    ] {
        fs::create_dir_all(root.join(folder))?;
    }
    for (link, target) in [
        ("bin", "usr/bin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
    ] {
        symlink(target, root.join(link))?;
    }
    let busybox = find("busybox").unwrap_or_default();
    fs::copy(busybox, root.join("usr/bin/busybox"))?;
    for program in PROGRAMS {
        symlink("busybox", root.join("usr/bin").join(program))?;
    }
    let mut libraries = BTreeSet::new();
    let setpriv = find("setpriv").unwrap_or_default();
    for (from, to) in [
        (tests, "payload/tests"),
        (keeper, "payload/keeper"),
        (&setpriv, "usr/bin/setpriv"),
    ] {
        fs::copy(from, root.join(to))?;
        libraries.extend(libraries_of(from));
    }
    for library in libraries {
        let to = root.join(library.strip_prefix("/").unwrap_or(&library));
        let to = if library.starts_with("/lib") {
            root.join("usr").join(to.strip_prefix(root).unwrap_or(&to))
        } else {
            to
        };
        fs::create_dir_all(to.parent().unwrap_or(root))?;
        fs::copy(&library, to)?;
    }
    fs::write(root.join("keeper"), keeper.as_os_str().as_encoded_bytes())?;
    fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n")?;
    fs::write(root.join("etc/group"), "root:x:0:\n")?;
    fs::write(root.join("init"), INIT)?;
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))
}

/// The shared libraries that a program loads, as paths.
fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let listed = output(Command::new("ldd").arg(program)).unwrap_or_default();
    let words = listed
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    words.map(PathBuf::from).collect()
}

fn boot(kernel: &Path, initrd: &Path) -> Result<(), String> {
    let mut emulator = Command::new("qemu-system-x86_64");
    emulator.args([
        "-M",
        "pc",
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max",
        "-m",
        "1024",
    ]);
    emulator.args([
        "-smp",
        "2",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
    ]);
    emulator.args(["-no-reboot", "-serial", "stdio"]);
    emulator
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initrd);
    emulator.args(["-append", "console=ttyS0 quiet panic=-1 nokaslr"]);
    let log = initrd.with_extension("log");
    let out = fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let begin = Instant::now();
    let spawned = emulator
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(Stdio::inherit())
        .spawn();
    let mut emulator = spawned.map_err(|e| format!("qemu-system-x86_64: {e}"))?;
    while emulator.try_wait().map_err(|e| e.to_string())?.is_none() {
        if begin.elapsed() > PATIENCE {
            let _ = emulator.kill();
            let _ = emulator.wait();
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let said = fs::read_to_string(&log).unwrap_or_default();
    println!("{}", said.trim_end());
    println!("test-vm: {} s", begin.elapsed().as_secs());
    if PASSED
        .iter()
        .all(|line| said.replace('\r', "").contains(line))
    {
        return Ok(());
    }
    Err(format!(
        "the tests in the machine did not pass; see {}",
        log.display()
    ))
}

fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let done = done.map_err(|error| format!("{name}: {error}"))?;
    if !done.status.success() {
        return Err(format!("{name} ended with {}", done.status));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
