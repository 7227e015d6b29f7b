//! Where a process runs, by its cgroup: in which pod of Kubernetes, or in which service of systemd.
//!
//! Only the first components of a path count, which root makes. A user to whom a cgroup is delegated makes what it likes below that.

use std::sync::Arc;

/// Where a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The pod's UID.
    pub pod: Option<u128>,
    /// The service unit of the system's manager, as `nginx.service`.
    pub service: Option<Arc<str>>,
}

/// Slices whose members are no services of the system.
const FOREIGN_SLICES: [&str; 3] = ["user.slice", "machine.slice", "kubepods.slice"];

impl Place {
    /// Of a process, by its number in this process's pid namespace. Nowhere, if it has ended.
    pub fn of_process(pid: u32) -> Place {
        std::fs::read_to_string(format!("/proc/{pid}/cgroup")).map(|text| Place::parse(&text)).unwrap_or_default()
    }

    /// `text`: as in `/proc/PID/cgroup`, a line for each hierarchy. Hierarchies that contradict each other say nothing.
    pub fn parse(text: &str) -> Place {
        let paths: Vec<&str> = text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).collect();
        Place {
            pod: agreed(paths.iter().map(|path| pod(path))),
            service: agreed(paths.iter().map(|path| service(path))),
        }
    }

    /// Whether it says something.
    pub fn is_known(&self) -> bool {
        self.pod.is_some() || self.service.is_some()
    }
}

/// What all say that say something.
fn agreed<T: PartialEq>(said: impl Iterator<Item = Option<T>>) -> Option<T> {
    let mut said = said.flatten();
    let first = said.next()?;
    said.all(|other| other == first).then_some(first)
}

/// The UID of the pod to which a cgroup belongs. The kubelet names them so, by its driver:
///
/// ```text
/// /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f0b8a52_..._c3.slice/cri-containerd-....scope
/// /kubepods/burstable/pod1f0b8a52-...-c3/...
/// ```
fn pod(path: &str) -> Option<u128> {
    let mut parts = path.split('/').skip(1);
    let root = parts.next()?;
    if root != "kubepods" && root != "kubepods.slice" {
        return None;
    }
    let class = |part: &str| {
        matches!(
            part.trim_end_matches(".slice"),
            "burstable" | "besteffort" | "kubepods-burstable" | "kubepods-besteffort"
        )
    };
    let name = parts.next().and_then(|part| if class(part) { parts.next() } else { Some(part) })?;
    let name = name.trim_end_matches(".slice");
    let uid = name.strip_prefix("pod").or_else(|| Some(name.split_once("-pod")?.1))?;
    let digits: String = uid.chars().filter(|digit| !matches!(digit, '-' | '_')).collect();
    (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok())?
}

/// The service to which a cgroup belongs: below slices of the system, as `/system.slice/nginx.service`.
fn service(path: &str) -> Option<Arc<str>> {
    let mut parts = path.split('/').skip(1);
    let mut part = parts.next()?;
    if !part.ends_with(".slice") || FOREIGN_SLICES.contains(&part) {
        return None;
    }
    while part.ends_with(".slice") {
        part = parts.next()?;
    }
    part.ends_with(".service").then(|| part.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: u128 = 0x1f0b8a52_0001_4e5f_9a8b_0123456789c3;

    fn pod_of(path: &str) -> Option<u128> {
        Place::parse(&format!("0::{path}\n")).pod
    }

    fn service_of(path: &str) -> Option<String> {
        Place::parse(&format!("0::{path}\n")).service.map(|name| name.to_string())
    }

    #[test]
    fn both_drivers_and_all_classes_name_the_pod() {
        for path in [
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f0b8a52_0001_4e5f_9a8b_0123456789c3.slice/cri-containerd-1.scope",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1f0b8a52_0001_4e5f_9a8b_0123456789c3.slice/x",
            "/kubepods.slice/kubepods-pod1f0b8a52_0001_4e5f_9a8b_0123456789c3.slice/x",
            "/kubepods/burstable/pod1f0b8a52-0001-4e5f-9a8b-0123456789c3/x",
            "/kubepods/pod1f0b8a52-0001-4e5f-9a8b-0123456789c3",
            "/kubepods/besteffort/pod1f0b8a5200014e5f9a8b0123456789c3/x",
        ] {
            assert_eq!(pod_of(path), Some(UID), "{path}");
        }
    }

    #[test]
    fn what_a_user_can_make_names_no_pod() {
        for path in [
            "/user.slice/user-1000.slice/user@1000.service/kubepods/pod1f0b8a52-0001-4e5f-9a8b-0123456789c3/x",
            "/kubepods/burstable/x/pod1f0b8a52-0001-4e5f-9a8b-0123456789c3",
            "/kubepods/burstable/pod1f0b8a52/pod1f0b8a52-0001-4e5f-9a8b-0123456789c3",
            "/../kubepods/pod1f0b8a52-0001-4e5f-9a8b-0123456789c3",
            "/system.slice/pod1f0b8a52-0001-4e5f-9a8b-0123456789c3",
            "/kubepods/podxf0b8a52-0001-4e5f-9a8b-0123456789c3",
            "/",
            "",
        ] {
            assert_eq!(pod_of(path), None, "{path}");
        }
    }

    #[test]
    fn services_of_the_system_are_named_and_no_others() {
        assert_eq!(service_of("/system.slice/nginx.service").as_deref(), Some("nginx.service"));
        assert_eq!(
            service_of("/system.slice/system-postgresql.slice/postgresql@15-main.service").as_deref(),
            Some("postgresql@15-main.service")
        );
        assert_eq!(service_of("/shop.slice/redis.service/inner").as_deref(), Some("redis.service"));
        for path in [
            "/user.slice/user-1000.slice/user@1000.service/app.slice/nginx.service",
            "/machine.slice/nginx.service",
            "/system.slice/cron.scope/nginx.service",
            "/nginx.service",
            "/system.slice",
        ] {
            assert_eq!(service_of(path), None, "{path}");
        }
    }

    #[test]
    fn hierarchies_must_agree() {
        let of = |lines: &[&str]| Place::parse(&lines.join("\n")).service.map(|name| name.to_string());
        let nginx = "1:name=systemd:/system.slice/nginx.service";
        assert_eq!(of(&["0::/", "2:cpu,cpuacct:/", nginx]).as_deref(), Some("nginx.service"));
        assert_eq!(of(&[nginx, "0::/system.slice/redis.service"]), None);
        assert_eq!(Place::parse("no line\n\n"), Place::default());
    }

    #[test]
    fn a_process_that_has_ended_is_nowhere() {
        assert!(!Place::of_process(u32::MAX).is_known());
    }
}
