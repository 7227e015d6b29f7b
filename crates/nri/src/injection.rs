//! What a container gets: two mounts and two variables, and nothing else.

use crate::api::{Container, ContainerAdjustment, KeyValue, Mount};
use crate::reason::Reason;
use crate::store;
use sidestep_abi::env::BROKER;
use std::path::{Component, Path, PathBuf};

const LD_PRELOAD: &str = "LD_PRELOAD";
/// Most bytes of LD_PRELOAD: half of what the kernel takes for one variable of a new program.
const LONGEST_PRELOAD: usize = 64 * 1024;
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
        values(container, LD_PRELOAD)
            .flat_map(libraries)
            .any(|name| is_ours(name) && Path::new(name).starts_with(&self.library))
    }

    fn variables(&self, container: &Container, version: &Path) -> Result<Vec<KeyValue>, Reason> {
        let present: Vec<_> = values(container, LD_PRELOAD).filter(|preload| !preload.is_empty()).collect();
        let has_own =
            values(container, BROKER).next().is_some() || present.iter().copied().flat_map(libraries).any(is_ours);
        let (false, [] | [_]) = (has_own, &present[..]) else { return Err(Reason::OwnSettings) };
        let present = present.first();
        let library = version.join(store::LIBRARY).display().to_string();
        let preload = present.map_or_else(|| library.clone(), |present| format!("{present}:{library}"));
        if preload.len() > LONGEST_PRELOAD {
            return Err(Reason::OwnSettings);
        }
        let socket = self.member.join(&self.socket).display().to_string();
        // Two plugins that set one variable are a conflict, for which the runtime would refuse the container. Taking the
        // variable away first gives it to us; its value is part of ours.
        let taken = present.map(|_| variable(&format!("-{LD_PRELOAD}"), String::new()));
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

/// The names in an LD_PRELOAD.
fn libraries(preload: &str) -> impl Iterator<Item = &str> {
    preload.split([':', ' ']).filter(|name| !name.is_empty())
}

fn is_ours(library: &str) -> bool {
    Path::new(library).file_name().is_some_and(|name| name == store::LIBRARY)
}

/// Whether a mount of the container and one at `target` do not go together: they cover each other, or no directory for ours can
/// be made in theirs, for which the runtime would refuse the container.
fn conflicts(mount: &Mount, target: &Path) -> bool {
    let destination = plain(&mount.destination);
    if destination.starts_with(target) {
        return true;
    }
    let takes_directories = mount.r#type == "tmpfs" || mount.source.contains(EMPTY_DIR);
    let is_writable = !mount.options.iter().any(|option| option == "ro");
    target.starts_with(&destination) && !(takes_directories && is_writable)
}

/// A path without `.` and `..`, and with `/run` for `/var/run`, which is a link to it in most images.
fn plain(path: &str) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => _ = plain.pop(),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain.strip_prefix("/var/run").map(|rest| Path::new("/run").join(rest)).unwrap_or(plain)
}

#[cfg(test)]
mod tests;
