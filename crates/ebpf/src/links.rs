//! Attachments of one kind of programs to a cgroup: created together, exchanged together, and kept by their pins.

use crate::error::{Doing, Error, Result};
use crate::pins::Pins;
use libbpf_rs::libbpf_sys::bpf_link_update;
use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{ErrorKind, Link, Program, ProgramMut};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const LINKS: &str = "links";
/// Directory of links that are being created.
const ASIDE: &str = "links-new";

/// Inode number of the cgroup that the pinned programs are attached to; None: they are not attached.
pub fn attached_to(pins: &Path, kind: &str) -> Option<u64> {
    let directory = Pins::new(pins).ok()?.path(&[kind, LINKS]);
    let first = std::fs::read_dir(&directory).into_iter().flatten().flatten().next()?;
    match Link::open(first.path()).ok()?.info().ok()?.info {
        LinkTypeInfo::Cgroup(found) if are_at(&directory, found.cgroup_id) => Some(found.cgroup_id),
        _ => None,
    }
}

/// Whether every pinned program is attached to this cgroup: the programs are installed, and none was detached by others.
pub fn is_attached(pins: &Path, kind: &str, cgroup: &Path) -> bool {
    let id = std::fs::metadata(cgroup).map(|directory| directory.ino());
    Pins::new(pins).is_ok_and(|pins| id.is_ok_and(|id| are_at(&pins.path(&[kind, LINKS]), id)))
}

/// A link whose cgroup was removed names no cgroup.
fn are_at(directory: &Path, cgroup: u64) -> bool {
    let is_at = |path: PathBuf| match Link::open(path).and_then(|link| link.info()).map(|info| info.info) {
        Ok(LinkTypeInfo::Cgroup(found)) => found.cgroup_id == cgroup,
        _ => false,
    };
    let mut entries = std::fs::read_dir(directory).into_iter().flatten().flatten().peekable();
    entries.peek().is_some() && entries.all(|entry| is_at(entry.path()))
}

/// Undoes [`attach`]: nothing is attached any more when this returns.
pub fn remove(pins: &Pins, kind: &str) -> Result<()> {
    detach_pinned(&pins.path(&[kind, LINKS]));
    pins.remove(&[kind, LINKS])
}

/// Detaches the programs of all links that are pinned there: without this the kernel does so some milliseconds after the pins have gone.
/// What cannot be detached is attached nowhere, or is detached then.
pub fn detach_pinned(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let _ = Link::open(entry.path()).and_then(|link| link.detach());
    }
}

/// Attaches all programs or none. Programs that were attached before work on until they are exchanged, or until all new ones
/// are attached to another cgroup.
pub fn attach(programs: &[ProgramMut], pins: &Pins, kind: &str, cgroup: &Cgroup) -> Result<()> {
    let directory = pins.path(&[kind, LINKS]);
    pins.remove(&[kind, ASIDE])?; // left by a process that was killed here
    if are_at(&directory, cgroup.id()?) {
        exchange(programs, &directory, cgroup)
    } else {
        let done = attach_all(programs, pins, kind, cgroup);
        pins.remove(&[kind, ASIDE])?;
        done
    }
}

/// Attaches without pinning: a link that is dropped is detached.
fn attach_each<'a>(
    programs: impl IntoIterator<Item = &'a ProgramMut<'a>>,
    cgroup: &Cgroup,
) -> Result<Vec<(String, Link)>> {
    let one = |program: &ProgramMut| {
        let name = program.name().to_string_lossy().into_owned();
        let link = program.attach_cgroup(cgroup.file.as_raw_fd()).map_err(|error| cgroup.refuses(&name, error))?;
        Ok((name, link))
    };
    programs.into_iter().map(one).collect()
}

/// Pins all links or none.
fn pin_each(links: &mut [(String, Link)], directory: &Path) -> Result<()> {
    let pinned = links.iter_mut().try_for_each(|(name, link)| {
        let path = directory.join(name);
        link.pin(&path).at("pin", &path)
    });
    if pinned.is_err() {
        unpin_each(links, directory);
    }
    pinned
}

fn unpin_each(links: &[(String, Link)], directory: &Path) {
    for (name, _) in links {
        // A link that was not pinned yet has no file.
        let _ = std::fs::remove_file(directory.join(name));
    }
}

/// Creates all links in another directory, which is then renamed in one step. Links to another cgroup, or to one that was
/// removed, end afterwards: in between a process that is in both cgroups meets both programs.
fn attach_all(programs: &[ProgramMut], pins: &Pins, kind: &str, cgroup: &Cgroup) -> Result<()> {
    let mut links = attach_each(programs, cgroup)?;
    let (aside, directory) = (pins.make(&[kind, ASIDE])?, pins.make(&[kind, LINKS])?);
    pin_each(&mut links, &aside)?;
    renameat_with(CWD, &aside, CWD, &directory, RenameFlags::EXCHANGE).at("rename", &aside)
}

/// Gives each link its new program atomically, so that no connection meets none. If one exchange fails, all links get their old
/// programs back. A new program gets a link, and the link of a program that no longer exists is removed.
fn exchange(programs: &[ProgramMut], directory: &Path, cgroup: &Cgroup) -> Result<()> {
    let (old, new): (Vec<_>, Vec<_>) = programs.iter().partition(|program| directory.join(program.name()).exists());
    let mut links = attach_each(new, cgroup)?;
    pin_each(&mut links, directory)?;
    if let Err(error) = exchange_each(&old, directory) {
        unpin_each(&links, directory);
        return Err(error);
    }
    unpin_others(programs, directory)
}

fn exchange_each(programs: &[&ProgramMut], directory: &Path) -> Result<()> {
    let mut done: Vec<(Link, Option<OwnedFd>)> = Vec::new();
    for program in programs {
        match exchange_one(program, &directory.join(program.name())) {
            Ok(before) => done.push(before),
            Err(error) => {
                for (link, before) in done.iter().filter_map(|(link, before)| Some((link, before.as_ref()?))) {
                    set_program(link, before.as_fd()).at("give back the program of", directory)?;
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// The link, and the program that it had. Getting the program's descriptor takes CAP_SYS_ADMIN.
fn exchange_one(program: &ProgramMut, path: &Path) -> Result<(Link, Option<OwnedFd>)> {
    let link = Link::open(path).at("open", path)?;
    let before = Program::fd_from_id(link.info().at("ask", path)?.prog_id).ok();
    set_program(&link, program.as_fd()).at("exchange the program of", path)?;
    Ok((link, before))
}

fn unpin_others(programs: &[ProgramMut], directory: &Path) -> Result<()> {
    let others = std::fs::read_dir(directory).at("read", directory)?.flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| programs.iter().any(|program| path.file_name() == Some(program.name()));
    others.filter(|path| !is_one(path)).try_for_each(|path| std::fs::remove_file(&path).at("remove", &path))
}

pub(crate) fn set_program(link: &Link, program: BorrowedFd) -> io::Result<()> {
    // SAFETY: two open descriptors; no options.
    match unsafe { bpf_link_update(link.as_fd().as_raw_fd(), program.as_raw_fd(), std::ptr::null()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// The cgroup that programs are attached to.
pub struct Cgroup {
    path: PathBuf,
    file: File,
}

impl Cgroup {
    /// Opens the cgroup with this directory.
    pub fn open(path: &Path) -> Result<Cgroup> {
        Ok(Cgroup { path: path.into(), file: File::open(path).at("open the cgroup", path)? })
    }

    /// The cgroup's id in links: its directory's inode number.
    fn id(&self) -> Result<u64> {
        Ok(self.file.metadata().at("look at the cgroup", &self.path)?.ino())
    }

    fn refuses(&self, program: &str, error: libbpf_rs::Error) -> Error {
        let doing = format!("attach {program} to the cgroup {}", self.path.display());
        match error.kind() {
            ErrorKind::PermissionDenied => Error::new(doing, Taken { cgroup: self.path.clone(), source: error }),
            _ => Error::new(doing, error),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "another program is attached exclusively to it or to one above: `bpftool cgroup show {}` names it; detach that one, \
     or choose another --cgroup",
    cgroup.display()
)]
struct Taken {
    cgroup: PathBuf,
    source: libbpf_rs::Error,
}
