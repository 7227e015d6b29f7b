//! The four rings of an AF_XDP socket.

use crate::layout::Layout;
use crate::ring::Ring;
use rustix::fd::BorrowedFd;
use rustix::io;
use rustix::net::sockopt::xdp_mmap_offsets;
use rustix::net::xdp::{
    XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc,
};

/// The rings of one socket. Fill and completion ring carry addresses in the UMEM, the others descriptors.
pub(crate) struct Rings {
    /// Frames that the kernel may receive into.
    pub fill: Ring<u64>,
    /// Received frames.
    pub receive: Ring<XdpDesc>,
    /// Frames to be sent.
    pub send: Ring<XdpDesc>,
    /// Frames that were sent.
    pub completion: Ring<u64>,
}

impl Rings {
    /// Maps the rings. Each has room for all frames of its kind, so none ever overflows.
    pub fn map(socket: BorrowedFd, layout: &Layout) -> io::Result<Rings> {
        let offsets = xdp_mmap_offsets(socket)?;
        let (receive, send) = (layout.receive_frames, layout.send_frames);
        Ok(Rings {
            fill: Ring::map(socket, receive, offsets.fr, XDP_UMEM_PGOFF_FILL_RING)?,
            receive: Ring::map(socket, receive, offsets.rx, XDP_PGOFF_RX_RING)?,
            send: Ring::map(socket, send, offsets.tx, XDP_PGOFF_TX_RING)?,
            completion: Ring::map(socket, send, offsets.cr, XDP_UMEM_PGOFF_COMPLETION_RING)?,
        })
    }
}
