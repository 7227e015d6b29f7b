//! Packets to Services that arrive at the node's devices: from outside, and from pods whose sockets the programs do not see.
//!
//! The program at a device only finds the backend, and asks the kernel's connection tracking for an entry that leads there. The
//! kernel translates the packets, and answers those that are refused ([`nat`]). So connections go on while nobody runs, and while
//! programs are exchanged.

mod devices;
mod legacy;
mod nat;
mod rivals;

pub use rivals::{Rivals, rivals};

use crate::error::{Doing, Error, Result};
use crate::links;
use crate::pinned;
use crate::pins::Pins;
use crate::probe::{self, Missing};
use crate::service_pins::{self, maps_path};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use sidestep_bpf::external::ExternalSkelBuilder;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Below the pins of the Service programs.
const KIND: &str = "services/external";

/// The program, and where it is attached.
pub struct External {
    program: OwnedFd,
    links: PathBuf,
}

/// Loads the program with the present tables, and attaches it to the devices of the calling thread's network namespace, where an
/// earlier agent's program is exchanged.
pub fn install(pins: &Path) -> Result<External> {
    Missing::check(probe::missing_for_packets()).map_err(|missing| Error::new("packets to Services", missing))?;
    let mut object = MaybeUninit::uninit();
    let mut open = ExternalSkelBuilder::default().open(&mut object).doing("read the program for packets")?;
    service_pins::use_pinned(open.open_object_mut(), pins)?;
    let mut skeleton = open.load().doing("load the program for packets")?;
    pinned::pin(skeleton.object_mut(), &maps_path(pins)?)?;
    let program = skeleton.progs.external.as_fd().try_clone_to_owned().doing("keep the program for packets")?;
    let external = External { program, links: Pins::new(pins)?.make(&[KIND])? };
    nat::install()?;
    external.attach(devices::exchange_or_create)?;
    Ok(external)
}

impl External {
    /// Attaches to devices that are new, detaches from those that have gone, and puts the kernel's translation in place again if
    /// somebody has removed it.
    pub fn follow(&self) -> Result<()> {
        if !nat::is_installed()? {
            nat::install()?;
        }
        self.attach(devices::create)
    }

    fn attach(&self, each: impl Fn(&OwnedFd, u32, &Path) -> Result<()>) -> Result<()> {
        let present = devices::present()?;
        devices::forget_others(&self.links, &present)?;
        present.iter().try_for_each(|index| each(&self.program, *index, &self.links.join(index.to_string())))
    }
}

/// Whether the program is attached to every device.
pub fn is_attached(pins: &Path) -> bool {
    let links = Pins::new(pins).map(|pins| pins.path(&[KIND]));
    let all = |links: PathBuf| {
        let is_at = |index: &u32| devices::is_at(&links.join(index.to_string()), *index);
        devices::present().is_ok_and(|present| !present.is_empty() && present.iter().all(is_at))
    };
    links.is_ok_and(all) && nat::is_installed().unwrap_or(false)
}

/// Detaches from all devices. Connections that were translated end: the kernel translates no longer.
pub fn remove(pins: &Path) -> Result<()> {
    let pins = Pins::new(pins)?;
    if pins.path(&[KIND]).exists() {
        links::detach_pinned(&pins.path(&[KIND]));
        pins.remove(&[KIND])?;
        nat::remove()?;
    }
    Ok(())
}
