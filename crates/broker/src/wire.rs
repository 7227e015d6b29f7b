//! One record on a control socket, with at most one descriptor.

use crate::raw::sock;
pub use crate::raw::sock::Sender;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::time::Timespec;
use sidestep_abi::msg::{self, Msg};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;

/// Result of a receive.
pub enum Incoming {
    /// A record of the protocol.
    Record(Record),
    /// A record that is not one of ours, with its first words, if it is long enough to have them.
    Garbage {
        /// Its first word.
        kind: u32,
        /// Its second word.
        version: u32,
    },
    /// There is nothing more now.
    Empty,
    /// The other end is gone.
    End,
}

/// A record, with its descriptor and credentials.
pub struct Record {
    /// The record's words.
    pub msg: Msg,
    /// The descriptor that came with it.
    pub fd: Option<OwnedFd>,
    /// Credentials of the sender, from the kernel.
    pub sender: Option<Sender>,
    /// A descriptor was sent but could not be received.
    pub fd_lost: bool,
}

/// Receives without blocking.
pub fn receive(socket: BorrowedFd<'_>) -> Incoming {
    // One byte longer than a record, so that a longer record is noticed.
    let mut bytes = [0; msg::LEN + 1];
    let got = loop {
        match sock::recv(socket, &mut bytes) {
            Ok(got) => break got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Incoming::Empty,
            Err(_) => return Incoming::End,
        }
    };
    if got.len == 0 {
        return Incoming::End;
    }
    match Msg::from_bytes(&bytes[..got.len]) {
        Some(msg) => Incoming::Record(Record { msg, fd: got.fd, sender: got.sender, fd_lost: got.fds_lost }),
        None if got.len < 8 => Incoming::Garbage { kind: 0, version: 0 },
        None => {
            let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            Incoming::Garbage { kind: word(0), version: word(4) }
        }
    }
}

/// Whether the other end has been closed, or its process has ended.
pub fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut looked = [PollFd::new(&socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut looked, Some(&now)).is_ok() && looked[0].revents().contains(PollFlags::HUP)
}

/// Sends without blocking.
pub fn send(socket: BorrowedFd<'_>, msg: &Msg, fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let bytes = msg.to_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| rustix::net::sendmsg(socket.as_fd(), &[IoSlice::new(&bytes)], &mut control, flags))
        .map(|_| ())
}
