//! The Service programs: installed as a whole, exchanged as a whole, removed as a whole.

use crate::error::{Doing, Error, Result};
use crate::layout::VERSION;
use crate::pins::Pins;
use crate::plane::Maps;
use crate::probe;
use libbpf_rs::libbpf_sys::bpf_link_update;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapHandle, OpenMapMut, Program, ProgramMut};
use sidestep_bpf::services::{OpenServicesSkel, ServicesSkel, ServicesSkelBuilder};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Pins of this kind of programs.
const KIND: &str = "services";
const LINKS: &str = "links";

/// What may be chosen when the programs are installed.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory of a BPF file system.
    pub pins: PathBuf,
    /// A cgroup v2 directory: sockets of the processes in it, and below, are balanced.
    pub cgroup: PathBuf,
    /// Cookie of the network namespace in which the node's own processes are.
    pub node_netns: u64,
}

fn maps_directory() -> String {
    format!("maps-{VERSION}")
}

/// Where the tables of this version are pinned.
pub(crate) fn maps_path(pins: &Path) -> Result<PathBuf> {
    Ok(Pins::new(pins)?.path(&[KIND, &maps_directory()]))
}

/// Loads the programs over the tables that are there, or new ones, lets `fill` write them, and then attaches every
/// program or none. What was attached before goes on working until the moment it is exchanged.
pub fn install<T>(options: &Options, fill: impl FnOnce(Maps) -> Result<T>) -> Result<T> {
    let pins = Pins::new(&options.pins)?;
    let cgroup = File::open(&options.cgroup).at("open the cgroup", &options.cgroup)?;
    let mut object = MaybeUninit::uninit();
    let mut open = ServicesSkelBuilder::default().open(&mut object).doing("read the Service programs")?;
    let settings = open.maps.rodata_data.as_deref_mut().expect("the programs have settings");
    settings.node_netns = options.node_netns;
    settings.may_read_kernel = probe::may_read_kernel();
    let directory = pins.make(&[KIND, &maps_directory()])?;
    find_again(&mut open, &directory)?;
    let mut skeleton = open.load().doing("load the Service programs")?;
    pin_maps(&mut skeleton, &directory)?;
    let filled = fill(Maps::open(&directory)?)?;
    attach(&mut skeleton, &pins, &cgroup)?;
    forget_other_layouts(&pins)?;
    Ok(filled)
}

/// Takes every trace away: programs stop, tables go.
pub fn remove(pins: &Path) -> Result<()> {
    Pins::new(pins)?.remove(&[KIND])
}

/// The tables as they are, for whoever only looks. None: nothing is installed.
pub fn tables(pins: &Path) -> Result<Option<Maps>> {
    let directory = maps_path(pins)?;
    if directory.exists() { Maps::open(&directory).map(Some) } else { Ok(None) }
}

// --- maps ---------------------------------------------------------------------------------------------------------

/// Tables of an earlier life are used again if they have the same form; others are made anew.
fn find_again(open: &mut OpenServicesSkel, directory: &Path) -> Result<()> {
    for mut map in open.open_object_mut().maps_mut() {
        let path = directory.join(map.name());
        if is_ours(map.name()) && path.exists() {
            let pinned = MapHandle::from_pinned_path(&path).at("open", &path)?;
            same_form(&map, &pinned).map_err(|what| Error::new(format!("map {}", path.display()), what))?;
            map.reuse_fd(pinned.as_fd()).at("use again", &path)?;
        }
    }
    Ok(())
}

/// Settings and constants of a program are its own.
fn is_ours(map: &OsStr) -> bool {
    !map.to_string_lossy().contains('.')
}

fn same_form(wanted: &OpenMapMut, pinned: &MapHandle) -> std::result::Result<(), String> {
    let form = |key, value, flags| format!("keys of {key} and values of {value} bytes, flags {flags:#x}");
    let wanted = form(wanted.key_size(), wanted.value_size(), wanted.map_flags());
    let flags = pinned.info().map_err(|error| error.to_string())?.info.map_flags;
    let found = form(pinned.key_size(), pinned.value_size(), flags);
    if wanted == found { Ok(()) } else { Err(format!("has {found}, not {wanted}: detach first")) }
}

fn pin_maps(skeleton: &mut ServicesSkel, directory: &Path) -> Result<()> {
    for mut map in skeleton.object_mut().maps_mut() {
        let path = directory.join(map.name());
        if is_ours(map.name()) && !path.exists() {
            map.pin(&path).at("pin", &path)?;
        }
    }
    Ok(())
}

/// Tables in a form that no program uses any more.
fn forget_other_layouts(pins: &Pins) -> Result<()> {
    let current = maps_directory();
    let others = pins.names(&[KIND]).into_iter().filter(|name| name.starts_with("maps-") && *name != current);
    others.into_iter().try_for_each(|name| pins.remove(&[KIND, &name]))
}

// --- links --------------------------------------------------------------------------------------------------------

fn attach(skeleton: &mut ServicesSkel, pins: &Pins, cgroup: &File) -> Result<()> {
    let programs: Vec<ProgramMut> = skeleton.object_mut().progs_mut().collect();
    let directory = pins.path(&[KIND, LINKS]);
    if directory.exists() { exchange(&programs, &directory) } else { attach_all(&programs, pins, cgroup) }
}

/// All links are made aside and get their name in one step: a link that nobody has pinned ends with us.
fn attach_all(programs: &[ProgramMut], pins: &Pins, cgroup: &File) -> Result<()> {
    pins.remove(&[KIND, "links-new"])?;
    let aside = pins.make(&[KIND, "links-new"])?;
    let mut links = Vec::new();
    for program in programs {
        let name = program.name().to_string_lossy().into_owned();
        let mut link = program.attach_cgroup(cgroup.as_raw_fd()).doing(format!("attach {name} to the cgroup"))?;
        link.pin(aside.join(&name)).doing(format!("pin {name}"))?;
        links.push(link);
    }
    std::fs::rename(&aside, pins.path(&[KIND, LINKS])).at("rename", &aside)
}

/// Each link gets its new program at once: no connection in between is without one. If one cannot, all get their old
/// ones back.
fn exchange(programs: &[ProgramMut], directory: &Path) -> Result<()> {
    let mut done: Vec<(Link, OwnedFd)> = Vec::new();
    for program in programs {
        let path = directory.join(program.name());
        match exchange_one(program, &path) {
            Ok(before) => done.push(before),
            Err(error) => {
                for (link, before) in &done {
                    set_program(link, before.as_fd()).at("give back the program of", directory)?;
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// The link, and the program that it had.
fn exchange_one(program: &ProgramMut, path: &Path) -> Result<(Link, OwnedFd)> {
    let link = Link::open(path).at("open", path)?;
    let before = Program::fd_from_id(link.info().at("ask", path)?.prog_id).at("find the program of", path)?;
    set_program(&link, program.as_fd()).at("exchange the program of", path)?;
    Ok((link, before))
}

fn set_program(link: &Link, program: BorrowedFd) -> io::Result<()> {
    // SAFETY: two open descriptors; no options.
    match unsafe { bpf_link_update(link.as_fd().as_raw_fd(), program.as_raw_fd(), std::ptr::null()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
