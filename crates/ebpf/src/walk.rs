//! Runs an iterator over sockets in every network namespace.

use crate::error::{Doing, Result};
use libbpf_rs::{Iter, Link};
use rustix::fs::fstatfs;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `f_type` in statfs(2).
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// Runs the iterator in each namespace that has processes or a name.
pub fn everywhere(link: &Link) -> Result<()> {
    // In a thread of its own, which moves from namespace to namespace and ends there.
    std::thread::scope(|scope| scope.spawn(|| walk_all(link, &namespaces())).join().expect("the walk does not panic"))
}

/// A namespace that cannot be entered does not end the walk. Returns the first error.
fn walk_all(link: &Link, namespaces: &[PathBuf]) -> Result<()> {
    namespaces.iter().map(|path| walk(link, path)).fold(Ok(()), Result::and)
}

/// Runs the iterator in that namespace. A namespace that has ended has no sockets.
fn walk(link: &Link, namespace: &Path) -> Result<()> {
    let Some(file) = open(namespace) else { return Ok(()) };
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).at("enter", namespace)?;
    let mut sockets = Iter::new(link).at("iterate in", namespace)?;
    sockets.read_to_end(&mut Vec::new()).map(drop).at("iterate in", namespace)
}

/// A file for each network namespace that has processes or a name.
pub fn namespaces() -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path().join("ns/net"));
    let named = std::fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.path());
    let known = processes.chain(named).filter_map(|path| Some((open(&path)?.metadata().ok()?.ino(), path)));
    known.collect::<BTreeMap<u64, PathBuf>>().into_values().collect()
}

/// The namespace of this file, if it has one. A name of ip-netns(8) is a plain file before its mount, and after it.
fn open(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    // Of what is open, not of the path, which may be mounted or unmounted at any moment.
    (fstatfs(&file).ok()?.f_type as u64 == NSFS_MAGIC).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_has_no_namespace_is_none() {
        let name = std::env::temp_dir().join(format!("sidestep-name-{}", std::process::id()));
        std::fs::write(&name, "").unwrap();
        assert!(open(&name).is_none());
        assert!(open(Path::new("/proc/self/ns/net")).is_some());
        std::fs::remove_file(&name).unwrap();
        assert!(open(&name).is_none());
    }
}
