//! What a take notes of a socket: its names, and the options that a take or a give-back changes and that are restored afterwards.
//!
//! The kernel keeps all options over a take and a give-back except those of [`Saved`], and those that the crate's documentation
//! lists as lost. The test `options` compares all of them.

use crate::kernel::{CallError, SocketOption};
use crate::names::Names;
use crate::options;
use rustix::fd::BorrowedFd;
use serde::{Deserialize, Serialize};

/// The names of the program's socket, and its options, as the program has set them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The addresses that getsockname(2) and getpeername(2) tell. BPF programs may make them others than those of the packets.
    pub names: Names,
    /// SO_REUSEADDR, which TCP_REPAIR overwrites.
    pub reuse_address: bool,
    /// SO_KEEPALIVE with its intervals; None: off. It is off while the connection is taken.
    pub keepalive: Option<Keepalive>,
    /// TCP_WINDOW_CLAMP in bytes, which connect(2) computes anew.
    pub window_clamp: u32,
    /// TCP_RTO_MIN_US; None: the kernel does not know it (before Linux 6.15).
    pub rto_min_us: Option<u32>,
    /// TCP_DELACK_MAX_US; None: the kernel does not know it (before Linux 6.15).
    pub delack_max_us: Option<u32>,
}

/// When the kernel probes an idle connection. The kernel keeps these values in the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keepalive {
    /// TCP_KEEPIDLE: seconds without a packet before the first probe.
    pub idle: u32,
    /// TCP_KEEPINTVL: seconds between probes.
    pub interval: u32,
    /// TCP_KEEPCNT: probes without an answer before the connection ends.
    pub count: u32,
}

impl Saved {
    /// Reads them. The socket must not be in repair mode yet.
    pub(crate) fn read(fd: BorrowedFd) -> Result<Saved, CallError> {
        Ok(Saved {
            names: Names::read(fd)?,
            reuse_address: options::SO_REUSEADDR.get(fd)? != 0,
            keepalive: keepalive(fd)?,
            window_clamp: options::TCP_WINDOW_CLAMP.get(fd)?,
            rto_min_us: options::TCP_RTO_MIN_US.get_if_known(fd)?,
            delack_max_us: options::TCP_DELACK_MAX_US.get_if_known(fd)?,
        })
    }

    /// Sets what a parked socket must have: it keeps its port as it did, and stays silent.
    pub(crate) fn park(&self, fd: BorrowedFd) -> Result<(), CallError> {
        self.restore_reuse(fd)?;
        if self.keepalive.is_some() {
            options::SO_KEEPALIVE.set(fd, 0)?;
        }
        Ok(())
    }

    /// Sets what [`Saved::park`] and repair mode have changed.
    pub(crate) fn restore_parked(&self, fd: BorrowedFd) -> Result<(), CallError> {
        self.restore_reuse(fd)?;
        if self.keepalive.is_some() {
            // The change from off to on starts the timer.
            options::SO_KEEPALIVE.set(fd, 1)?;
        }
        Ok(())
    }

    /// Sets what connect(AF_UNSPEC) has changed.
    pub(crate) fn restore_disconnected(&self, fd: BorrowedFd) -> Result<(), CallError> {
        options::TCP_WINDOW_CLAMP.set(fd, self.window_clamp)?;
        restore(fd, options::TCP_RTO_MIN_US, self.rto_min_us)?;
        restore(fd, options::TCP_DELACK_MAX_US, self.delack_max_us)
    }

    /// Ends what repair mode has begun: conflicts of bind(2) and listen(2) count again.
    fn restore_reuse(&self, fd: BorrowedFd) -> Result<(), CallError> {
        options::SO_REUSEADDR.set(fd, self.reuse_address.into())
    }
}

fn keepalive(fd: BorrowedFd) -> Result<Option<Keepalive>, CallError> {
    if options::SO_KEEPALIVE.get(fd)? == 0 {
        return Ok(None);
    }
    Ok(Some(Keepalive {
        idle: options::TCP_KEEPIDLE.get(fd)?,
        interval: options::TCP_KEEPINTVL.get(fd)?,
        count: options::TCP_KEEPCNT.get(fd)?,
    }))
}

/// The default is left alone, since the kernel may refuse to be told it.
fn restore(fd: BorrowedFd, option: SocketOption<u32>, value: Option<u32>) -> Result<(), CallError> {
    match value {
        Some(value) if option.get(fd)? != value => option.set(fd, value),
        _ => Ok(()),
    }
}
