//! The AF_XDP sockets of one queue of a device, with their memory.

use crate::error::{Error, Result};
use crate::layout::{CHUNK, Layout};
use crate::umem::Umem;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size,
    set_xdp_umem_reg,
};
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::time::{Duration, Instant};

/// The longest that the kernel takes to release a queue.
const RELEASE: Duration = Duration::from_secs(2);

/// The socket of a queue and its memory.
pub(crate) struct Port {
    pub socket: OwnedFd,
    /// The socket that receives from the inlet, with the same memory. None: `socket` receives.
    pub of_inlet: Option<OwnedFd>,
    pub umem: Umem,
}

/// Who moves frames between the device and the memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// The kernel copies them.
    Copy,
    /// The driver uses the memory itself if it can.
    Any,
}

fn bind_flags(transfer: Transfer, layout: &Layout) -> SocketAddrXdpFlags {
    let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    flags.set(SocketAddrXdpFlags::XDP_COPY, transfer == Transfer::Copy);
    flags.set(SocketAddrXdpFlags::XDP_USE_SG, layout.several_chunks);
    flags
}

impl Port {
    /// Makes a socket that is bound to the queue, and one at the inlet, if there is one. `name`: the device's, for errors.
    pub fn open(name: &str, umem: Umem, transfer: Transfer) -> Result<Port> {
        let layout = *umem.layout();
        let at = |doing| move |source| queue_error(name, &layout, doing, source);
        let socket = new_socket().map_err(at(SOCKET))?;
        let doing = "register memory for frames (this takes CAP_IPC_LOCK, or a higher limit RLIMIT_MEMLOCK)";
        set_xdp_umem_reg(&socket, registration(&umem)).map_err(at(doing))?;
        set_ring_sizes(socket.as_fd(), &layout).map_err(at("make rings"))?;
        let address = SocketAddrXdp::new(bind_flags(transfer, &layout), layout.device, layout.queue);
        let doing = "bind the AF_XDP socket (is another one at this queue? Linux 6.6 is needed)";
        bind_when_free(&socket, &address).map_err(at(doing))?;
        let of_inlet = layout.inlet.map(|index| socket_of_inlet(&layout, index, socket.as_fd())).transpose()?;
        Ok(Port { socket, of_inlet, umem })
    }

    /// The socket that receives.
    pub fn receiving(&self) -> BorrowedFd<'_> {
        self.of_inlet.as_ref().unwrap_or(&self.socket).as_fd()
    }

    /// The socket that sends.
    pub fn sending(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket at the first queue of the inlet, with the memory of `other`. How frames are transferred is a property of the memory.
fn socket_of_inlet(layout: &Layout, index: u32, other: BorrowedFd) -> Result<OwnedFd> {
    let at = |doing| move |source| queue_error("the inlet", layout, doing, source);
    let socket = new_socket().map_err(at(SOCKET))?;
    set_ring_sizes(socket.as_fd(), layout).map_err(at("make rings"))?;
    let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, index, 0);
    let address = SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: other };
    bind(&socket, &address).map_err(at("bind an AF_XDP socket to the inlet"))?;
    Ok(socket)
}

const SOCKET: &str = "make an AF_XDP socket (this takes CAP_NET_RAW)";

fn new_socket() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
}

/// The kernel releases a queue only some time after its last socket was closed.
fn bind_when_free(socket: &OwnedFd, address: &SocketAddrXdp) -> rustix::io::Result<()> {
    let began = Instant::now();
    loop {
        match bind(socket, address) {
            Err(Errno::BUSY) if began.elapsed() < RELEASE => std::thread::sleep(Duration::from_millis(2)),
            outcome => return outcome,
        }
    }
}

fn queue_error(name: &str, layout: &Layout, doing: &'static str, source: Errno) -> Error {
    Error::Queue { device: name.into(), queue: layout.queue, doing, source }
}

fn registration(umem: &Umem) -> XdpUmemReg {
    XdpUmemReg {
        addr: umem.start() as u64,
        len: umem.layout().frames() as u64,
        chunk_size: CHUNK as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    }
}

fn set_ring_sizes(socket: BorrowedFd, layout: &Layout) -> rustix::io::Result<()> {
    set_xdp_umem_fill_ring_size(socket, layout.receive_frames)?;
    set_xdp_rx_ring_size(socket, layout.receive_frames)?;
    set_xdp_umem_completion_ring_size(socket, layout.send_frames)?;
    set_xdp_tx_ring_size(socket, layout.send_frames)
}
