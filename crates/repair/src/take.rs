//! Out of the kernel.

use crate::examine::{NotTaken, examine};
use crate::guard;
use crate::info::{Info, SACK, TIMESTAMPS};
use crate::intrusion::{end_listening, expel, is_still};
use crate::kernel::CallError;
use crate::names::Names;
use crate::options;
use crate::profile;
use crate::queues::{self, ReadError};
use crate::repair;
use crate::saved::Saved;
use crate::state::{State, Taken};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

/// Why a connection was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// The connection must stay in the kernel. Nothing has changed.
    #[error("the connection stays in the kernel: {0}")]
    NotTaken(#[from] NotTaken),
    /// A call failed. All is undone: the connection goes on in the kernel.
    #[error("the connection could not be taken and goes on in the kernel: {0}")]
    Call(#[from] CallError),
    /// Packets came or left meanwhile. All is undone: divert the connection's packets first, then try again.
    #[error("the connection moved while it was being taken; divert its packets first, then try again")]
    Moved,
    /// A call failed, and so did undoing: the socket is in repair mode, as after a take. Call [`undo`] again.
    #[error("the connection could not be taken and stays in repair mode, since undoing failed: {source}")]
    Stuck {
        /// What failed while undoing.
        source: CallError,
        /// For [`undo`].
        saved: Box<Saved>,
    },
}

/// Takes the connection out of the kernel. The socket stays ESTABLISHED, in repair mode, with its queues as they were ("parked").
///
/// The caller has diverted the connection's incoming packets before, and keeps them away from the socket until a give-back: the
/// parked socket drops what comes nonetheless, and its peer would send for nothing. No thread is in a call on the socket. Needs CAP_NET_ADMIN in the user namespace of the socket's network namespace.
///
/// While the socket is parked, read(2) fails with EPERM and send(2) with EINVAL. If bytes were in flight, the kernel goes on to
/// retransmit them from the parked socket, and gives the socket up after TCP_USER_TIMEOUT or tcp_retries2: better take
/// connections with [`Taken::unacknowledged`] empty, or give them back soon.
pub fn take(fd: impl AsFd) -> Result<Taken, TakeError> {
    let saved = prepare(&fd)?;
    take_prepared(fd, saved)
}

/// The first half of [`take`], which changes nothing: whether the connection can be taken, and what [`undo`] needs to know. A
/// caller that may be killed notes this value where another process finds it.
pub fn prepare(fd: impl AsFd) -> Result<Saved, TakeError> {
    let fd = fd.as_fd();
    examine(fd)?;
    Ok(Saved::read(fd)?)
}

/// The second half of [`take`].
pub fn take_prepared(fd: impl AsFd, saved: Saved) -> Result<Taken, TakeError> {
    let fd = fd.as_fd();
    // An acknowledgement that the kernel delays would leave later, with sequence numbers that are old by then. The kernel sends it
    // now if nothing is unread.
    options::TCP_QUICKACK.set(fd, 1)?;
    let info = Info::read(fd)?;
    repair::turn_on(fd)?;
    park(fd, saved, &info).map_err(|error| undone(fd, saved, error))
}

/// Lets the kernel go on with a parked socket as it was parked, or with one that [`take_prepared`] was about to park. Only right if
/// nobody has carried the connection meanwhile. Sends no packet. A socket that the program has made a listener or another
/// connection meanwhile is closed.
pub fn undo(fd: impl AsFd, saved: &Saved) -> Result<(), CallError> {
    let fd = fd.as_fd();
    let mut opened = Ok(());
    if repair::is_on(fd)? {
        if end_listening(fd)? {
            return guard::open(fd);
        }
        opened = guard::open(fd);
        repair::turn_off_quietly(fd)?;
        expel(fd, &[saved.names])?;
    }
    queues::count_without_urgent(fd)?;
    saved.restore_parked(fd)?;
    opened
}

fn undone(fd: BorrowedFd, saved: Saved, error: TakeError) -> TakeError {
    match undo(fd, &saved) {
        Ok(()) => error,
        Err(source) => TakeError::Stuck { source, saved: Box::new(saved) },
    }
}

fn park(fd: BorrowedFd, saved: Saved, info: &Info) -> Result<Taken, TakeError> {
    saved.park(fd)?;
    let Names { local, remote } = saved.names;
    if !is_still(fd, &saved.names)? {
        return Err(CallError { call: "getpeername(2)", source: Errno::NOTCONN }.into());
    }
    // In repair mode, this is what the peer has announced.
    let mss = options::TCP_MAXSEG.get(fd)?;
    if mss < repair::SMALLEST_MSS {
        return Err(NotTaken::TinySegments { mss }.into());
    }
    let timestamps = match info.options() & TIMESTAMPS {
        0 => None,
        _ => Some(repair::timestamp_clock(fd)?),
    };
    let profile = profile::read(fd, info, local)?;
    guard::close(fd)?;
    let before = repair::window(fd)?;
    let contents = queues::read(fd).map_err(|error| match error {
        ReadError::Call(error) => TakeError::Call(error),
        ReadError::Moved => TakeError::Moved,
        ReadError::Urgent => TakeError::NotTaken(NotTaken::Urgent),
    })?;
    // Only packets of the peer change these. A delayed acknowledgement may change what this end has announced.
    let window = repair::window(fd)?;
    if (before.snd_wl1, before.snd_wnd) != (window.snd_wl1, window.snd_wnd) {
        return Err(TakeError::Moved);
    }
    let state = State {
        local,
        remote,
        snd_una: contents.snd_una,
        snd_nxt: contents.snd_nxt,
        rcv_nxt: contents.rcv_nxt,
        window,
        mss,
        scales: info.scales(),
        sack: info.options() & SACK != 0,
        timestamps,
        saved,
    };
    Ok(Taken { state, unread: contents.unread, unacknowledged: contents.unacknowledged, path: info.path(), profile })
}
