//! The receiving side of a queue.

use crate::batch::Batch;
use crate::layout::CHUNK;
use crate::port::Port;
use crate::ring::Ring;
use crate::umem::Umem;
use rustix::net::xdp::XdpDesc;
use rustix::net::{RecvFlags, recv};
use std::sync::Arc;

/// Receives the frames of taken connections from one queue.
pub struct Receiver {
    port: Arc<Port>,
    fill: Ring<u64>,
    ring: Ring<XdpDesc>,
}

impl Receiver {
    pub(crate) fn new(port: Arc<Port>, fill: Ring<u64>, ring: Ring<XdpDesc>) -> Receiver {
        Receiver { port, fill, ring }
    }

    /// The next frames, at most `max`; none if none is there. Copy what is needed before the batch is dropped.
    ///
    /// Frames that a killed process had in its batch are received again by the next one.
    pub fn receive(&mut self, max: usize) -> Batch<'_> {
        Batch::new(self, max)
    }

    /// Index of the next chunk in the ring, and how many are there.
    pub(crate) fn there(&self) -> (u32, u32) {
        let from = self.ring.consumer();
        (from, self.ring.producer().wrapping_sub(from).min(self.ring.size()))
    }

    pub(crate) fn descriptor(&self, index: u32) -> XdpDesc {
        self.ring.read(index)
    }

    pub(crate) fn umem(&self) -> &Umem {
        &self.port.umem
    }

    /// Gives chunks back to the kernel. The order of the stores matters: see [`crate::takeover`].
    pub(crate) fn give_back(&mut self, from: u32, count: u32) {
        if count == 0 {
            return;
        }
        self.refill(from, count);
        self.ring.set_consumer(from.wrapping_add(count));
        if self.fill.needs_wakeup() {
            // Only tells the driver. If it fails, the device is gone, which sending and waiting report.
            let _ = recv(self.port.fd(), &mut [0u8; 0], RecvFlags::DONTWAIT);
        }
    }

    /// Puts chunks into the fill ring: all but the last step.
    pub(crate) fn refill(&mut self, from: u32, count: u32) {
        let producer = self.fill.producer();
        for number in 0..count {
            let address = self.ring.read(from.wrapping_add(number)).addr;
            self.fill.write(producer.wrapping_add(number), address & !(CHUNK as u64 - 1));
        }
        self.fill.set_producer(producer.wrapping_add(count));
    }
}
