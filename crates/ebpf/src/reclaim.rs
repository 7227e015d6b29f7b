//! Ends connected UDP sockets whose backend has gone, in every network namespace.

use crate::error::{Doing, Result};
use crate::{services, walk};
use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use sidestep_bpf::reclaim::ReclaimSkelBuilder;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;

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
    walk::everywhere(&link)?;
    Ok(skeleton.maps.bss_data.as_deref().map_or(0, |data| data.destroyed))
}
