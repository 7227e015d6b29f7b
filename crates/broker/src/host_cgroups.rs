//! A broker in a container. A container has a cgroup namespace of its own, in which the paths of other pods' cgroups begin with
//! `/..` and prove nothing ([`crate::cgroup`]). So the broker enters the namespace of process 1, which is the host's with `hostPID`.

use crate::rights;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;

/// The host's, if this process sees the host's processes.
const OF_THE_HOST: &str = "/proc/1/ns/cgroup";

/// Why the broker is not in the host's cgroup namespace.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum HostCgroupsError {
    #[error("--host-cgroups: cannot open {OF_THE_HOST}, which needs CAP_SYS_PTRACE and, in a pod, hostPID")]
    Open(#[source] io::Error),
    #[error("--host-cgroups: cannot enter {OF_THE_HOST}, which needs CAP_SYS_ADMIN")]
    Enter(#[source] Errno),
    #[error("--host-cgroups: cannot lower CAP_SYS_ADMIN again")]
    Lower(#[source] Errno),
}

/// Enters the host's cgroup namespace, and lowers CAP_SYS_ADMIN, which is raised again for a moment only: by [`crate::netns`] in a
/// thread that enters a pod's network namespace, and by [`crate::outbox`] for a descriptor over the limit of those in flight. Call it before there are other threads.
pub fn enter() -> Result<(), HostCgroupsError> {
    let namespace = File::open(OF_THE_HOST).map_err(HostCgroupsError::Open)?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::ControlGroup))
        .map_err(HostCgroupsError::Enter)?;
    rights::lower(CapabilitySet::SYS_ADMIN).map_err(HostCgroupsError::Lower)
}
