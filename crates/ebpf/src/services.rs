//! The Service programs: installed as a whole, exchanged as a whole, removed as a whole.

use crate::capture::{self, Captures, passthrough};
use crate::error::{Doing, Result};
use crate::links::{self, Cgroup};
pub use crate::options::Options;
use crate::pins::Pins;
use crate::plane::Maps;
use crate::service_pins::{KIND, maps_directory, maps_path};
use crate::{packets, pinned, probe};
use libbpf_rs::ProgramMut;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use sidestep_bpf::services::ServicesSkelBuilder;
use std::mem::MaybeUninit;
use std::path::Path;

/// Loads the programs over the tables that are there, or new ones, lets `fill` write them, and then attaches every
/// program or none. What was attached before goes on working until the moment it is exchanged, or until all of them are
/// attached to another cgroup. If nothing was there, an error leaves nothing.
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

/// Takes every trace away: programs stop, tables go, and what pods were given goes.
pub fn remove(pins: &Path) -> Result<()> {
    let captured = capture::inodes(pins)?;
    // Of tables that another version has made nothing is known.
    let ended = Captures::open_read_only(pins).map_or(Ok(()), |mut captures| captures.remove_all());
    Pins::new(pins)?.remove(&[KIND])?;
    passthrough::remove_in(captured)?;
    ended
}

/// The tables as they are, for whoever only looks. None: nothing is installed.
pub fn tables(pins: &Path) -> Result<Option<Maps>> {
    let directory = maps_path(pins)?;
    if has_tables(&directory) { Maps::open(&directory).map(Some) } else { Ok(None) }
}

/// Programs that the kernel refused may have left the directory.
fn has_tables(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut tables| tables.next().is_some())
}

/// The number of the cgroup that the pinned programs are attached to. None: they are attached nowhere.
pub fn attached_to(pins: &Path) -> Option<u64> {
    links::attached_to(pins, KIND)
}

/// Whether every program that is pinned is attached to this cgroup: somebody has installed them, and none was severed.
pub fn is_attached(pins: &Path, cgroup: &Path) -> bool {
    links::is_attached(pins, KIND, cgroup)
}
