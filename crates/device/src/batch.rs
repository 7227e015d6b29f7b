//! Received frames.

use crate::receive::Receiver;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};

/// Frames that have been received. They go back to the kernel when this is dropped.
pub struct Batch<'a> {
    receiver: &'a mut Receiver,
    from: u32,
    chunks: u32,
}

impl<'a> Batch<'a> {
    /// At most `max` frames from the ring. A frame whose last chunk is not there yet is left for the next batch.
    pub(crate) fn new(receiver: &'a mut Receiver, max: usize) -> Batch<'a> {
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
