//! The receiving side of a queue.

use crate::layout::CHUNK;
use crate::port::Port;
use crate::ring::Ring;
use crate::umem::Umem;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};
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

    fn descriptor(&self, index: u32) -> XdpDesc {
        self.ring.read(index)
    }

    fn umem(&self) -> &Umem {
        &self.port.umem
    }

    /// Gives chunks back to the kernel. The order of the stores matters: see takeover.rs.
    fn give_back(&mut self, from: u32, count: u32) {
        if count == 0 {
            return;
        }
        self.refill(from, count);
        self.ring.set_consumer(from.wrapping_add(count));
        if self.fill.needs_wakeup() {
            // Only tells the driver. If it fails, the device is gone, which sending and waiting report.
            let _ = recv(self.port.receiving(), &mut [0u8; 0], RecvFlags::DONTWAIT);
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

/// Frames that have been received. They go back to the kernel when this is dropped.
pub struct Batch<'a> {
    receiver: &'a mut Receiver,
    from: u32,
    chunks: u32,
}

impl<'a> Batch<'a> {
    /// At most `max` frames from the ring. A frame whose last chunk is not there yet is left for the next batch.
    fn new(receiver: &'a mut Receiver, max: usize) -> Batch<'a> {
        let (from, there) = receiver.there();
        let (mut chunks, mut frames) = (0, 0);
        for chunk in 0..there {
            if frames == max {
                break;
            }
            if is_last(&receiver.descriptor(from.wrapping_add(chunk))) {
                (chunks, frames) = (chunk + 1, frames + 1);
            }
        }
        Batch { receiver, from, chunks }
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.chunks == 0
    }

    /// The frames, in the order in which they arrived.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let first = next;
            while next < self.chunks {
                next += 1;
                if is_last(&self.descriptor(next - 1)) {
                    break;
                }
            }
            (first < next).then_some(Frame { batch: self, first, end: next })
        })
    }

    fn descriptor(&self, chunk: u32) -> XdpDesc {
        self.receiver.descriptor(self.from.wrapping_add(chunk))
    }

    fn bytes(&self, chunk: u32) -> &[u8] {
        let descriptor = self.descriptor(chunk);
        // SAFETY: the chunk stays in the receive ring until `drop`, which needs all slices to be gone.
        unsafe { self.receiver.umem().received(descriptor.addr, descriptor.len) }.unwrap_or_default()
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.receiver.give_back(self.from, self.chunks);
    }
}

fn is_last(descriptor: &XdpDesc) -> bool {
    !descriptor.options.contains(XdpDescOptions::XDP_PKT_CONTD)
}

/// One frame as the device has received it, from the Ethernet header on. A VLAN tag that the device has stripped is not in it.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    batch: &'a Batch<'a>,
    first: u32,
    end: u32,
}

impl<'a> Frame<'a> {
    /// The bytes of the first chunk: all of a frame that is shorter than [`crate::CHUNK`] less 256, and the headers of any other.
    pub fn head(&self) -> &'a [u8] {
        self.batch.bytes(self.first)
    }

    /// All bytes, in one slice for each chunk.
    pub fn parts(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let batch = self.batch;
        (self.first..self.end).map(move |chunk| batch.bytes(chunk))
    }

    /// Number of bytes.
    pub fn length(&self) -> usize {
        self.parts().map(<[u8]>::len).sum()
    }

    /// A copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts().collect::<Vec<_>>().concat()
    }
}
