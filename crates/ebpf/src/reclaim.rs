//! Ends connected UDP sockets whose backend has gone, in every network namespace.

use crate::error::{Doing, Result};
use crate::services;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, MapHandle};
use rustix::fs::statfs;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sidestep_bpf::reclaim::ReclaimSkelBuilder;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// In statfs(2).
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// Aborts them and returns how many there were. Namespaces are found by the processes in them and by the names that
/// ip-netns(8) gives them.
pub fn run(pins: &Path) -> Result<u64> {
    let directory = services::maps_path(pins)?;
    let mut object = MaybeUninit::uninit();
    let mut open = ReclaimSkelBuilder::default().open(&mut object).doing("read the reclaiming program")?;
    for (name, map) in [
        ("translations", &mut open.maps.translations),
        ("members", &mut open.maps.members),
        ("backends", &mut open.maps.backends),
    ] {
        let pinned = MapHandle::from_pinned_path(directory.join(name)).at("open", &directory.join(name))?;
        map.reuse_fd(pinned.as_fd()).at("use", &directory.join(name))?;
    }
    let skeleton = open.load().doing("load the reclaiming program")?;
    let link = skeleton.progs.reclaim_udp.attach().doing("attach the iterator")?;
    // A thread of its own moves from namespace to namespace and ends there.
    std::thread::scope(|scope| scope.spawn(|| walk_all(&link, &namespaces())).join().expect("it does not panic"))?;
    Ok(skeleton.maps.bss_data.as_deref().map_or(0, |data| data.destroyed))
}

/// One that cannot be entered keeps nobody from the others. The first error is told.
fn walk_all(link: &libbpf_rs::Link, namespaces: &[PathBuf]) -> Result<()> {
    namespaces.iter().map(|path| walk(link, path)).fold(Ok(()), Result::and)
}

/// Runs the iterator in that namespace. One that has gone meanwhile has no sockets.
fn walk(link: &libbpf_rs::Link, namespace: &Path) -> Result<()> {
    let Ok(file) = File::open(namespace) else { return Ok(()) };
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).at("enter", namespace)?;
    let mut sockets = Iter::new(link).at("iterate in", namespace)?;
    sockets.read_to_end(&mut Vec::new()).map(drop).at("iterate in", namespace)
}

/// A file for each network namespace that has processes or a name.
fn namespaces() -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path().join("ns/net"));
    let named = std::fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.path());
    let known = processes.chain(named).filter(|path| is_namespace(path));
    let known = known.filter_map(|path| Some((std::fs::metadata(&path).ok()?.ino(), path)));
    known.collect::<BTreeMap<u64, PathBuf>>().into_values().collect()
}

/// A name that ip-netns(8) has given stays as a plain file if the machine, or a mount namespace, has gone meanwhile.
fn is_namespace(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.f_type as u64 == NSFS_MAGIC)
}
