//! The program that gives one pod's inbound connections to its proxy: loaded for its namespace, attached there, and pinned
//! under the namespace's cookie.

use super::template::{Template, owned};
use crate::error::{Doing, Result};
use crate::layout::MapData;
use crate::links::set_program;
use crate::service_pins;
use libbpf_rs::libbpf_sys::{BPF_SK_LOOKUP, bpf_link_create, bpf_obj_pin};
use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Attaches the programs to namespaces.
pub struct Installer {
    pins: PathBuf,
    /// None until it is first needed.
    template: Option<Template>,
}

impl Installer {
    pub fn new(pins: &Path) -> Installer {
        Installer { pins: pins.into(), template: None }
    }

    /// Makes the template if there is none yet.
    pub fn prepare(&mut self) -> Result<&Template> {
        if self.template.is_none() {
            self.template = Some(Template::new(&self.pins)?);
        }
        Ok(self.template.as_ref().expect("it was just made"))
    }

    /// Attaches the program to the namespace, or replaces the one that is attached.
    pub fn install(&mut self, namespace: &Path, cookie: u64) -> Result<()> {
        let program = self.prepare()?.load(cookie)?;
        let path = service_pins::make_inbound_path(&self.pins)?.join(cookie.to_string());
        if path.exists() {
            let link = Link::open(&path).at("open", &path)?;
            return set_program(&link, program.as_fd()).at("exchange the program of", &path);
        }
        let file = File::open(namespace).at("open", namespace)?;
        let link = attach(program.as_fd(), file.as_fd()).at("attach the inbound program to", namespace)?;
        pin(&link, &path).at("pin", &path)
    }
}

fn attach(program: BorrowedFd, namespace: BorrowedFd) -> io::Result<OwnedFd> {
    // SAFETY: two open descriptors; no options.
    owned(unsafe { bpf_link_create(program.as_raw_fd(), namespace.as_raw_fd(), BPF_SK_LOOKUP, std::ptr::null()) })
}

fn pin(link: &OwnedFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: an open descriptor, and a name that lives until the call returns.
    match unsafe { bpf_obj_pin(link.as_raw_fd(), path.as_ptr()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Whether the namespace exists. The link stays after the namespace's end, but is then attached to nothing.
pub fn is_alive(pins: &Path, cookie: u64) -> bool {
    inode(pins, cookie).is_some()
}

/// The inode of the namespace's file; None: the namespace has ended.
pub fn inode(pins: &Path, cookie: u64) -> Option<u64> {
    let path = service_pins::inbound_path(pins).ok()?.join(cookie.to_string());
    match Link::open(path).ok()?.info().ok()?.info {
        LinkTypeInfo::NetNs(found) if found.ino != 0 => Some(found.ino.into()),
        _ => None,
    }
}

/// Removes the program, unless the pod is captured or has policies.
pub fn remove_unused(pins: &Path, cookie: u64) -> Result<()> {
    let directory = service_pins::maps_path(pins)?;
    for table in ["pods", "policed_pods"] {
        let found = open(&directory, table)?.lookup(cookie.bytes(), MapFlags::ANY);
        if found.doing(format!("map {table}: look up"))?.is_some() {
            return Ok(());
        }
    }
    let path = service_pins::inbound_path(pins)?.join(cookie.to_string());
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).at("remove", &path),
        _ => Ok(()),
    }
}

/// Cookies of the namespaces in which a program is pinned.
pub fn installed(pins: &Path) -> Result<Vec<u64>> {
    let entries = std::fs::read_dir(service_pins::inbound_path(pins)?).into_iter().flatten().flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Opens a pinned map.
pub fn open(directory: &Path, name: &str) -> Result<MapHandle> {
    let path: PathBuf = directory.join(name);
    MapHandle::from_pinned_path(&path).at("open", &path)
}
