//! The Service programs, which are installed, exchanged and removed together.

use crate::capture::{self, Captures, passthrough};
use crate::error::{Doing, Result};
use crate::links::{self, Cgroup};
pub use crate::options::Options;
use crate::pins::Pins;
use crate::plane::Maps;
use crate::service_pins::{KIND, maps_directory, maps_path};
use crate::{external, packets, pinned, probe};
use libbpf_rs::ProgramMut;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use sidestep_bpf::services::ServicesSkelBuilder;
use std::mem::MaybeUninit;
use std::path::Path;

/// Loads the programs with the present tables, or new ones, lets `fill` write the tables, and then attaches all programs or
/// none. Programs that were attached before work on until they are exchanged, or until all new ones are attached to another
/// cgroup. If nothing was installed, an error leaves nothing.
pub fn install<T>(options: &Options, fill: impl FnOnce(Maps) -> Result<T>) -> Result<T> {
    let was_there = has_tables(&maps_path(&options.pins)?);
    let done = install_over(options, fill);
    if done.is_err() && !was_there {
        remove(&options.pins)?;
    }
    done
}

fn install_over<T>(options: &Options, fill: impl FnOnce(Maps) -> Result<T>) -> Result<T> {
    let pins = Pins::new(&options.pins)?;
    let cgroup = Cgroup::open(&options.cgroup)?;
    let mut object = MaybeUninit::uninit();
    let mut open = ServicesSkelBuilder::default().open(&mut object).doing("read the Service programs")?;
    let settings = open.maps.rodata_data.as_deref_mut().expect("the programs have settings");
    settings.node_netns = options.node_netns;
    settings.watching = options.watch;
    settings.may_read_kernel = probe::may_read_kernel();
    let directory = pins.make(&[KIND, &maps_directory()])?;
    pinned::find_again(open.open_object_mut(), &directory)?;
    let mut skeleton = open.load().doing("load the Service programs")?;
    pinned::pin(skeleton.object_mut(), &directory)?;
    let filled = fill(Maps::open(&directory)?)?;
    let programs: Vec<ProgramMut> = skeleton.object_mut().progs_mut().collect();
    links::attach(&programs, &pins, KIND, &cgroup)?;
    if packets::are_installed(&options.pins) {
        packets::install(options)?;
    }
    pinned::unpin_other_layouts(&pins, KIND, &maps_directory())?;
    Ok(filled)
}

/// Removes everything: programs, tables, and addresses that pods were given.
pub fn remove(pins: &Path) -> Result<()> {
    let captured = capture::inodes(pins)?;
    // The tables of another version cannot be read.
    let ended = Captures::open_read_only(pins).map_or(Ok(()), |mut captures| captures.remove_all());
    external::remove(pins)?;
    let pins = Pins::new(pins)?;
    links::remove(&pins, KIND)?;
    pins.remove(&[KIND])?;
    passthrough::remove_in(captured)?;
    ended
}

/// The present tables, for reading; None: nothing is installed.
pub fn tables(pins: &Path) -> Result<Option<Maps>> {
    let directory = maps_path(pins)?;
    if has_tables(&directory) { Maps::open(&directory).map(Some) } else { Ok(None) }
}

/// An empty directory may be left from programs that the kernel refused.
fn has_tables(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut tables| tables.next().is_some())
}

/// Inode number of the cgroup that the pinned programs are attached to; None: they are not attached.
pub fn attached_to(pins: &Path) -> Option<u64> {
    links::attached_to(pins, KIND)
}

/// Whether every pinned program is attached to this cgroup: the programs are installed, and none was detached by others.
pub fn is_attached(pins: &Path, cgroup: &Path) -> bool {
    links::is_attached(pins, KIND, cgroup)
}
