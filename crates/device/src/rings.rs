//! The four rings of a queue.

use crate::layout::Layout;
use crate::ring::Ring;
use rustix::fd::BorrowedFd;
use rustix::io;
use rustix::net::sockopt::xdp_mmap_offsets;
use rustix::net::xdp::{
    XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc,
};

/// The rings of one queue. Fill and completion ring carry addresses in the UMEM, the others descriptors.
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
    /// Maps the rings of the sockets that receive and send, which may be the same. Each ring has room for all frames of its kind, so
    /// none ever overflows.
    pub fn map(receiving: BorrowedFd, sending: BorrowedFd, layout: &Layout) -> io::Result<Rings> {
        let offsets = xdp_mmap_offsets(sending)?;
        let (receive, send) = (layout.receive_frames, layout.send_frames);
        Ok(Rings {
            fill: Ring::map(receiving, receive, offsets.fr, XDP_UMEM_PGOFF_FILL_RING)?,
            receive: Ring::map(receiving, receive, offsets.rx, XDP_PGOFF_RX_RING)?,
            send: Ring::map(sending, send, offsets.tx, XDP_PGOFF_TX_RING)?,
            completion: Ring::map(sending, send, offsets.cr, XDP_UMEM_PGOFF_COMPLETION_RING)?,
        })
    }
}
