//! The sending side of a queue.

use crate::error::{Error, Result};
use crate::layout::CHUNK;
use crate::port::Port;
use crate::ring::Ring;
use rustix::io::Errno;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};
use rustix::net::{SendFlags, send};
use std::sync::Arc;

/// The most chunks of one frame: MAX_SKB_FRAGS of usual kernels. The kernel would drop a longer frame.
const MOST_CHUNKS: usize = 17;

/// Sends frames by one queue.
pub struct Sender {
    port: Arc<Port>,
    ring: Ring<XdpDesc>,
    completion: Ring<u64>,
}

impl Sender {
    pub(crate) fn new(port: Arc<Port>, ring: Ring<XdpDesc>, completion: Ring<u64>) -> Sender {
        Sender { port, ring, completion }
    }

    /// Begins a batch of frames.
    pub fn outgoing(&mut self) -> Outgoing<'_> {
        let (producer, consumer) = (self.ring.producer(), self.completion.consumer());
        let used = producer.wrapping_sub(consumer).min(self.ring.size());
        let unused = self.ring.size() - used;
        let completed = self.completion.producer().wrapping_sub(consumer).min(self.completion.size());
        Outgoing { sender: self, producer, consumer, unused, space: unused + completed, filled: 0, complete: 0 }
    }

    /// Tells the kernel of submitted frames, if it has to be told. Frames that the device has no room for now stay submitted: call
    /// this again.
    ///
    /// # Errors
    ///
    /// [`Error::CannotSend`]: the device is down or gone.
    pub fn kick(&mut self) -> Result<()> {
        let mut left = self.waiting();
        while left > 0 && self.ring.needs_wakeup() {
            match send(self.port.sending(), &[], SendFlags::DONTWAIT) {
                // In copy mode one call moves 32 frames at most.
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(Errno::BUSY | Errno::NOBUFS | Errno::INTR) => return Ok(()),
                Err(error) => return Err(Error::CannotSend(error)),
            }
            if self.waiting() >= left {
                return Ok(());
            }
            left = self.waiting();
        }
        Ok(())
    }

    /// Number of submitted chunks that the kernel has not taken yet.
    pub fn waiting(&self) -> u32 {
        self.ring.producer().wrapping_sub(self.ring.consumer())
    }
}

/// Frames on their way into the ring. What is not submitted is discarded.
pub struct Outgoing<'a> {
    sender: &'a mut Sender,
    /// Indices of the send ring's producer and the completion ring's consumer at the beginning.
    producer: u32,
    consumer: u32,
    /// Frames that were never used: they come first, in order of their numbers.
    unused: u32,
    space: u32,
    /// Chunks that are filled, and those of them that make complete frames.
    filled: u32,
    complete: u32,
}

impl Outgoing<'_> {
    /// Number of chunks that are free.
    pub fn space(&self) -> usize {
        (self.space - self.filled) as usize
    }

    /// The next chunk, of [`CHUNK`] bytes, with old contents; None: there is none. Fill it and call [`Outgoing::commit`].
    pub fn buffer(&mut self) -> Option<&mut [u8]> {
        let address = self.address()?;
        // SAFETY: unused, or in the completion ring and not consumed; `&mut self` allows one slice at a time.
        unsafe { self.sender.port.umem.to_send(address) }
    }

    pub(crate) fn address(&self) -> Option<u64> {
        if self.filled >= self.space {
            return None;
        }
        match self.filled.checked_sub(self.unused) {
            None => {
                let number = self.sender.ring.size() - self.unused + self.filled;
                Some(self.sender.port.umem.layout().send_address(number))
            }
            Some(completed) => Some(self.sender.completion.read(self.consumer.wrapping_add(completed))),
        }
    }

    /// Ends the frame with the first `length` bytes of [`Outgoing::buffer`]. A frame that is longer than the device's MTU is dropped
    /// by the kernel.
    ///
    /// # Panics
    ///
    /// If there was no buffer, or `length` is 0 or more than [`CHUNK`].
    pub fn commit(&mut self, length: usize) {
        self.add(length, XdpDescOptions::empty());
        self.complete = self.filled;
    }

    fn add(&mut self, length: usize, options: XdpDescOptions) {
        assert!((1..=CHUNK).contains(&length), "{length} bytes do not fit into a chunk");
        let addr = self.address().expect("a buffer is free");
        let descriptor = XdpDesc { addr, len: length as u32, options };
        self.sender.ring.write(self.producer.wrapping_add(self.filled), descriptor);
        self.filled += 1;
    }

    /// Adds a frame that consists of these parts. False: there is no room for it now, it is empty, or it is too long for the device.
    pub fn push(&mut self, parts: &[&[u8]]) -> bool {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let most = if self.sender.port.umem.layout().several_chunks { MOST_CHUNKS } else { 1 };
        if total == 0 || total.div_ceil(CHUNK) > self.space().min(most) {
            return false;
        }
        let mut bytes = parts.iter().copied();
        let (mut part, mut left): (&[u8], usize) = (&[], total);
        while left > 0 {
            let chunk = left.min(CHUNK);
            let Some(buffer) = self.buffer() else { return false };
            fill(&mut buffer[..chunk], &mut part, &mut bytes);
            left -= chunk;
            if left > 0 { self.add(chunk, XdpDescOptions::XDP_PKT_CONTD) } else { self.commit(chunk) }
        }
        true
    }

    /// Puts the complete frames into the ring, and returns the number of their chunks. [`Sender::kick`] sends them. The order of the
    /// stores matters: see takeover.rs.
    pub fn submit(self) -> usize {
        self.publish();
        let consumed = self.complete.saturating_sub(self.unused);
        self.sender.completion.set_consumer(self.consumer.wrapping_add(consumed));
        self.complete as usize
    }

    /// Puts the complete frames into the send ring: all but the last step.
    pub(crate) fn publish(&self) {
        self.sender.ring.set_producer(self.producer.wrapping_add(self.complete));
    }
}

/// Fills a buffer from `part` and then from the parts that follow.
fn fill<'a>(mut buffer: &mut [u8], part: &mut &'a [u8], parts: &mut impl Iterator<Item = &'a [u8]>) {
    while !buffer.is_empty() {
        if part.is_empty() {
            let Some(next) = parts.next() else { return };
            *part = next;
            continue;
        }
        let count = part.len().min(buffer.len());
        let (now, later) = part.split_at(count);
        buffer[..count].copy_from_slice(now);
        buffer = &mut buffer[count..];
        *part = later;
    }
}
