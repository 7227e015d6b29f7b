//! The program on a device.

use crate::error::{Error, Result, errno};
use libbpf_rs::libbpf_sys::{
    BPF_F_BEFORE, BPF_TCX_INGRESS, BPF_XDP, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE, bpf_attach_type, bpf_link_create,
    bpf_link_create_opts, bpf_xdp_query, bpf_xdp_query_opts,
};
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

/// Where in the kernel the program of a device runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// In the kernel's receive path, by tc (tcx). It diverts frames of taken connections, and leaves all others as they are.
    Ingress,
    /// In the kernel's receive path, by generic XDP. The kernel copies each frame of any TCP connection for it.
    Generic,
    /// In the driver.
    Native,
}

impl Hook {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Hook::Ingress => "tc ingress",
            Hook::Generic => "generic XDP",
            Hook::Native => "native XDP",
        }
    }

    /// Before all other programs of tc, so that none hides a frame of a taken connection.
    fn place(self) -> (bpf_attach_type, u32) {
        match self {
            Hook::Ingress => (BPF_TCX_INGRESS, BPF_F_BEFORE),
            Hook::Generic => (BPF_XDP, XDP_FLAGS_SKB_MODE),
            Hook::Native => (BPF_XDP, XDP_FLAGS_DRV_MODE),
        }
    }
}

/// Attaches the program to the device `index`. It is attached as long as a copy of the link's descriptor is open.
pub(crate) fn attach(program: BorrowedFd, name: &str, index: u32, hook: Hook) -> Result<OwnedFd> {
    // A device has one XDP program.
    let refuse_others = || match query(index) {
        Ok(Found { program: Some(id), .. }) if hook != Hook::Ingress => {
            Err(Error::ForeignProgram { device: name.into(), id })
        }
        _ => Ok(()),
    };
    refuse_others()?;
    link(program, index, hook).or_else(|source| {
        // Another program may have come in between.
        refuse_others()?;
        Err(Error::Attach { device: name.into(), mode: hook.name(), source })
    })
}

fn link(program: BorrowedFd, index: u32, hook: Hook) -> rustix::io::Result<OwnedFd> {
    let index = i32::try_from(index).map_err(|_| Errno::NODEV)?;
    let (place, flags) = hook.place();
    let options = bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as _, flags, ..Default::default() };
    // SAFETY: the options live during the call, and say their size.
    let made = unsafe { bpf_link_create(program.as_raw_fd(), index, place, &options) };
    errno(made)?;
    // SAFETY: a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// What the kernel says of a device.
pub(crate) struct Found {
    /// Id of the attached program, if there is one.
    pub program: Option<u32>,
    /// The driver's XDP features, `NETDEV_XDP_ACT_*` of linux/netdev.h.
    pub features: u64,
}

pub(crate) fn query(index: u32) -> rustix::io::Result<Found> {
    let index = i32::try_from(index).map_err(|_| Errno::NODEV)?;
    let mut options = bpf_xdp_query_opts { sz: size_of::<bpf_xdp_query_opts>() as _, ..Default::default() };
    // SAFETY: the options live during the call, and say their size.
    errno(unsafe { bpf_xdp_query(index, 0, &mut options) })?;
    let programs = [options.prog_id, options.drv_prog_id, options.skb_prog_id, options.hw_prog_id];
    Ok(Found { program: programs.into_iter().find(|id| *id != 0), features: options.feature_flags })
}
