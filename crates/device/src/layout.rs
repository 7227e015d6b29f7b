//! How a queue's UMEM is divided, written into the UMEM's own last page: who gets its descriptor knows all of it.
//!
//! ```text
//!   0                    receive_frames                    receive_frames + send_frames      (in chunks)
//!   | frames to receive  | frames to send                  | layout |
//! ```

use crate::error::{Error, Result};

/// Size of a chunk in bytes: one page, the most that AF_XDP allows without huge pages. A longer frame takes several chunks.
pub const CHUNK: usize = 4096;
/// Bytes that the kernel leaves free in front of a received frame (XDP_PACKET_HEADROOM).
pub(crate) const HEADROOM: usize = 256;

const MAGIC: u64 = u64::from_ne_bytes(*b"sdstpdev");
const VERSION: u32 = 2;
/// Limits of the number of frames of either kind.
const FRAMES: std::ops::RangeInclusive<u32> = 64..=32768;

/// What the descriptors of a queue belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Index of the device.
    pub device: u32,
    /// Number of the queue.
    pub queue: u32,
    /// Number of frames to receive, a power of two.
    pub receive_frames: u32,
    /// Number of frames to send, a power of two.
    pub send_frames: u32,
    /// Whether a frame may take several chunks.
    pub several_chunks: bool,
    /// Index of the inlet, if frames are diverted to one.
    pub inlet: Option<u32>,
}

/// Size of the written form in bytes.
pub(crate) const WRITTEN: usize = 36;

impl Layout {
    /// Size of the frames in bytes.
    pub fn frames(&self) -> usize {
        (self.receive_frames as usize + self.send_frames as usize) * CHUNK
    }

    /// Size of all memory in bytes: the frames and the layout.
    pub fn size(&self) -> usize {
        self.frames() + CHUNK
    }

    /// Address of the frame to send with this number.
    pub fn send_address(&self, number: u32) -> u64 {
        (u64::from(self.receive_frames) + u64::from(number)) * CHUNK as u64
    }

    /// Refuses numbers of frames that no queue has.
    pub fn check(&self) -> Result<()> {
        let is_fine = |frames: u32| FRAMES.contains(&frames) && frames.is_power_of_two();
        if !is_fine(self.receive_frames) {
            return Err(Error::Frames("the number of frames to receive"));
        }
        if !is_fine(self.send_frames) {
            return Err(Error::Frames("the number of frames to send"));
        }
        Ok(())
    }

    pub fn to_bytes(self) -> [u8; WRITTEN] {
        let mut bytes = [0; WRITTEN];
        bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        let several = self.several_chunks.into();
        let inlet = self.inlet.unwrap_or_default();
        let words = [VERSION, self.device, self.queue, self.receive_frames, self.send_frames, several, inlet];
        for (to, word) in bytes[8..].chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// The layout that was written, if it is one.
    pub fn from_bytes(bytes: &[u8; WRITTEN]) -> Result<Layout> {
        let word = |number: usize| {
            let at = 8 + number * 4;
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if !bytes.starts_with(&MAGIC.to_ne_bytes()) || word(0) != VERSION {
            return Err(Error::NotADevice("the UMEM has no layout of this version"));
        }
        let (receive_frames, send_frames, several_chunks) = (word(3), word(4), word(5) != 0);
        // No device has the index 0.
        let inlet = Some(word(6)).filter(|index| *index != 0);
        let layout = Layout { device: word(1), queue: word(2), receive_frames, send_frames, several_chunks, inlet };
        layout.check()?;
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout =
        Layout { device: 7, queue: 1, receive_frames: 64, send_frames: 128, several_chunks: true, inlet: None };

    #[test]
    fn a_layout_is_read_as_it_was_written() {
        for layout in [LAYOUT, Layout { inlet: Some(9), ..LAYOUT }] {
            assert_eq!(Layout::from_bytes(&layout.to_bytes()).unwrap(), layout);
        }
    }

    #[test]
    fn others_memory_is_refused() {
        for at in [0, 8, 20, 24] {
            let mut bytes = LAYOUT.to_bytes();
            bytes[at] ^= 1;
            assert!(Layout::from_bytes(&bytes).is_err(), "byte {at}");
        }
        assert!(Layout { send_frames: 65536, ..LAYOUT }.check().is_err());
        assert!(Layout { receive_frames: 32, ..LAYOUT }.check().is_err());
    }
}
