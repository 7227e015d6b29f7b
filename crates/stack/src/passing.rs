//! Any number of descriptors, over a Unix socket.

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::{self, Errno};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// What one message can carry (`SCM_MAX_FD`).
const MOST: usize = 253;

/// Sends all descriptors, in as many messages as that takes. The byte of a message says whether another one follows.
///
/// # Errors
///
/// EPIPE: the other end is gone.
pub fn send(socket: BorrowedFd, descriptors: &[BorrowedFd]) -> io::Result<()> {
    let mut left = descriptors;
    loop {
        let (now, later) = left.split_at(MOST.min(left.len()));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(now));
        let follows = [u8::from(!later.is_empty())];
        sendmsg(socket, &[IoSlice::new(&follows)], &mut control, SendFlags::NOSIGNAL)?;
        if later.is_empty() {
            return Ok(());
        }
        left = later;
    }
}

/// Receives them, in the same order.
///
/// # Errors
///
/// ECONNRESET: the other end is gone. EMFILE: some were lost.
pub fn receive(socket: BorrowedFd) -> io::Result<Vec<OwnedFd>> {
    let mut all = Vec::new();
    while receive_some(socket, &mut all)? {}
    Ok(all)
}

/// Returns whether another message follows.
fn receive_some(socket: BorrowedFd, all: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut follows = [0];
    let got = io::retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut follows)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    if got.bytes == 0 {
        return Err(Errno::CONNRESET);
    }
    if got.flags.contains(rustix::net::ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE);
    }
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    all.extend(rights.flatten());
    Ok(follows != [0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::fs::fstat;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// Two devices with sixty-three queues each have so many.
    #[test]
    fn more_descriptors_than_one_message_carries_arrive_in_order() {
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("sockets");
        for count in [1, MOST, MOST + 1, 300] {
            let all: Vec<_> = (0..count).map(|n| [here.as_fd(), there.as_fd()][n % 2]).collect();
            send(here.as_fd(), &all).expect("room");
            let received = receive(there.as_fd()).expect("all");
            let inode = |fd: BorrowedFd| fstat(fd).expect("a socket").st_ino;
            let inodes: Vec<_> = received.iter().map(|fd| inode(fd.as_fd())).collect();
            assert_eq!(inodes, all.into_iter().map(inode).collect::<Vec<_>>());
        }
    }
}
