//! System calls and socket families by name. Only calls that a policy could want to deny
//! stand here. It must not know what is denied.

/// The number of a system call on this architecture; `None` where it has none.
pub(crate) fn number(name: &str) -> Option<i64> {
    let both = EVERYWHERE.iter().chain(ELSEWHERE);
    both.into_iter().find(|(known, _)| *known == name)?.1
}

/// Whether this is the name of a system call, here or on another architecture.
pub(crate) fn is_known(name: &str) -> bool {
    let mut both = EVERYWHERE.iter().chain(ELSEWHERE);
    both.any(|(known, _)| *known == name)
}

/// The number of an address family.
pub(crate) fn socket_family(name: &str) -> Option<u64> {
    let family = match name {
        "unix" => libc::AF_UNIX,
        "inet" => libc::AF_INET,
        "inet6" => libc::AF_INET6,
        _ => return None,
    };
    u64::try_from(family).ok()
}

type Row = (&'static str, Option<i64>);

const EVERYWHERE: &[Row] = &[
    ("ptrace", Some(libc::SYS_ptrace)),
    ("process_vm_readv", Some(libc::SYS_process_vm_readv)),
    ("process_vm_writev", Some(libc::SYS_process_vm_writev)),
    ("process_madvise", Some(libc::SYS_process_madvise)),
    ("kcmp", Some(libc::SYS_kcmp)),
    ("pidfd_getfd", Some(libc::SYS_pidfd_getfd)),
    ("mount", Some(libc::SYS_mount)),
    ("umount2", Some(libc::SYS_umount2)),
    ("pivot_root", Some(libc::SYS_pivot_root)),
    ("chroot", Some(libc::SYS_chroot)),
    ("setns", Some(libc::SYS_setns)),
    ("unshare", Some(libc::SYS_unshare)),
    ("open_tree", Some(libc::SYS_open_tree)),
    ("move_mount", Some(libc::SYS_move_mount)),
    ("fsopen", Some(libc::SYS_fsopen)),
    ("fsconfig", Some(libc::SYS_fsconfig)),
    ("fsmount", Some(libc::SYS_fsmount)),
    ("fspick", Some(libc::SYS_fspick)),
    ("mount_setattr", Some(libc::SYS_mount_setattr)),
    ("keyctl", Some(libc::SYS_keyctl)),
    ("add_key", Some(libc::SYS_add_key)),
    ("request_key", Some(libc::SYS_request_key)),
    ("bpf", Some(libc::SYS_bpf)),
    ("perf_event_open", Some(libc::SYS_perf_event_open)),
    ("userfaultfd", Some(libc::SYS_userfaultfd)),
    ("io_uring_setup", Some(libc::SYS_io_uring_setup)),
    ("io_uring_enter", Some(libc::SYS_io_uring_enter)),
    ("io_uring_register", Some(libc::SYS_io_uring_register)),
    ("kexec_load", Some(libc::SYS_kexec_load)),
    ("kexec_file_load", Some(libc::SYS_kexec_file_load)),
    ("init_module", Some(libc::SYS_init_module)),
    ("finit_module", Some(libc::SYS_finit_module)),
    ("delete_module", Some(libc::SYS_delete_module)),
    ("reboot", Some(libc::SYS_reboot)),
    ("swapon", Some(libc::SYS_swapon)),
    ("swapoff", Some(libc::SYS_swapoff)),
    ("acct", Some(libc::SYS_acct)),
    ("quotactl", Some(libc::SYS_quotactl)),
    ("quotactl_fd", Some(libc::SYS_quotactl_fd)),
    ("settimeofday", Some(libc::SYS_settimeofday)),
    ("clock_settime", Some(libc::SYS_clock_settime)),
    ("adjtimex", Some(libc::SYS_adjtimex)),
    ("clock_adjtime", Some(libc::SYS_clock_adjtime)),
    ("syslog", Some(libc::SYS_syslog)),
    ("name_to_handle_at", Some(libc::SYS_name_to_handle_at)),
    ("open_by_handle_at", Some(libc::SYS_open_by_handle_at)),
    ("personality", Some(libc::SYS_personality)),
    ("sethostname", Some(libc::SYS_sethostname)),
    ("setdomainname", Some(libc::SYS_setdomainname)),
    ("vhangup", Some(libc::SYS_vhangup)),
    ("lookup_dcookie", Some(libc::SYS_lookup_dcookie)),
    ("mbind", Some(libc::SYS_mbind)),
    ("move_pages", Some(libc::SYS_move_pages)),
    ("migrate_pages", Some(libc::SYS_migrate_pages)),
    ("set_mempolicy", Some(libc::SYS_set_mempolicy)),
    ("fanotify_init", Some(libc::SYS_fanotify_init)),
    ("fanotify_mark", Some(libc::SYS_fanotify_mark)),
    ("mknodat", Some(libc::SYS_mknodat)),
    ("mq_open", Some(libc::SYS_mq_open)),
    ("mq_unlink", Some(libc::SYS_mq_unlink)),
    ("mq_timedsend", Some(libc::SYS_mq_timedsend)),
    ("mq_timedreceive", Some(libc::SYS_mq_timedreceive)),
    ("mq_notify", Some(libc::SYS_mq_notify)),
    ("mq_getsetattr", Some(libc::SYS_mq_getsetattr)),
    (
        "landlock_create_ruleset",
        Some(libc::SYS_landlock_create_ruleset),
    ),
    ("memfd_secret", Some(libc::SYS_memfd_secret)),
    ("nfsservctl", Some(libc::SYS_nfsservctl)),
    ("sched_setscheduler", Some(libc::SYS_sched_setscheduler)),
    ("sched_setattr", Some(libc::SYS_sched_setattr)),
    ("sched_setparam", Some(libc::SYS_sched_setparam)),
    ("ioprio_set", Some(libc::SYS_ioprio_set)),
    ("mlock", Some(libc::SYS_mlock)),
    ("mlock2", Some(libc::SYS_mlock2)),
    ("mlockall", Some(libc::SYS_mlockall)),
    ("shmget", Some(libc::SYS_shmget)),
    ("shmat", Some(libc::SYS_shmat)),
    ("shmctl", Some(libc::SYS_shmctl)),
    ("shmdt", Some(libc::SYS_shmdt)),
    ("semget", Some(libc::SYS_semget)),
    ("semop", Some(libc::SYS_semop)),
    ("semctl", Some(libc::SYS_semctl)),
    ("semtimedop", Some(libc::SYS_semtimedop)),
    ("msgget", Some(libc::SYS_msgget)),
    ("msgsnd", Some(libc::SYS_msgsnd)),
    ("msgrcv", Some(libc::SYS_msgrcv)),
    ("msgctl", Some(libc::SYS_msgctl)),
    ("vmsplice", Some(libc::SYS_vmsplice)),
    ("setuid", Some(libc::SYS_setuid)),
    ("setgid", Some(libc::SYS_setgid)),
    ("setreuid", Some(libc::SYS_setreuid)),
    ("setregid", Some(libc::SYS_setregid)),
    ("setresuid", Some(libc::SYS_setresuid)),
    ("setresgid", Some(libc::SYS_setresgid)),
    ("setgroups", Some(libc::SYS_setgroups)),
    ("capset", Some(libc::SYS_capset)),
];

/// Calls that only the x86 family has.
#[cfg(target_arch = "x86_64")]
const ELSEWHERE: &[Row] = &[
    ("iopl", Some(libc::SYS_iopl)),
    ("ioperm", Some(libc::SYS_ioperm)),
    ("uselib", Some(libc::SYS_uselib)),
    ("mknod", Some(libc::SYS_mknod)),
    ("modify_ldt", Some(libc::SYS_modify_ldt)),
    ("_sysctl", Some(libc::SYS__sysctl)),
    ("ustat", Some(libc::SYS_ustat)),
    ("sysfs", Some(libc::SYS_sysfs)),
];
#[cfg(not(target_arch = "x86_64"))]
const ELSEWHERE: &[Row] = &[
    ("iopl", None),
    ("ioperm", None),
    ("uselib", None),
    ("mknod", None),
    ("modify_ldt", None),
    ("_sysctl", None),
    ("ustat", None),
    ("sysfs", None),
];
