//! The bytes of both queues: out of the kernel and back.

use crate::buffers::{Buffer, Grown};
use crate::info::Info;
use crate::kernel::{CallError, SIOCINQ, SIOCOUTQ, SIOCOUTQNSD};
use crate::options;
use crate::repair::{self, Queue};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// What the kernel's queues hold. The sequence numbers follow each other: `una`, `una + len of sent`, ...
pub(crate) struct Contents {
    pub(crate) snd_una: u32,
    pub(crate) snd_nxt: u32,
    pub(crate) rcv_nxt: u32,
    pub(crate) unread: Vec<u8>,
    pub(crate) unacknowledged: Vec<u8>,
}

/// Why the queues could not be read.
pub(crate) enum ReadError {
    Call(CallError),
    /// A packet came or left meanwhile.
    Moved,
    /// The receive queue has a hole where an urgent byte was.
    Urgent,
}

impl From<CallError> for ReadError {
    fn from(error: CallError) -> ReadError {
        ReadError::Call(error)
    }
}

/// Copies both queues of a socket in repair mode.
pub(crate) fn read(fd: BorrowedFd) -> Result<Contents, ReadError> {
    let (rcv_nxt, unread) = read_unread(fd)?;
    // Before the send queue is selected: from then on the kernel may mark bytes as sent that it does not send.
    let unsent = SIOCOUTQNSD.ask(fd)?;
    let (end, unacknowledged) = read_unacknowledged(fd)?;
    let len = u32::try_from(unacknowledged.len()).map_err(|_| ReadError::Moved)?;
    let arrived = repair::end_of_queue(fd, Queue::Receive)? != rcv_nxt;
    repair::select(fd, Queue::None)?;
    if unsent > len || arrived {
        return Err(ReadError::Moved);
    }
    let (snd_una, snd_nxt) = (end.wrapping_sub(len), end.wrapping_sub(unsent));
    Ok(Contents { snd_una, snd_nxt, rcv_nxt, unread, unacknowledged })
}

/// Also returns RCV.NXT.
fn read_unread(fd: BorrowedFd) -> Result<(u32, Vec<u8>), ReadError> {
    let rcv_nxt = repair::end_of_queue(fd, Queue::Receive)?;
    let len = SIOCINQ.ask(fd)? as usize;
    if len == 0 {
        return Ok((rcv_nxt, Vec::new()));
    }
    let bytes = peek(fd, len)?;
    let with_urgent = count_with_urgent(fd)?;
    match repair::end_of_queue(fd, Queue::Receive)? == rcv_nxt && bytes.len() == len {
        true if with_urgent == len => Ok((rcv_nxt, bytes)),
        true => Err(ReadError::Urgent),
        false => Err(ReadError::Moved),
    }
}

/// All unread bytes. Otherwise the count, and each read, ends where an urgent byte is or has been.
fn count_with_urgent(fd: BorrowedFd) -> Result<usize, CallError> {
    options::SO_OOBINLINE.set(fd, 1)?;
    let count = SIOCINQ.ask(fd);
    count_without_urgent(fd)?;
    Ok(count? as usize)
}

/// The program does not receive urgent bytes in line, or the connection would not be taken.
pub(crate) fn count_without_urgent(fd: BorrowedFd) -> Result<(), CallError> {
    options::SO_OOBINLINE.set(fd, 0)
}

/// Bytes that an acknowledgement inside of a segment leaves in front of the queue: the kernel does not trim a single segment.
const ACKNOWLEDGED_IN_FRONT: usize = 1 << 16;

/// Also returns the sequence number after the last byte.
fn read_unacknowledged(fd: BorrowedFd) -> Result<(u32, Vec<u8>), ReadError> {
    let len = SIOCOUTQ.ask(fd)? as usize;
    let end = repair::end_of_queue(fd, Queue::Send)?;
    // The kernel copies the whole queue or reports more bytes than it has copied.
    let peeked = if len == 0 { Ok(Vec::new()) } else { peek(fd, len.saturating_add(ACKNOWLEDGED_IN_FRONT)) };
    repair::select(fd, Queue::None)?;
    let mut bytes = peeked?;
    if SIOCOUTQ.ask(fd)? as usize != len {
        return Err(ReadError::Moved);
    }
    let in_front = bytes.len().checked_sub(len).ok_or(ReadError::Moved)?;
    bytes.drain(..in_front);
    Ok((end, bytes))
}

fn peek(fd: BorrowedFd, room: usize) -> Result<Vec<u8>, ReadError> {
    let mut bytes = vec![0; room];
    match recv(fd, &mut bytes[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        // More than there is room for: see above.
        Ok((_, len)) if len > room => return Err(ReadError::Moved),
        Ok((_, len)) => bytes.truncate(len),
        Err(Errno::AGAIN) => bytes.clear(),
        Err(source) => return Err(CallError { call: "recv(MSG_PEEK)", source }.into()),
    }
    Ok(bytes)
}

/// Most bytes that one send(2) puts into the receive queue: the kernel makes one packet of them.
const PIECE: usize = 1 << 16;

/// Appends bytes to the receive queue of a socket in repair mode.
pub(crate) fn fill_unread(fd: BorrowedFd, parts: [&[u8]; 2], grown: &mut Grown) -> Result<(), CallError> {
    if parts.iter().all(|part| part.is_empty()) {
        return Ok(());
    }
    repair::select(fd, Queue::Receive)?;
    for piece in parts.iter().flat_map(|part| part.chunks(PIECE)) {
        append(fd, piece, Buffer::Receive, grown).map_err(|(_, error)| error)?;
    }
    Ok(())
}

/// Appends bytes that have been sent to the send queue of a socket in repair mode: the kernel does not send them before it
/// retransmits.
pub(crate) fn fill_sent(fd: BorrowedFd, parts: [&[u8]; 2], grown: &mut Grown) -> Result<(), CallError> {
    if parts.iter().all(|part| part.is_empty()) {
        return Ok(());
    }
    repair::select(fd, Queue::Send)?;
    for part in parts {
        append(fd, part, Buffer::Send, grown).map_err(|(_, error)| error)?;
    }
    Ok(())
}

/// Number of bytes that have been put into the send queue by a give-back and since. Nobody puts any meanwhile.
///
/// # Errors
///
/// It is no TCP socket.
pub fn queued_since(fd: BorrowedFd) -> Result<u64, CallError> {
    loop {
        let left = SIOCOUTQ.ask(fd)?;
        let acknowledged = Info::read(fd)?.acknowledged();
        if SIOCOUTQ.ask(fd)? == left {
            return Ok(acknowledged + u64::from(left));
        }
    }
}

/// Sends bytes as the program would, out of repair mode. Err also has the number of bytes that are not in the queue.
pub(crate) fn send_unsent(fd: BorrowedFd, parts: [&[u8]; 2], grown: &mut Grown) -> Result<(), (usize, CallError)> {
    let [first, second] = parts;
    append(fd, first, Buffer::Send, grown).map_err(|(left, error)| (left + second.len(), error))?;
    append(fd, second, Buffer::Send, grown)
}

/// Writes all bytes, and lets the buffer grow as needed. Err also has the number of bytes that are left.
fn append(fd: BorrowedFd, mut bytes: &[u8], buffer: Buffer, grown: &mut Grown) -> Result<(), (usize, CallError)> {
    while !bytes.is_empty() {
        match send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(done) => bytes = &bytes[done..],
            Err(Errno::INTR) => {}
            Err(error) => {
                let failed = CallError { call: "send(2)", source: error };
                let full = matches!(error, Errno::AGAIN | Errno::NOMEM | Errno::NOBUFS);
                let room = if full { grown.grow(fd, buffer) } else { Err(failed) };
                room.map_err(|error| (bytes.len(), error))?;
            }
        }
    }
    Ok(())
}
