//! What a container gets: two mounts and two variables, and nothing else.

use crate::api::{Container, ContainerAdjustment, KeyValue, Mount};
use crate::store;
use sidestep_injection::{BROKER, LD_PRELOAD, LIBRARY, Reason, conflict, extended, names_library_below};
use std::path::{Path, PathBuf};

/// Part of the path of each volume of the kind `emptyDir`, which the kubelet makes.
const EMPTY_DIR: &str = "/kubernetes.io~empty-dir/";

/// Where things are on the node. They have the same paths in containers.
#[derive(Clone, Debug)]
pub struct Injection {
    /// The directory with the versions of the library, and the link `current`.
    pub library: PathBuf,
    /// The directory of the broker's socket for members.
    pub member: PathBuf,
    /// The socket's name in that directory.
    pub socket: String,
}

impl Injection {
    /// What is to be added to a container.
    pub fn adjustment(&self, container: &Container) -> Result<ContainerAdjustment, Reason> {
        let version = store::current(&self.library).ok_or(Reason::NoLibrary)?;
        if !self.member.is_dir() {
            return Err(Reason::NoBroker);
        }
        if [&version, &self.member].iter().any(|target| container.mounts.iter().any(|mount| conflicts(mount, target))) {
            return Err(Reason::MountConflict);
        }
        let env = self.variables(container, &version)?;
        let mounts =
            vec![read_only(&version, &["nosuid", "nodev"]), read_only(&self.member, &["nosuid", "nodev", "noexec"])];
        Ok(ContainerAdjustment { mounts, env })
    }

    /// Whether a container has what [`Injection::adjustment`] adds.
    pub fn is_in(&self, container: &Container) -> bool {
        values(container, LD_PRELOAD).any(|value| names_library_below(value, &self.library))
    }

    fn variables(&self, container: &Container, version: &Path) -> Result<Vec<KeyValue>, Reason> {
        let sets_broker = values(container, BROKER).next().is_some();
        let preload = extended(values(container, LD_PRELOAD), sets_broker, &version.join(LIBRARY))?;
        let socket = self.member.join(&self.socket).display().to_string();
        // Two plugins that set one variable are a conflict, for which the runtime would refuse the container. Taking the
        // variable away first gives it to us; its value is part of ours.
        let is_present = values(container, LD_PRELOAD).any(|value| !value.is_empty());
        let taken = is_present.then(|| variable(&format!("-{LD_PRELOAD}"), String::new()));
        Ok(taken.into_iter().chain([variable(LD_PRELOAD, preload), variable(BROKER, socket)]).collect())
    }
}

fn variable(key: &str, value: String) -> KeyValue {
    KeyValue { key: key.into(), value }
}

fn read_only(path: &Path, further: &[&str]) -> Mount {
    let path = path.display().to_string();
    let options = ["rbind", "rprivate", "ro"].iter().chain(further).map(|option| (*option).into()).collect();
    Mount { destination: path.clone(), r#type: "bind".into(), source: path, options }
}

/// The values of all entries for a variable. Runtimes keep one for each.
fn values<'a>(container: &'a Container, name: &str) -> impl Iterator<Item = &'a str> {
    let entries = container.env.iter().filter_map(|entry| entry.split_once('='));
    entries.filter(move |(key, _)| *key == name).map(|(_, value)| value)
}

/// Whether a mount of the container and one at `target` do not go together.
fn conflicts(mount: &Mount, target: &Path) -> bool {
    // containerd gives "rro" in place of "ro" for mounts that are read-only with all that is mounted below them.
    let is_writable = !mount.options.iter().any(|option| matches!(option.as_str(), "ro" | "rro"));
    let takes_directories = is_writable && (mount.r#type == "tmpfs" || mount.source.contains(EMPTY_DIR));
    conflict(&mount.destination, takes_directories, target)
}

#[cfg(test)]
mod tests;
