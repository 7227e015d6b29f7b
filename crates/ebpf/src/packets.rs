//! The packet programs, which evaluate packets that neither a socket call nor the listener look-up has evaluated. They cost time for
//! each packet of the cgroup, so they are attached only where a pod has rules, or on armed nodes.

use crate::error::{Doing, Error, Result};
use crate::links::{self, Cgroup};
use crate::options::Options;
use crate::pins::Pins;
use crate::probe;
use crate::service_pins;
use libbpf_rs::ProgramMut;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use sidestep_bpf::packets::PacketsSkelBuilder;
use std::mem::MaybeUninit;
use std::path::Path;

/// Below the pins of the Service programs, and removed with them.
pub(crate) const KIND: &str = "services/packets";

#[derive(Debug, thiserror::Error)]
#[error("programs cannot tell whose packets they see: this takes CAP_PERFMON, or Linux 6.15")]
struct CannotTell;

/// Attaches the programs to the present tables, or replaces those that are attached.
pub fn install(options: &Options) -> Result<()> {
    let pins = Pins::new(&options.pins)?;
    let cgroup = Cgroup::open(&options.cgroup)?;
    let mut object = MaybeUninit::uninit();
    let mut open = PacketsSkelBuilder::default().open(&mut object).doing("read the packet programs")?;
    let settings = open.maps.rodata_data.as_deref_mut().expect("the programs have settings");
    settings.node_netns = options.node_netns;
    settings.may_read_kernel = probe::may_read_kernel();
    settings.has_netns_helper = probe::has_netns_helper();
    if !settings.may_read_kernel && !settings.has_netns_helper {
        return Err(Error::new("load the packet programs", CannotTell));
    }
    service_pins::use_pinned(open.open_object_mut(), &options.pins)?;
    let mut skeleton = open.load().doing("load the packet programs")?;
    let programs: Vec<ProgramMut> = skeleton.object_mut().progs_mut().collect();
    links::attach(&programs, &pins, KIND, &cgroup)
}

/// Whether the programs are attached to any cgroup.
pub fn are_installed(pins: &Path) -> bool {
    links::attached_to(pins, KIND).is_some()
}
