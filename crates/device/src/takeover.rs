//! Where each frame is, and how a process that takes the rings over finds it.
//!
//! A frame to receive is always in one of three places: with the kernel (in the fill ring, or out of it), or in the receive ring.
//! A process looks at a frame *while it is in the receive ring*, and gives it back in this order:
//!
//! 1. it writes the frame's address into the fill ring,
//! 2. it publishes the fill ring's producer index,
//! 3. it publishes the receive ring's consumer index.
//!
//! Between two of these orders every index of the fill ring is that of the receive ring plus the number of frames, since each
//! frame that leaves one enters the other. So if a process was killed between 2 and 3, its successor does 3 by computation. Frames
//! that the dead process had received and not given back are still in the receive ring, and are received again.
//!
//! Frames to send are used in order of their numbers once. From then on each is with the kernel, in the send ring, or in the
//! completion ring, which serves as the list of free frames: a process fills a frame *while it is in the completion ring*, then
//! publishes the send ring's producer index, then the completion ring's consumer index. The difference of these two is the number
//! of frames that have been used, never more than there are. If a process was killed between the two, the difference is greater,
//! and its successor advances the consumer index.

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::rings::Rings;

/// Makes up for what a killed process has not finished. Changes nothing after an orderly end.
pub(crate) fn repair(rings: &Rings, layout: &Layout) -> Result<()> {
    let received = [rings.receive.consumer(), rings.receive.producer()];
    let consumer = receive_consumer(rings.fill.producer(), received, layout.receive_frames);
    rings.receive.set_consumer(consumer.ok_or(Error::NotADevice("frames to receive are lost"))?);
    let completed = [rings.completion.consumer(), rings.completion.producer()];
    let consumer = completion_consumer(rings.send.producer(), completed, layout.send_frames);
    rings.completion.set_consumer(consumer.ok_or(Error::NotADevice("frames to send are lost"))?);
    Ok(())
}

/// The true consumer index of the receive ring. `ring`: its consumer and producer index. None: no process left it like this.
fn receive_consumer(fill_producer: u32, ring: [u32; 2], frames: u32) -> Option<u32> {
    within(fill_producer.wrapping_sub(frames), ring)
}

/// The true consumer index of the completion ring, likewise.
fn completion_consumer(send_producer: u32, ring: [u32; 2], frames: u32) -> Option<u32> {
    let used = send_producer.wrapping_sub(ring[0]);
    if used <= frames { Some(ring[0]) } else { within(send_producer.wrapping_sub(frames), ring) }
}

fn within(index: u32, [from, to]: [u32; 2]) -> Option<u32> {
    (index.wrapping_sub(from) <= to.wrapping_sub(from)).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_given_back_to_the_kernel_leave_the_receive_ring() {
        assert_eq!(receive_consumer(64, [0, 0], 64), Some(0), "a new ring");
        assert_eq!(receive_consumer(74, [10, 30], 64), Some(10), "an orderly end");
        assert_eq!(receive_consumer(84, [10, 30], 64), Some(20), "killed between the two stores");
        assert_eq!(receive_consumer(70, [u32::MAX - 3, 9], 64), Some(6), "with indices that wrap");
        assert_eq!(receive_consumer(95, [10, 30], 64), None, "more than were received");
        assert_eq!(receive_consumer(73, [10, 30], 64), None, "fewer than before");
    }

    #[test]
    fn frames_put_into_the_send_ring_leave_the_completion_ring() {
        assert_eq!(completion_consumer(0, [0, 0], 64), Some(0), "a new ring");
        assert_eq!(completion_consumer(40, [0, 38], 64), Some(0), "not all have been used yet");
        assert_eq!(completion_consumer(80, [16, 70], 64), Some(16), "an orderly end");
        assert_eq!(completion_consumer(90, [16, 70], 64), Some(26), "killed between the two stores");
        assert_eq!(completion_consumer(70, [0, 40], 64), Some(6), "in the first round");
        assert_eq!(
            completion_consumer(20, [u32::MAX - 60, 0], 64),
            Some(20u32.wrapping_sub(64)),
            "with indices that wrap"
        );
        assert_eq!(completion_consumer(200, [16, 70], 64), None, "more than were completed");
    }
}
