//! Attachments to devices, each kept by a pin whose name is the device's index.

use crate::error::{Doing, Result};
use crate::links;
use libbpf_rs::Link;
use libbpf_rs::libbpf_sys::{BPF_TCX_INGRESS, bpf_link_create, bpf_obj_pin};
use libbpf_rs::query::LinkTypeInfo;
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Indices of all devices but the loopback device, where packets are the node's own. A port of a bridge counts: with br_netfilter
/// the kernel translates there.
pub(super) fn present() -> Result<BTreeSet<u32>> {
    let asked = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let found = sidestep_netlink::request(asked, NLM_F_DUMP).doing("list the devices")?;
    let index = |message| match message {
        RouteNetlinkMessage::NewLink(link) if !link.header.flags.contains(LinkFlags::Loopback) => {
            Some(link.header.index)
        }
        _ => None,
    };
    Ok(found.into_iter().filter_map(index).collect())
}

/// Whether the link that is pinned there is that device's. One whose device has gone is nobody's.
pub(super) fn is_at(path: &Path, index: u32) -> bool {
    if !path.exists() {
        return false; // libbpf would print that
    }
    let found = Link::open(path).and_then(|link| link.info()).map(|info| info.info);
    matches!(found, Ok(LinkTypeInfo::Tcx(found)) if found.ifindex == index)
}

pub(super) fn exchange_or_create(program: &OwnedFd, index: u32, path: &Path) -> Result<()> {
    if !is_at(path, index) {
        return create(program, index, path);
    }
    let link = Link::open(path).at("open", path)?;
    links::set_program(&link, program.as_fd()).at("exchange the program of", path)
}

/// Attaches the program to the device, unless one is. A device that has just gone is no error.
pub(super) fn create(program: &OwnedFd, index: u32, path: &Path) -> Result<()> {
    if is_at(path, index) {
        return Ok(());
    }
    let _ = std::fs::remove_file(path);
    match link(program, index) {
        Ok(link) => pin(&link, path).at("pin", path),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        Err(error) => Err(error).doing(format!("attach the program for packets to device {index}")),
    }
}

fn link(program: &OwnedFd, index: u32) -> io::Result<OwnedFd> {
    // SAFETY: an open descriptor; no options.
    let made = unsafe { bpf_link_create(program.as_raw_fd(), index as i32, BPF_TCX_INGRESS, std::ptr::null()) };
    match made {
        // SAFETY: a new descriptor, which nobody else owns.
        descriptor if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

fn pin(link: &OwnedFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: an open descriptor, and a text that ends with 0.
    match unsafe { bpf_obj_pin(link.as_raw_fd(), path.as_ptr()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Removes the pins of devices that are not present.
pub(super) fn forget_others(directory: &Path, present: &BTreeSet<u32>) -> Result<()> {
    let entries = std::fs::read_dir(directory).at("read", directory)?.flatten().map(|entry| entry.path());
    let is_present = |path: &Path| {
        let index = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        index.is_some_and(|index: u32| present.contains(&index))
    };
    entries.filter(|path| !is_present(path)).try_for_each(|path| std::fs::remove_file(&path).at("remove", &path))
}
