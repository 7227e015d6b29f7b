//! A connection that the broker has shown: whether the stack may carry it, and the way of its packets.

use crate::choice::Choice;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::net::{SocketAddrAny, getpeername, getsockname};
use sidestep_abi::Reason;
use sidestep_device::path::{self, NoPath, Path};
use sidestep_repair::NotTaken;
use sidestep_sys::tcp;
use std::net::SocketAddr;

/// A connection that may be taken.
pub struct Subject {
    pub socket: OwnedFd,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub path: Path,
    /// Which of the stack's devices the packets leave by.
    pub device: usize,
    /// Routers of this host on the packets' way: 1 if the socket is in another network namespace than the device.
    pub routers: u8,
    /// The path may have changed since it was resolved: [`Subject::refresh`] it before the connection is carried.
    pub is_stale: bool,
}

/// Why the stack does not carry it.
#[derive(Debug, thiserror::Error)]
pub enum Declined {
    /// The kernel does not tell its addresses: it is not connected any more.
    #[error("the socket is not connected")]
    NotConnected,
    /// See [`NotTaken`].
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
    /// There is no path for frames.
    #[error("there is no path for frames")]
    NoPath(#[from] NoPath),
    /// Its packets leave by a device that the stack was not given.
    #[error("its packets leave by device {0}, which the stack was not given")]
    OtherDevice(u32),
    /// See [`Choice`].
    #[error("the operator has left its peer or its ports out")]
    NotChosen,
}

impl Declined {
    /// For `sidestep status`.
    pub fn reason(&self) -> Reason {
        match self {
            Declined::NotConnected | Declined::NotTaken(_) => Reason::KernelOnly,
            Declined::NoPath(_) | Declined::OtherDevice(_) => Reason::OtherDevice,
            Declined::NotChosen => Reason::NotChosen,
        }
    }
}

impl Subject {
    /// `devices`: indices of the devices that the stack was given; `namespace`: cookie of their network namespace.
    pub fn examine(
        socket: OwnedFd,
        choice: &Choice,
        devices: &[u32],
        namespace: Option<u64>,
    ) -> Result<Subject, Declined> {
        let local = address(getsockname(&socket).ok()).ok_or(Declined::NotConnected)?;
        let remote = address(getpeername(&socket).ok().flatten()).ok_or(Declined::NotConnected)?;
        if !choice.includes(local, remote) {
            return Err(Declined::NotChosen);
        }
        sidestep_repair::examine(socket.as_fd())?;
        let path = path::resolve(local.ip().to_canonical(), remote.ip().to_canonical())?;
        let device = position(devices, &path)?;
        let routers = u8::from(tcp::namespace(socket.as_raw_fd()) != namespace);
        Ok(Subject { socket, local, remote, path, device, routers, is_stale: false })
    }

    /// Looks again, before the connection is carried again: at the socket, the route and the neighbour.
    pub fn refresh(&mut self, devices: &[u32]) -> Result<(), Declined> {
        sidestep_repair::examine(self.socket.as_fd())?;
        let path = path::resolve(self.local.ip().to_canonical(), self.remote.ip().to_canonical())?;
        (self.path, self.device, self.is_stale) = (path, position(devices, &path)?, false);
        Ok(())
    }
}

fn position(devices: &[u32], path: &Path) -> Result<usize, Declined> {
    devices.iter().position(|index| *index == path.device).ok_or(Declined::OtherDevice(path.device))
}

fn address(any: Option<SocketAddrAny>) -> Option<SocketAddr> {
    SocketAddr::try_from(any?).ok()
}
