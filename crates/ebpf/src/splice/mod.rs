//! The splice programs: two TCP sockets of this node write into each other's queues. Installed as a whole, paused,
//! removed as a whole.
//!
//! A spliced connection stays spliced until it is closed: removing its key from the sockmap would lose the bytes that wait
//! behind the key. So after pausing no new connections are spliced, and after removal the programs and tables stay in memory
//! until the last spliced connection ends.

mod ports;
mod reasons;
mod tables;

pub use ports::{PortRange, Ports};
pub use reasons::{REASONS, meaning};
pub use tables::{Status, Traffic};

use crate::error::{Doing, Error, Result};
use crate::links::{self, Cgroup};
use crate::pinned;
use crate::pins::Pins;
use crate::probe::{self, Missing};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{ProgramMut, ProgramType};
use sidestep_bpf::splice::{OpenSpliceSkel, SpliceSkelBuilder};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use tables::Tables;

/// Name of this kind of programs among the pins.
const KIND: &str = "splice";
/// Version of the layout of keys and values. Tables of another version are not reused but created anew.
const MAPS: &str = "maps-1";

/// Options for installing the programs.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory of a BPF file system.
    pub pins: PathBuf,
    /// A cgroup v2 directory: both ends of a connection are sockets of processes in it, or below.
    pub cgroup: PathBuf,
    /// Servers' ports.
    pub ports: Ports,
    /// Cookies of the network namespaces whose sockets are spliced. Empty: all.
    pub netns: Vec<u64>,
    /// Splice also programs that block in their calls. The kernel fails such a call with EAGAIN when it is disturbed.
    pub blocking: bool,
    /// Room for so many sockets, two for each connection. An existing installation keeps its size.
    pub sockets: Option<u32>,
}

/// Loads the programs with the present tables, or new ones, and attaches all or none. Ends a pause. A failed installation
/// leaves what was there before.
pub fn install(options: &Options) -> Result<()> {
    let was_there = tables(&options.pins)?.is_some();
    let done = try_to_install(options);
    if done.is_err() && !was_there {
        remove(&options.pins)?;
    }
    done
}

fn try_to_install(options: &Options) -> Result<()> {
    Missing::check(probe::missing_for_splice().into_iter().take(1).collect()).doing("splice")?;
    let pins = Pins::new(&options.pins)?;
    let cgroup = Cgroup::open(&options.cgroup)?;
    let mut object = MaybeUninit::uninit();
    let mut open = SpliceSkelBuilder::default().open(&mut object).doing("read the splice programs")?;
    make_room(&mut open, options.sockets)?;
    let directory = pins.make(&[KIND, MAPS])?;
    pinned::find_again(open.open_object_mut(), &directory)?;
    let mut skeleton = open.load().doing("load the splice programs")?;
    pinned::pin(skeleton.object_mut(), &directory)?;
    Tables::open(&directory)?.fill(&options.ports, &options.netns, options.blocking)?;
    let sockets = skeleton.maps.sockets.as_fd().as_raw_fd();
    skeleton.progs.splice_write.attach_sockmap(sockets).doing("attach splice_write to the map of sockets")?;
    let of_cgroup = |program: &ProgramMut| program.prog_type() != ProgramType::SkMsg;
    let programs: Vec<ProgramMut> = skeleton.object_mut().progs_mut().filter(of_cgroup).collect();
    links::attach(&programs, &pins, KIND, &cgroup)?;
    pinned::unpin_other_layouts(&pins, KIND, MAPS)
}

fn make_room(open: &mut OpenSpliceSkel, sockets: Option<u32>) -> Result<()> {
    let Some(sockets) = sockets else { return Ok(()) };
    open.maps.sockets.set_max_entries(sockets).doing("set the number of sockets")?;
    open.maps.pairs.set_max_entries(sockets.div_ceil(2)).doing("set the number of pairs")
}

#[derive(Debug, thiserror::Error)]
#[error("it is not installed")]
struct NotInstalled;

/// The kill switch: no further connections are spliced; with `false` they are again. Spliced ones stay spliced.
pub fn pause(pins: &Path, paused: bool) -> Result<()> {
    let tables = tables(pins)?.ok_or_else(|| Error::new("splice", NotInstalled))?;
    tables.switch(|switches| switches.paused = u32::from(paused))
}

/// Removes everything, except what spliced connections need: that goes with the last of them.
pub fn remove(pins: &Path) -> Result<()> {
    if let Some(tables) = tables(pins)? {
        tables.switch(|switches| (switches.paused, switches.removed) = (1, 1))?;
    }
    let pins = Pins::new(pins)?;
    links::remove(&pins, KIND)?; // first, so that no socket enters a map whose program is gone
    pins.remove(&[KIND])
}

/// What is installed, and its counters; None: nothing is installed.
pub fn status(pins: &Path) -> Result<Option<Status>> {
    tables(pins)?.map(|tables| tables.status()).transpose()
}

/// Whether all programs are attached to this cgroup.
pub fn is_attached(pins: &Path, cgroup: &Path) -> bool {
    links::is_attached(pins, KIND, cgroup)
}

/// The directory of these pins.
pub fn directory(pins: &Path) -> PathBuf {
    pins.join(KIND)
}

fn tables(pins: &Path) -> Result<Option<Tables>> {
    let directory = Pins::new(pins)?.path(&[KIND, MAPS]);
    if directory.exists() { Tables::open(&directory).map(Some) } else { Ok(None) }
}
