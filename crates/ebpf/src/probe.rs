//! What the kernel must be able to do, looked at before anything is loaded: so that the message says what is missing,
//! not which instruction a verifier did not like.

use libbpf_rs::btf::{Btf, types::Func};
use libbpf_rs::{MapType, ProgramType};
use rustix::thread::{CapabilitySet, capabilities};

/// What is missing, in words for an operator. Empty: everything is there.
pub fn missing() -> Vec<String> {
    let mut found = privileges();
    if !found.is_empty() {
        return found; // without them the rest cannot be asked
    }
    let programs = [
        ("cgroup socket address hooks (4.17)", ProgramType::CgroupSockAddr),
        ("cgroup socket hooks (4.10)", ProgramType::CgroupSock),
    ];
    let maps = [
        ("socket storage (5.2)", MapType::SkStorage),
        ("ring buffers (5.8)", MapType::RingBuf),
        ("LRU hash maps (4.10)", MapType::LruHash),
    ];
    let programs = programs.into_iter().filter(|(_, kind)| !kind.is_supported().unwrap_or(false)).map(|(what, _)| what);
    let maps = maps.into_iter().filter(|(_, kind)| !kind.is_supported().unwrap_or(false)).map(|(what, _)| what);
    found.extend(programs.chain(maps).map(|what| format!("the kernel has no {what}")));
    match Btf::from_vmlinux() {
        Err(_) => found.push("the kernel has no type information (CONFIG_DEBUG_INFO_BTF)".into()),
        Ok(types) if types.type_by_name::<Func>("bpf_sock_destroy").is_none() => {
            found.push("the kernel's programs cannot abort sockets (6.5)".into());
        }
        Ok(_) => {}
    }
    found
}

/// What splicing needs. The kernel's sockmap has been able to join two sockets for long; that it counts what waits unread,
/// which bounds it, that it tells FIONREAD, and that an MPTCP listener's ordinary connections may enter came one by one. The
/// last to come shows that all are there.
pub fn missing_for_splice() -> Vec<String> {
    let mut found = privileges();
    if found.is_empty() && !may_read_kernel() {
        found.push("this process has no CAP_PERFMON: run it as root".into());
    }
    if !found.is_empty() {
        return found;
    }
    let programs = [("socket operation hooks", ProgramType::SockOps), ("message hooks", ProgramType::SkMsg)];
    let programs = programs.into_iter().filter(|(_, kind)| !kind.is_supported().unwrap_or(false)).map(|(what, _)| what);
    found.extend(programs.map(|what| format!("the kernel has no {what}")));
    match Btf::from_vmlinux() {
        Err(_) => found.push("the kernel has no type information (CONFIG_DEBUG_INFO_BTF)".into()),
        Ok(types) if types.type_by_name::<Func>("tcp_bpf_ioctl").is_none() => {
            found.push("the kernel's sockmap does not know what is unread (7.0, and 6.18 with its later fixes)".into());
        }
        Ok(_) => {}
    }
    found
}

/// Whether programs may read the kernel's own types. Two things are not known without that: which sockets are the
/// kernel's, and which IPv6 sockets are for IPv6 only.
pub fn may_read_kernel() -> bool {
    let held = capabilities(None).map(|sets| sets.effective).unwrap_or(CapabilitySet::empty());
    held.intersects(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN)
}

fn privileges() -> Vec<String> {
    let wanted = [("CAP_BPF", CapabilitySet::BPF), ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN)];
    let held = capabilities(None).map(|sets| sets.effective).unwrap_or(CapabilitySet::empty());
    if held.contains(CapabilitySet::SYS_ADMIN) {
        return Vec::new();
    }
    let lacking = wanted.into_iter().filter(|(_, capability)| !held.contains(*capability));
    lacking.map(|(name, _)| format!("this process has no {name}: run it as root")).collect()
}
