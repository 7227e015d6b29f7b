//! Loads the programs and makes their tables.

use crate::attach::Hook;
use crate::error::{Error, Result, errno};
use crate::parts::copy;
use libbpf_rs::libbpf_sys::{BPF_F_XDP_HAS_FRAGS, bpf_map_update_elem};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use sidestep_bpf::device::DeviceSkelBuilder;
use std::mem::MaybeUninit;

/// Descriptors of what was loaded. The kernel keeps each as long as a descriptor of it, or of what uses it, is open.
pub(crate) struct Loaded {
    /// The device's program.
    pub of_device: OwnedFd,
    /// The inlet's program, if there is one.
    pub of_inlet: Option<OwnedFd>,
    /// The program that lets frames pass into the kernel.
    pub inject: OwnedFd,
    /// The table of taken connections.
    pub taken: OwnedFd,
    sockets: OwnedFd,
}

/// `taken`: the most connections; `queues`: the number of queues with sockets; `inlet`: index of the inlet, if frames are diverted.
///
/// A native program says that it can handle frames of several buffers, without which drivers refuse it at a great MTU. A generic one
/// does not: the kernel then gives it each frame in one piece. Over veth that took a quarter of the throughput of other connections'
/// bulk, and frames in pages of a pool took a half; so a generic one is on the inlet only, if possible.
pub(crate) fn load(taken: u32, queues: u32, hook: Hook, inlet: Option<u32>) -> Result<Loaded> {
    let mut object = MaybeUninit::uninit();
    let mut open = DeviceSkelBuilder::default().open(&mut object).map_err(Error::Load)?;
    open.maps.taken.set_max_entries(taken).map_err(Error::Load)?;
    open.maps.sockets.set_max_entries(queues).map_err(Error::Load)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.inlet = inlet.unwrap_or_default();
    }
    let programs = &mut open.progs;
    programs.deliver_taken.set_flags(if hook == Hook::Native { BPF_F_XDP_HAS_FRAGS } else { 0 });
    programs.deliver_taken.set_autoload(inlet.is_none());
    programs.divert_taken.set_autoload(inlet.is_some());
    programs.deliver_diverted.set_autoload(inlet.is_some());
    let skeleton = open.load().map_err(Error::Load)?;
    let programs = &skeleton.progs;
    let (of_device, of_inlet) = match inlet {
        None => (&programs.deliver_taken, None),
        Some(_) => (&programs.divert_taken, Some(copy(programs.deliver_diverted.as_fd())?)),
    };
    Ok(Loaded {
        of_device: copy(of_device.as_fd())?,
        of_inlet,
        inject: copy(programs.inject.as_fd())?,
        taken: copy(skeleton.maps.taken.as_fd())?,
        sockets: copy(skeleton.maps.sockets.as_fd())?,
    })
}

impl Loaded {
    /// Makes the program deliver the queue's frames to this socket.
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd) -> rustix::io::Result<()> {
        let (key, value) = (queue.to_ne_bytes(), socket.as_raw_fd().to_ne_bytes());
        // SAFETY: key and value have four bytes, as those of the map, and live during the call.
        errno(unsafe { bpf_map_update_elem(self.sockets.as_raw_fd(), key.as_ptr().cast(), value.as_ptr().cast(), 0) })
    }
}
