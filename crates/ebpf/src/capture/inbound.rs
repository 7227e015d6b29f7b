//! The program of one pod that gives inbound connections to its proxy: loaded for its namespace, attached there, pinned
//! under the namespace's cookie.

use crate::error::{Doing, Result};
use crate::layout::MapData;
use crate::links::set_program;
use crate::services;
use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use sidestep_bpf::inbound::InboundSkelBuilder;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

const PROGRAM: &str = "inbound";

/// Attaches it, or exchanges the one that is attached.
pub fn install(pins: &Path, namespace: &Path, cookie: u64) -> Result<()> {
    let path = services::inbound_path(pins)?.join(cookie.to_string());
    let mut object = MaybeUninit::uninit();
    let mut open = InboundSkelBuilder::default().open(&mut object).doing("read the inbound program")?;
    open.maps.rodata_data.as_deref_mut().expect("the program has settings").netns = cookie;
    services::use_pinned(open.open_object_mut(), pins)?;
    let mut skeleton = open.load().doing("load the inbound program")?;
    let program = skeleton.object_mut().progs_mut().find(|program| program.name() == PROGRAM).expect("it is there");
    if path.exists() {
        let link = Link::open(&path).at("open", &path)?;
        return set_program(&link, program.as_fd()).at("exchange the program of", &path);
    }
    let file = File::open(namespace).at("open", namespace)?;
    let mut link = program.attach_netns(file.as_raw_fd()).at("attach the inbound program to", namespace)?;
    link.pin(&path).at("pin", &path)
}

/// Whether the namespace still is. A link outlives it, but is attached to nothing then.
pub fn is_alive(pins: &Path, cookie: u64) -> bool {
    let path = services::inbound_path(pins).map(|directory| directory.join(cookie.to_string()));
    let info = path.ok().and_then(|path| Link::open(path).ok()).and_then(|link| link.info().ok());
    matches!(info.map(|info| info.info), Some(LinkTypeInfo::NetNs(found)) if found.ino != 0)
}

/// Takes it away, unless the pod is captured or judged.
pub fn remove_unused(pins: &Path, cookie: u64) -> Result<()> {
    let directory = services::maps_path(pins)?;
    for table in ["pods", "policed_pods"] {
        let found = open(&directory, table)?.lookup(cookie.bytes(), MapFlags::ANY);
        if found.doing(format!("map {table}: look up"))?.is_some() {
            return Ok(());
        }
    }
    let path = services::inbound_path(pins)?.join(cookie.to_string());
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).at("remove", &path),
        _ => Ok(()),
    }
}

/// Cookies of the namespaces in which one is pinned.
pub fn installed(pins: &Path) -> Result<Vec<u64>> {
    let entries = std::fs::read_dir(services::inbound_path(pins)?).into_iter().flatten().flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// A pinned map.
pub fn open(directory: &Path, name: &str) -> Result<MapHandle> {
    let path: PathBuf = directory.join(name);
    MapHandle::from_pinned_path(&path).at("open", &path)
}
