//! Bytes that a program has left in its ring, and that the stack sends by kernel in its place.

use super::Program;
use crate::memory;
use crate::record::Record;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::time::Timespec;
use sidestep_sys::tcp::traffic;

impl Program {
    /// Whether [`Program::send_left`] may have something to do.
    pub fn may_have_left(&mut self) -> bool {
        let half = self.link.incoming(self.slot);
        if !half.claim_sending() {
            return true; // the program is sending
        }
        let left = self.rx.left_behind(half);
        half.has_sent();
        matches!(left, Ok((_, _, 1..)))
    }

    /// Sends the program's bytes that are in its ring, which nobody reads any more. It may have written them during a give-back, or
    /// have found no space for them in the kernel's buffers, and make no call from then on. False: there may be more.
    /// `record`: where the next process finds it, should this one be killed meanwhile.
    pub fn send_left(&mut self, socket: BorrowedFd, record: Option<&Record>) -> bool {
        let (half, ring) = (self.link.incoming(self.slot), self.link.incoming_data(self.slot));
        if !half.claim_sending() {
            return false; // the program is sending them itself
        }
        let mut is_done = true;
        if let Ok((from, at, len @ 1..)) = self.rx.left_behind(half) {
            let mut bytes = Vec::new();
            memory::get(ring, at, len, &mut bytes);
            if let Some((record, carried)) = record.zip(traffic(socket.as_raw_fd())) {
                record.begin_sending(from, carried.written);
            }
            let sent = send_now(socket, &bytes);
            half.set_sent_to(from.wrapping_add(sent as u64));
            record.inspect(|record| record.end_sending());
            is_done = sent == len;
        }
        half.has_sent();
        is_done
    }

    /// A worker was killed in [`Program::send_left`]: the kernel says how many bytes it has got, so that the program does not send them
    /// again. It has sent nothing meanwhile, since the worker had the claim, which ends here.
    pub fn found_sending(&self, socket: BorrowedFd, record: &Record) {
        let Some((from, before)) = record.sending() else { return };
        let Some(carried) = traffic(socket.as_raw_fd()) else { return };
        let (half, sent) = (self.link.incoming(self.slot), carried.written.wrapping_sub(before));
        // More only if the program writes past the library.
        if (1..=self.ring_size() as u64).contains(&sent) {
            half.set_sent_to(from.wrapping_add(sent));
        }
        record.end_sending();
        half.has_sent();
    }
}

/// Returns how many of the bytes the kernel has taken. An error of the connection is left to the program's next call.
fn send_now(socket: BorrowedFd, bytes: &[u8]) -> usize {
    let mut look = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    let looked = poll(&mut look, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    if looked.is_err() || look[0].revents().contains(PollFlags::ERR) {
        return 0;
    }
    sidestep_repair::send_behind(socket, bytes)
}
