//! Describes the machine.

use super::Machine;
use procfs::{CpuInfo, Current, FromBufRead, Meminfo};
use std::fs;

impl Machine {
    /// Unknown values are left empty.
    pub fn detect() -> Machine {
        let cpus = CpuInfo::current().unwrap_or_else(|_| CpuInfo::from_buf_read(&b""[..]).expect("nothing to misread"));
        Machine {
            kernel: read("/proc/sys/kernel/osrelease"),
            cpu: model(&cpus),
            cores: cpus.num_cores(),
            memory: Meminfo::current().map_or(0, |memory| memory.mem_total),
            hypervisor: hypervisor(
                &cpus,
                &described(),
                &read("/sys/devices/system/clocksource/clocksource0/available_clocksource"),
            ),
            governor: Some(read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
                .filter(|name| !name.is_empty()),
            clocksource: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            distribution: distribution(&read("/etc/os-release")),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// ARM kernels report only numbers.
fn model(cpus: &CpuInfo) -> String {
    let part = || Some(format!("{} {}", cpus.get_field(0, "CPU implementer")?, cpus.get_field(0, "CPU part")?));
    cpus.model_name(0).map(str::to_owned).or_else(part).unwrap_or_default()
}

/// The manufacturer, according to the firmware.
fn described() -> String {
    let words = ["sys_vendor", "product_name", "bios_vendor"].map(|name| read(&format!("/sys/class/dmi/id/{name}")));
    format!("{} {}", words.join(" "), read("/sys/hypervisor/type"))
}

/// Words in `described` and names of clocks, in order of reliability.
const HYPERVISORS: [(&str, &str); 10] = [
    ("xen", "xen"),
    ("VMware", "vmware"),
    ("VirtualBox", "virtualbox"),
    ("Microsoft Corporation Virtual Machine", "hyper-v"),
    ("hyperv", "hyper-v"),
    ("KVM", "kvm"),
    ("kvm", "kvm"),
    ("QEMU", "kvm"),
    ("Amazon EC2", "kvm"),
    ("Google Compute Engine", "kvm"),
];

/// Amazon's machines may be bare metal: then the CPU's flags lack `hypervisor`. Without flags (ARM) the firmware counts.
fn hypervisor(cpus: &CpuInfo, described: &str, clocks: &str) -> Option<String> {
    let flagged = cpus.flags(0).map(|flags| flags.contains(&"hypervisor"));
    let known = HYPERVISORS.iter().find(|(word, _)| described.contains(word) || clocks.contains(word));
    let name = known.map(|(_, name)| (*name).to_owned());
    match flagged {
        Some(true) => name.or(Some("unknown".into())),
        Some(false) => None,
        None => name,
    }
}

fn distribution(release: &str) -> String {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or_default().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(flags: &str) -> CpuInfo {
        let text = format!("processor\t: 0\nmodel name\t: A CPU\nflags\t\t: {flags}\n\n");
        CpuInfo::from_buf_read(text.as_bytes()).unwrap()
    }

    #[test]
    fn hypervisors() {
        assert_eq!(hypervisor(&cpus("fpu hypervisor"), "", "tsc kvm-clock").as_deref(), Some("kvm"));
        assert_eq!(hypervisor(&cpus("fpu hypervisor"), "VMware, Inc.", "tsc").as_deref(), Some("vmware"));
        assert_eq!(hypervisor(&cpus("fpu hypervisor"), "", "tsc").as_deref(), Some("unknown"));
        assert_eq!(hypervisor(&cpus("fpu"), "Amazon EC2 c5.metal", "tsc"), None);
    }

    #[test]
    fn names() {
        assert_eq!(model(&cpus("fpu")), "A CPU");
        assert_eq!(distribution("NAME=\"D\"\nPRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian"), "Debian GNU/Linux 12");
    }

    #[test]
    fn this_machine_is_known() {
        let here = Machine::detect();
        assert!(here.cores > 0 && here.memory > 0 && !here.kernel.is_empty(), "{here:?}");
    }
}
