//! The program on the device.

use crate::error::{Error, Result, errno};
use libbpf_rs::libbpf_sys::{
    BPF_XDP, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE, bpf_link_create, bpf_link_create_opts, bpf_xdp_query,
    bpf_xdp_query_opts,
};
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

/// Where in the kernel the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// In the kernel's receive path, on any device.
    Generic,
    /// In the driver.
    Native,
}

impl Hook {
    fn name(self) -> &'static str {
        match self {
            Hook::Generic => "generic",
            Hook::Native => "native",
        }
    }

    fn flag(self) -> u32 {
        match self {
            Hook::Generic => XDP_FLAGS_SKB_MODE,
            Hook::Native => XDP_FLAGS_DRV_MODE,
        }
    }
}

/// Attaches the program to the device `index`. It is attached as long as a copy of the link's descriptor is open.
pub(crate) fn attach(program: BorrowedFd, name: &str, index: u32, hook: Hook) -> Result<OwnedFd> {
    let refuse_others = || match query(index) {
        Ok(Found { program: Some(id), .. }) => Err(Error::ForeignProgram { device: name.into(), id }),
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
    let options =
        bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as _, flags: hook.flag(), ..Default::default() };
    // SAFETY: the options live during the call, and say their size.
    let made = unsafe { bpf_link_create(program.as_raw_fd(), index, BPF_XDP, &options) };
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
