//! The system calls that no safe crate here offers, each with the reason why it is
//! sound. It promises that nothing outside needs `unsafe` to use them. It must not
//! know what they are for.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Pid;

/// How many signals the kernel has.
const SIGNALS: usize = 64;

/// Proof that this process has one thread, so that a forked child may go on like any
/// process: no lock can be held by a thread that the child does not have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OneThread {
    /// Neither `Send` nor `Sync`.
    _here: PhantomData<*const ()>,
}

impl OneThread {
    /// Looks it up in `/proc`. Who holds the proof starts no thread.
    pub(crate) fn prove() -> io::Result<Self> {
        let threads = std::fs::read_dir("/proc/self/task")?.count();
        if threads == 1 {
            return Ok(Self { _here: PhantomData });
        }
        Err(io::Error::other("the process has more than one thread"))
    }
}

/// Which side of a fork this is.
pub(crate) enum Forked {
    /// The new process.
    Child,
    /// The old one.
    Parent {
        /// The new process's id.
        pid: Pid,
        /// Handle on it; closed on exec.
        pidfd: OwnedFd,
    },
}

/// clone3(2) without sharing memory: a fork, into new namespaces (`CLONE_NEW*` in
/// `flags`).
pub(crate) fn clone3(_proof: OneThread, flags: u64) -> Result<Forked, Errno> {
    let mut pidfd: RawFd = -1;
    // SAFETY: a struct of integers for which zero is a value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags | libc::CLONE_PIDFD as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: `args` is a valid clone_args of the size given, `pidfd` outlives the call;
    // without CLONE_VM the child has its own copy of memory, and by `_proof` there was no
    // other thread whose locks it could have copied in a held state.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const args,
            std::mem::size_of::<libc::clone_args>(),
        )
    };
    match pid {
        -1 => Err(last_errno()),
        0 => Ok(Forked::Child),
        pid => {
            let raw = i32::try_from(pid).map_err(|_| Errno::OVERFLOW)?;
            Ok(Forked::Parent {
                pid: Pid::from_raw(raw).ok_or(Errno::CHILD)?,
                // SAFETY: the kernel has just opened this descriptor for us alone.
                pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
            })
        }
    }
}

/// Leaves the network namespace for a new one, without a device that is up.
pub(crate) fn leave_network() -> Result<(), Errno> {
    // SAFETY: of this flag only the sockets that are made from now on know; no memory, no
    // descriptor and no path means anything else afterwards.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }.into())
}

/// Ends this process at once: no destructor, no handler, no buffer.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: takes any integer and does not return.
    unsafe { libc::_exit(status) }
}

/// Marks every descriptor from `first` on as closed on exec.
pub(crate) fn close_on_exec_from(first: u32) -> Result<(), Errno> {
    // SAFETY: sets a flag on descriptors and closes none, so no owner of a descriptor is
    // deceived. By number because not every libc wraps it.
    let done = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    check(done)
}

/// Closes every descriptor but `keep`, whoever owns it; for a process that uses nothing
/// else from here on and ends through [`exit_now`].
pub(crate) fn close_all_but(keep: &[RawFd]) {
    let mut keep: Vec<u32> = keep
        .iter()
        .filter_map(|fd| u32::try_from(*fd).ok())
        .collect();
    keep.sort_unstable();
    let mut first = 0;
    for fd in keep.iter().copied().chain([u32::MAX]) {
        if fd > first {
            let last = if fd == u32::MAX { fd } else { fd - 1 };
            // SAFETY: by the contract above, nobody in this process uses these descriptors
            // again, nor runs the destructors that would close them twice.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
        first = fd.saturating_add(1);
    }
}

/// Attributes to set on a mount, and on those below it when `recursive`.
pub(crate) fn mount_setattr(
    mount: BorrowedFd<'_>,
    attributes: u64,
    recursive: bool,
) -> Result<(), Errno> {
    // SAFETY: a struct of integers for which zero is a value.
    let mut attr: libc::mount_attr = unsafe { std::mem::zeroed() };
    attr.attr_set = attributes;
    attr.propagation = libc::MS_PRIVATE;
    let below = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: a NUL-ended path and a valid mount_attr of the size given.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | below,
            &raw const attr,
            std::mem::size_of::<libc::mount_attr>(),
        )
    };
    check(done)
}

/// Takes every signal back to its default and blocks none.
pub(crate) fn default_signals() {
    // All zero is the kernel's SIG_DFL without flags; longer than its struct on every
    // architecture.
    let default = [0_u64; 8];
    for signal in 1..=SIGNALS {
        // By number, because libc refuses to touch the two it keeps for itself.
        // SAFETY: `default` outlives the call and installs no handler. The call fails
        // harmlessly for the signals that cannot be set.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                SIGNALS / 8,
            );
        }
    }
    // SAFETY: the set is initialised by sigemptyset before it is used.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

fn child_signal() -> libc::sigset_t {
    // SAFETY: the set is initialised by sigemptyset before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        set
    }
}

/// Holds SIGCHLD back, for [`wait_for_child_signal`].
pub(crate) fn block_child_signal() {
    let set = child_signal();
    // SAFETY: an initialised set; changes the mask of this thread alone.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Waits until a child has changed its state, for at most `timeout`; may return early.
pub(crate) fn wait_for_child_signal(timeout: Duration) {
    let set = child_signal();
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: initialised arguments that outlive the call; no information is asked for.
    unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const timeout) };
}

/// What a reaped process and the descendants it had reaped used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) cpu_ms: u64,
    pub(crate) max_rss_bytes: u64,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

impl End {
    /// What wait(2) put into its status word for a process that has ended.
    pub(crate) fn from_raw(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signaled(libc::WTERMSIG(status))
        } else {
            Self::Exited(libc::WEXITSTATUS(status))
        }
    }
}

/// Reaps one ended child, by id; `None` while it lives.
pub(crate) fn reap(pid: Pid) -> Result<Option<(End, Used)>, Errno> {
    let mut status = 0;
    // SAFETY: a struct of integers for which zero is a value, valid for writing during
    // the call, as is `status`.
    let (done, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let done = libc::wait4(
            pid.as_raw_pid(),
            &raw mut status,
            libc::WNOHANG,
            &raw mut usage,
        );
        (done, usage)
    };
    match done {
        -1 => Err(last_errno()),
        0 => Ok(None),
        _ => Ok(Some((End::from_raw(status), used(&usage)))),
    }
}

/// What the children that this process has reaped used.
pub(crate) fn used_by_children() -> Used {
    // SAFETY: a struct of integers, for which zero is a value, that is valid for writing
    // during the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    used(&usage)
}

fn used(usage: &libc::rusage) -> Used {
    let micros = |time: libc::timeval| {
        let secs = u64::try_from(time.tv_sec).unwrap_or(0);
        secs.saturating_mul(1_000_000) + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    let max_rss_kib = u64::try_from(usage.ru_maxrss).unwrap_or(0);
    Used {
        cpu_ms: (micros(usage.ru_utime) + micros(usage.ru_stime)) / 1000,
        max_rss_bytes: max_rss_kib.saturating_mul(1024),
    }
}

/// The version of landlock's interface that the kernel offers.
pub(crate) fn landlock_abi() -> Result<u32, Errno> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the kernel takes a null pointer and size 0, and only answers
    // with a number.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            VERSION,
        )
    };
    check(abi)?;
    u32::try_from(abi).map_err(|_| Errno::RANGE)
}

/// Whether the kernel knows seccomp's mode that filters.
pub(crate) fn seccomp_filters() -> Result<(), Errno> {
    const GET_ACTION_AVAIL: libc::c_uint = 2;
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: reads the one integer that is pointed to.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            GET_ACTION_AVAIL,
            0_u32,
            &raw const action,
        )
    };
    check(done)
}

/// Sets the loopback device of this network namespace up.
pub(crate) fn loopback_up(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: a struct of integers and arrays for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = (*from).cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_LOOPBACK | libc::IFF_RUNNING) as i16;
    // SAFETY: the request reads an ifreq with a name and flags, which this is.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    check(done.into())
}

fn check(done: libc::c_long) -> Result<(), Errno> {
    if done >= 0 { Ok(()) } else { Err(last_errno()) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
