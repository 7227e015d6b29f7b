//! Many descriptors in one message, over a Unix socket.

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

/// Sends all descriptors.
///
/// # Errors
///
/// E2BIG: more than one message can carry.
pub fn send(socket: BorrowedFd, descriptors: &[BorrowedFd]) -> io::Result<()> {
    if descriptors.len() > MOST {
        return Err(Errno::TOOBIG);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(descriptors));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Receives them, in the same order.
///
/// # Errors
///
/// ECONNRESET: the other end is gone. EMFILE: some were lost.
pub fn receive(socket: BorrowedFd) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let got = io::retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
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
    Ok(rights.flatten().collect())
}
