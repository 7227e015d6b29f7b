//! Drops privileges after the start. An attacker who takes over the agent has six capabilities, cannot execute programs that
//! gain privileges, and cannot make system calls that only administrators need.

use crate::settings::{Settings, SourceSettings};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};
use std::collections::BTreeMap;

/// The purpose of each:
/// - BPF: programs and tables.
/// - NET_ADMIN: programs at sockets and network namespaces, and aborting sockets.
/// - NET_BROADCAST: receiving changes of addresses and routes in network namespaces of pods.
/// - PERFMON: programs that read kernel types; without it the verifier also takes twice as long.
/// - SYS_ADMIN: entering network namespaces of pods.
/// - SYS_PTRACE: finding them by processes of other users.
pub const NEEDED: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_BROADCAST)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_PTRACE);

/// Lower ports need a capability.
const FIRST_ORDINARY_PORT: u16 = 1024;

/// Why privileges could not be dropped.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    #[error("cannot drop capabilities")]
    Capabilities(#[source] Errno),
    #[error("cannot set no_new_privs")]
    NoNewPrivs(#[source] Errno),
    #[error("cannot install the seccomp filter")]
    Seccomp(#[source] seccompiler::Error),
}

/// Applies to the calling thread and to those that it starts later: call it before there are other threads.
pub fn drop_others(settings: &Settings) -> Result<(), PrivilegeError> {
    let has_low_port = settings.metrics.is_some_and(|address| address.port() < FIRST_ORDINARY_PORT);
    let kept = if has_low_port { NEEDED | CapabilitySet::NET_BIND_SERVICE } else { NEEDED };
    keep(kept).map_err(PrivilegeError::Capabilities)?;
    set_no_new_privs(true).map_err(PrivilegeError::NoNewPrivs)?;
    // The kubeconfig may name a program that supplies credentials.
    let may_execute = matches!(settings.source, SourceSettings::Kubeconfig(_));
    forbid(may_execute).map_err(PrivilegeError::Seccomp)
}

fn keep(kept: CapabilitySet) -> rustix::io::Result<()> {
    for bit in (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
        if kept.contains(bit) {
            continue;
        }
        match remove_capability_from_bounding_set(bit) {
            Ok(()) => {}
            // The number is above the kernel's last capability.
            Err(Errno::INVAL) => break,
            // CAP_SETPCAP is missing: the process that started the agent has limited the bounding set.
            Err(Errno::PERM) => break,
            Err(error) => return Err(error),
        }
    }
    clear_ambient_capability_set()?;
    let held = capabilities(None)?.permitted & kept;
    set_capabilities(None, CapabilitySets { effective: held, permitted: held, inheritable: CapabilitySet::empty() })
}

/// System calls that fail with EPERM.
const FORBIDDEN: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_setup,
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

const OF_PROGRAMS: [libc::c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];

fn forbid(may_execute: bool) -> Result<(), seccompiler::Error> {
    let of_programs = if may_execute { &[][..] } else { &OF_PROGRAMS };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FORBIDDEN.iter().chain(of_programs).map(|call| (*call, Vec::new())).collect();
    // setns(2) may only enter network namespaces; the type is its second argument.
    let network = u64::from(libc::CLONE_NEWNET.unsigned_abs());
    let other = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, network)?;
    rules.insert(libc::SYS_setns, vec![SeccompRule::new(vec![other])?]);
    let refused = SeccompAction::Errno(Errno::PERM.raw_os_error().unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, std::env::consts::ARCH.try_into()?)?;
    let program: BpfProgram = filter.try_into()?;
    apply_filter(&program)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `work` in a thread of its own, since the restrictions cannot be undone.
    fn confined<T: Send>(may_execute: bool, work: impl FnOnce() -> T + Send) -> T {
        let confine = || {
            set_no_new_privs(true).unwrap();
            forbid(may_execute).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(confine).join().unwrap())
    }

    /// The systemd unit grants the capabilities that the agent keeps, and the manual lists them.
    #[test]
    fn unit_and_manual_name_the_same_capabilities() {
        let unit = include_str!("../../../dist/systemd/sidestep-agent.service");
        let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
        let named: CapabilitySet =
            line.split(' ').map(|name| CapabilitySet::from_name(name.strip_prefix("CAP_").unwrap()).unwrap()).collect();
        assert_eq!(named, NEEDED);
        let manual = include_str!("../../../docs/man/sidestep-agent.8.md");
        let privileges = manual.split("# PRIVILEGES").nth(1).unwrap().split("\n# ").next().unwrap();
        for name in line.split(' ') {
            assert!(privileges.contains(name), "{name} is not in the manual");
        }
    }

    #[test]
    fn forbidden_calls_fail_and_others_go_on() {
        use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
        confined(false, || {
            let own = |name: &str| std::fs::File::open(format!("/proc/thread-self/ns/{name}")).unwrap();
            let enter = |file: &std::fs::File, kind| {
                use std::os::fd::AsFd;
                move_into_link_name_space(file.as_fd(), Some(kind))
            };
            assert_eq!(enter(&own("uts"), LinkNameSpaceType::HostNameAndNISDomainName), Err(Errno::PERM));
            assert_eq!(enter(&own("net"), LinkNameSpaceType::Network), Ok(()), "this test needs root");
            assert!(std::thread::spawn(|| 5).join().is_ok());
        });
    }

    #[test]
    fn programs_are_only_started_for_a_kubeconfig() {
        let run = || std::process::Command::new("true").status().map(|status| status.success()).map_err(|e| e.kind());
        assert_eq!(confined(true, run), Ok(true));
        assert_eq!(confined(false, run), Err(std::io::ErrorKind::PermissionDenied));
    }
}
