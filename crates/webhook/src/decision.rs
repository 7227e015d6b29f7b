//! What becomes of the containers of a pod.

use crate::case::Case;
use crate::nodes::Nodes;
use crate::places::Places;
use crate::pod::{Container, Pod};
use sidestep_injection::{BROKER, Enrolment, LD_PRELOAD, Reason, conflict, enrolment, extended, names_library_below};
use std::collections::HashSet;

/// What becomes of a container.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nobody asks for rings.
    Nothing,
    /// It is left as it is.
    LeftOut(Reason),
    /// It has what it needs.
    Present,
    /// It gets the mounts and the variables, of which LD_PRELOAD has this value.
    Inject(String),
}

/// Decides about the containers of one pod.
pub struct Decider<'a> {
    pub pod: &'a Pod,
    pub case: Case,
    pub places: &'a Places,
    /// Why no container of the pod can have the library.
    obstacle: Option<Reason>,
    /// Names of the pod's volumes of the kind `emptyDir`: a set, since a pod may have tens of thousands, and as many mounts.
    empty_dirs: HashSet<&'a str>,
}

impl<'a> Decider<'a> {
    pub fn new(pod: &'a Pod, case: Case, places: &'a Places, nodes: &Nodes, may_add_volumes: bool) -> Decider<'a> {
        let obstacle = obstacle(pod, case, nodes).or_else(|| volumes(pod, places, may_add_volumes));
        let empty_dirs = pod.spec.volumes.iter().filter(|volume| volume.empty_dir.is_some());
        let empty_dirs = empty_dirs.map(|volume| volume.name.as_str()).collect();
        Decider { pod, case, places, obstacle, empty_dirs }
    }

    pub fn decide(&self, container: &Container) -> Decision {
        let decided = match enrolment(self.pod, &container.name, || self.case.is_namespace_enrolled) {
            Enrolment::No => return Decision::Nothing,
            Enrolment::Without(reason) => Err(reason),
            Enrolment::Yes => self.obstacle.map_or_else(|| self.additions(container), Err),
        };
        decided.unwrap_or_else(Decision::LeftOut)
    }

    fn additions(&self, container: &Container) -> Result<Decision, Reason> {
        if self.is_in(container) {
            return Ok(Decision::Present);
        }
        if self.conflicts(container) {
            return Err(Reason::MountConflict);
        }
        let values: Vec<_> = container.env.iter().filter(|variable| variable.name == LD_PRELOAD).collect();
        let is_unknown = match &values[..] {
            [] => container.env_from.iter().any(|source| LD_PRELOAD.starts_with(&source.prefix)),
            // The kubelet takes the last one of several.
            [one] => one.value_from.is_some(),
            _ => true,
        };
        if is_unknown {
            return Err(Reason::UnknownPreload);
        }
        let sets_broker = container.env.iter().any(|variable| variable.name == BROKER);
        extended(values.iter().map(|one| one.value.as_str()), sets_broker, &self.places.file()).map(Decision::Inject)
    }

    /// Whether an earlier call has changed the container.
    fn is_in(&self, container: &Container) -> bool {
        let is_preloaded = container
            .env
            .iter()
            .any(|variable| variable.name == LD_PRELOAD && names_library_below(&variable.value, &self.places.library));
        let mut mounts = container.volume_mounts.iter();
        let library = self.places.library_volume();
        is_preloaded && mounts.any(|mount| mount.name == library.name && mount.mount_path == library.path())
    }

    fn conflicts(&self, container: &Container) -> bool {
        self.places.volumes().iter().any(|ours| {
            container.volume_mounts.iter().any(|mount| {
                let takes_directories = !mount.read_only && self.empty_dirs.contains(mount.name.as_str());
                conflict(&mount.mount_path, takes_directories, &ours.path)
            })
        })
    }
}

fn obstacle(pod: &Pod, case: Case, nodes: &Nodes) -> Option<Reason> {
    if pod.is_for_other_system() {
        return Some(Reason::OtherSystem);
    }
    if !case.permits_host_paths {
        return Some(Reason::PodSecurity);
    }
    // The kubelet would have the runtime map users in our volumes, which not every file system of a node can do.
    if pod.spec.host_users == Some(false) {
        return Some(Reason::UserNamespace);
    }
    (!nodes.all_have_library(pod)).then_some(Reason::OtherNodes)
}

/// Volumes of our names that are others, or that are missing where none can be added.
fn volumes(pod: &Pod, places: &Places, may_add: bool) -> Option<Reason> {
    places.volumes().iter().find_map(|ours| match pod.spec.volumes.iter().find(|volume| volume.name == ours.name) {
        Some(present) => {
            let is_ours = present.host_path.as_ref().is_some_and(|host| host.path == ours.path());
            (!is_ours).then_some(Reason::OwnSettings)
        }
        None => (!may_add).then_some(Reason::CreatedBefore),
    })
}

#[cfg(test)]
mod tests;
