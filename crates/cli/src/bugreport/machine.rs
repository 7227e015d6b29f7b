//! The kernel and what of the system matters to Sidestep. The host's name is not said.

use std::io::Read;
use std::path::Path;

/// Files that are kept as they are.
const FILES: &[&str] = &[
    "/etc/os-release",
    "/sys/kernel/security/lsm",
    "/proc/sys/kernel/unprivileged_bpf_disabled",
    "/proc/sys/net/core/bpf_jit_enable",
    "/proc/sys/net/core/bpf_jit_harden",
    "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/net/ipv4/ip_local_port_range",
    "/proc/sys/vm/overcommit_memory",
    "/proc/self/limits",
    "/proc/self/cgroup",
    "/proc/self/uid_map",
];
/// File systems whose mounts are said.
const MOUNTS: &[&str] = &["cgroup2", "cgroup", "bpf"];
/// Most bytes of a file.
const MOST: u64 = 16 << 10;

pub fn text() -> String {
    let uname = rustix::system::uname();
    let mut text = format!(
        "{} {} {} {}\n",
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy(),
        uname.version().to_string_lossy(),
        uname.machine().to_string_lossy()
    );
    text += &format!("{} processors\n", std::thread::available_parallelism().map_or(0, usize::from));
    text += &format!("BTF: {}\n", Path::new("/sys/kernel/btf/vmlinux").exists());
    text += &mounts(&read("/proc/self/mounts"));
    for file in FILES {
        text += &format!("\n== {file}\n{}\n", read(file).trim_end());
    }
    text
}

fn mounts(all: &str) -> String {
    let is_ours = |line: &&str| line.split(' ').nth(2).is_some_and(|kind| MOUNTS.contains(&kind));
    all.lines().filter(is_ours).map(|line| format!("{line}\n")).collect()
}

/// Its beginning, or why it cannot be read.
fn read(file: &str) -> String {
    let mut text = Vec::new();
    match std::fs::File::open(file).and_then(|opened| opened.take(MOST).read_to_end(&mut text)) {
        Ok(_) => String::from_utf8_lossy(&text).into_owned(),
        Err(e) => e.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_named_and_the_host_is_not() {
        let text = text();
        assert!(text.starts_with("Linux "), "{text}");
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert!(host.is_empty() || !text.contains(&format!(" {host} ")), "{text}");
    }

    #[test]
    fn only_mounts_that_matter_are_said() {
        let all = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n//server/secret /home cifs user=a 0 0\nbpf /sys/fs/bpf bpf rw 0 0\n";
        assert_eq!(mounts(all), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\nbpf /sys/fs/bpf bpf rw 0 0\n");
    }
}
