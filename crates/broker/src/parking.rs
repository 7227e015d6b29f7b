//! Connections that were turned away, hold descriptors of their senders, and that no receiver closes at the moment. To close
//! them could take as long as a stranger likes, and there can be any number of them. So they are put into the queue of a
//! socket of our own, where they take no descriptor number, and their memory is that of whoever made them.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType};
use std::io::IoSlice;
use std::mem::MaybeUninit;

/// Connections in one record: so many keep a descriptor number until they are parked.
const RECORD: usize = 32;
/// Connections that are kept by their descriptors when they cannot be parked.
const MOST: usize = 48;

/// Where they are until somebody closes them.
#[derive(Default)]
pub struct Parking {
    /// For the next record.
    staged: Vec<OwnedFd>,
    lots: Vec<Lot>,
}

/// A pair of sockets. What is in the queue is closed with the exit.
struct Lot {
    entry: OwnedFd,
    exit: OwnedFd,
}

impl Parking {
    pub fn park(&mut self, socket: OwnedFd) {
        self.staged.push(socket);
        if self.staged.len() >= RECORD {
            // Otherwise it is tried again with the next one.
            let _ = self.move_in();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.staged.is_empty() && self.lots.is_empty()
    }

    /// There is no room: the kernel takes no more of them, and many descriptors are in use.
    pub fn is_full(&self) -> bool {
        self.staged.len() >= MOST
    }

    /// Some of them, to be closed by somebody who can wait.
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
        // The queue has them: these are not the last ones.
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
    rustix::net::sendmsg(entry, &[IoSlice::new(&[0])], &mut control, flags).map(|_| ())
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
