//! Parks connections that were turned away while their queues hold descriptors, until a receiver can close them. Closing such a
//! connection may block for as long as its sender likes, and there can be any number of them. So they are sent into the queue
//! of a socket pair of our own. There they use no descriptor of the broker, and the kernel charges their memory to their
//! makers.

use crate::rights;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType};
use std::io::IoSlice;
use std::mem::MaybeUninit;

/// Connections in one record. Fewer than this keep their descriptors until a record is full.
const RECORD: usize = 32;
/// Most connections with open descriptors, if they cannot be sent into a queue.
const MOST: usize = 48;

/// Parked connections.
#[derive(Default)]
pub struct Parking {
    /// Connections for the next record.
    staged: Vec<OwnedFd>,
    lots: Vec<Lot>,
}

/// A socket pair with parked connections in its queue, which are closed together with `exit`.
struct Lot {
    entry: OwnedFd,
    exit: OwnedFd,
}

impl Parking {
    pub fn park(&mut self, socket: OwnedFd) {
        self.staged.push(socket);
        if self.staged.len() >= RECORD {
            // If this fails, the next call tries again.
            let _ = self.move_in();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.staged.is_empty() && self.lots.is_empty()
    }

    /// Whether there is no room: the kernel takes no more of them, and many descriptors are in use.
    pub fn is_full(&self) -> bool {
        self.staged.len() >= MOST
    }

    /// Takes some of them out. The caller closes them where blocking does no harm.
    pub fn leave(&mut self) -> Option<OwnedFd> {
        self.staged.pop().or_else(|| self.lots.pop().map(|lot| lot.exit))
    }

    fn move_in(&mut self) -> Result<(), Errno> {
        let sent = match self.lots.last() {
            Some(lot) => send(&lot.entry, &self.staged[..RECORD]),
            None => Err(Errno::AGAIN),
        };
        if sent == Err(Errno::AGAIN) {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (entry, exit) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            send(&entry, &self.staged[..RECORD])?;
            self.lots.push(Lot { entry, exit });
        } else {
            sent?;
        }
        // The queue holds them now, so these are not the last references.
        self.staged.drain(..RECORD);
        Ok(())
    }
}

fn send(entry: &OwnedFd, sockets: &[OwnedFd]) -> Result<(), Errno> {
    let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(RECORD))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&sockets));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rights::past_too_many_in_flight(|| {
        rustix::net::sendmsg(entry, &[IoSlice::new(&[0])], &mut control, flags).map(|_| ())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptors() -> usize {
        std::fs::read_dir("/proc/self/fd").expect("/proc").count()
    }

    #[test]
    fn what_is_parked_takes_no_descriptors_and_lives_until_it_leaves() {
        let mut parking = Parking::default();
        let (reader, writer) = rustix::pipe::pipe().expect("pipe");
        let before = descriptors();
        for _ in 0..100 * RECORD {
            parking.park(writer.try_clone().expect("dup"));
        }
        assert!(descriptors() < before + 20 * RECORD, "other tests may have some, too");
        assert!(parking.staged.is_empty() && !parking.is_full());
        drop(writer);
        rustix::io::ioctl_fionbio(&reader, true).expect("non-blocking");
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Err(Errno::AGAIN), "they are open");
        while let Some(left) = parking.leave() {
            drop(left);
        }
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0), "all are closed");
    }
}
