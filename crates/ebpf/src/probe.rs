//! Checks what the kernel must support before anything is loaded, so that the message names what is missing, and not an
//! instruction that the verifier rejected.

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;
use libbpf_rs::libbpf_sys::{BPF_FUNC_get_netns_cookie, BPF_PROG_TYPE_CGROUP_SKB, libbpf_probe_bpf_helper};
use libbpf_rs::{MapType, ProgramType};
use rustix::thread::{CapabilitySet, capabilities};

/// A feature that the kernel must have, with the release that brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feature {
    Program(&'static str, ProgramType),
    Map(&'static str, MapType),
    /// A function in the kernel's BTF.
    Function(&'static str, &'static str),
}

const FEATURES: [Feature; 9] = [
    Feature::Program("cgroup socket address hooks (4.17)", ProgramType::CgroupSockAddr),
    Feature::Program("cgroup socket hooks (4.10)", ProgramType::CgroupSock),
    Feature::Program("hooks at the states of TCP connections (4.13)", ProgramType::SockOps),
    Feature::Program("getsockopt hooks (5.3)", ProgramType::CgroupSockopt),
    Feature::Map("socket storage (5.2)", MapType::SkStorage),
    Feature::Map("ring buffers (5.8)", MapType::RingBuf),
    Feature::Map("LRU hash maps (4.10)", MapType::LruHash),
    Feature::Map("tables of prefixes (4.11)", MapType::LpmTrie),
    Feature::Map("tables of sockets (4.18)", MapType::Sockhash),
];

/// Features that only capture needs.
const OF_CAPTURE: [Feature; 2] = [
    Feature::Program("hook at the look-up of listeners, sk_lookup (5.9)", ProgramType::SkLookup),
    Feature::Function("iterator over TCP sockets (5.9)", "bpf_iter_tcp"),
];

/// Features that only packets from elsewhere need.
const OF_PACKETS: [Feature; 3] = [
    Feature::Function("translation by programs at devices (6.1)", "bpf_ct_set_nat_info"),
    Feature::Function("programs at devices that several users may attach, tcx (6.6)", "tcx_prog_attach"),
    // Of the same release.
    Feature::Function("the source address of a route, for programs at devices (6.7)", "bpf_iter_task_new"),
];

/// Capabilities without which nothing can be loaded.
const LEAST: [(&str, CapabilitySet); 2] =
    [("CAP_BPF", CapabilitySet::BPF), ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN)];

/// What the kernel or this process lacks, in words for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct Missing(Vec<String>);

impl Missing {
    /// An error unless `found` is empty.
    pub fn check(found: Vec<String>) -> Result<(), Missing> {
        if found.is_empty() { Ok(()) } else { Err(Missing(found)) }
    }
}

/// What is missing, in words for an operator.
pub fn missing() -> Vec<String> {
    let found = privileges(&LEAST);
    if !found.is_empty() {
        return found; // without these capabilities the other probes fail
    }
    let Ok(types) = Btf::from_vmlinux() else {
        let mut found = lacking(&FEATURES, |feature| has(feature, None));
        found.push("the kernel has no type information (CONFIG_DEBUG_INFO_BTF)".into());
        return found;
    };
    let mut found = lacking(&FEATURES, |feature| has(feature, Some(&types)));
    if types.type_by_name::<Func>("bpf_sock_destroy").is_none() {
        found.push("the kernel's programs cannot abort sockets (6.5)".into());
    }
    found
}

/// What packets from elsewhere lack besides, in words for an operator.
pub fn missing_for_packets() -> Vec<String> {
    let found = privileges(&[("CAP_PERFMON", CapabilitySet::PERFMON)]);
    if !found.is_empty() {
        return found;
    }
    let types = Btf::from_vmlinux().ok();
    lacking(&OF_PACKETS, |feature| has(feature, types.as_ref()))
}

/// What capture lacks besides, in words for an operator.
pub fn missing_for_capture() -> Vec<String> {
    let found = privileges(&[("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN)]);
    if !found.is_empty() {
        return found;
    }
    let types = Btf::from_vmlinux().ok();
    lacking(&OF_CAPTURE, |feature| has(feature, types.as_ref()))
}

fn has(feature: Feature, types: Option<&Btf>) -> bool {
    match feature {
        Feature::Program(_, kind) => kind.is_supported().unwrap_or(false),
        Feature::Map(_, kind) => kind.is_supported().unwrap_or(false),
        Feature::Function(_, name) => types.is_some_and(|types| types.type_by_name::<Func>(name).is_some()),
    }
}

fn lacking(features: &[Feature], has: impl Fn(Feature) -> bool) -> Vec<String> {
    let missing = features.iter().filter(|feature| !has(**feature));
    missing
        .map(|(Feature::Program(what, _) | Feature::Map(what, _) | Feature::Function(what, _))| {
            format!("the kernel has no {what}")
        })
        .collect()
}

/// What splicing lacks. The sockmap has long been able to join two sockets. Three more features came one by one: it counts
/// unread bytes (which bounds them), FIONREAD reports them, and ordinary connections of an MPTCP listener may enter. The
/// presence of the latest shows that all are there.
pub fn missing_for_splice() -> Vec<String> {
    let mut found = privileges(&LEAST);
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

/// Whether programs may read kernel types. If not, they cannot tell which sockets are the kernel's own, nor which IPv6 sockets
/// are IPV6_V6ONLY.
pub fn may_read_kernel() -> bool {
    let held = capabilities(None).map(|sets| sets.effective).unwrap_or(CapabilitySet::empty());
    held.intersects(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN)
}

/// Whether packet programs have bpf_get_netns_cookie() (6.15).
pub fn has_netns_helper() -> bool {
    // SAFETY: two numbers, and no options.
    unsafe { libbpf_probe_bpf_helper(BPF_PROG_TYPE_CGROUP_SKB, BPF_FUNC_get_netns_cookie, std::ptr::null()) == 1 }
}

fn privileges(wanted: &[(&str, CapabilitySet)]) -> Vec<String> {
    let held = capabilities(None).map(|sets| sets.effective).unwrap_or(CapabilitySet::empty());
    if held.contains(CapabilitySet::SYS_ADMIN) {
        return Vec::new();
    }
    let lacking = wanted.iter().filter(|(_, capability)| !held.contains(*capability));
    lacking.map(|(name, _)| format!("this process has no {name}: run it as root")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_lacks_is_named_with_the_release_that_brought_it() {
        let old = |feature| !matches!(feature, Feature::Program(_, ProgramType::SkLookup) | Feature::Function(..));
        assert_eq!(
            lacking(&OF_CAPTURE, old),
            [
                "the kernel has no hook at the look-up of listeners, sk_lookup (5.9)",
                "the kernel has no iterator over TCP sockets (5.9)"
            ]
        );
        let without_sockopt = |feature| !matches!(feature, Feature::Program(_, ProgramType::CgroupSockopt));
        assert_eq!(lacking(&FEATURES, without_sockopt), ["the kernel has no getsockopt hooks (5.3)"]);
        assert_eq!(lacking(&FEATURES, |feature| !matches!(feature, Feature::Map(..))).len(), 5);
        assert!(lacking(&FEATURES, |_| true).is_empty());
        assert_eq!(Missing::check(Vec::new()), Ok(()));
        assert_eq!(
            Missing::check(vec!["no this".into(), "no that".into()]).unwrap_err().to_string(),
            "no this; no that"
        );
    }
}
