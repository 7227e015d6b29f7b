//! Gives a connection back to the kernel, and the ring back to the program: the worker's last act with it, or the keeper's in its
//! place, from wherever the worker was killed.

use crate::link::Link;
use crate::program::Program;
use crate::record::{Given, Kept, Record, Stage};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use sidestep_abi::Reason;
use sidestep_repair::{Buffers, CallError, GiveBackError, Queues, State};
use sidestep_tcp::Progress;
use std::sync::Arc;

/// A connection that the stack has carried.
pub struct Handover<'a> {
    pub program: &'a mut Program,
    pub record: &'a Record,
    pub kept: Kept,
    pub progress: Progress,
    /// Bytes of the kernel's own queue that are not acknowledged. They come before those of the ring.
    pub queued: Vec<u8>,
    /// What the program has not read.
    pub unread: Unread,
    /// The sizes of the socket's buffers before a process began to give it back, and was killed.
    pub found: Option<Buffers>,
}

/// Where the bytes go that the program has not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// To the kernel, which has all of the connection then: the program may let others read its socket.
    ToKernel,
    /// They stay in the ring, so that the program can read them while the kernel has no way to the peer.
    InRing,
}

/// Why a connection could not be restored as the worker had left it.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The kernel refuses.
    #[error("the connection is lost")]
    GiveBack(#[from] GiveBackError),
    /// The kernel refuses.
    #[error("the connection stays parked")]
    Undo(#[from] CallError),
    /// The ledger is damaged.
    #[error("the record of the connection is damaged")]
    Damaged,
}

/// What has become of a connection that is to be restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restored {
    /// The kernel carries it.
    Yes,
    /// The kernel has no way to its peer at present: to be tried again.
    NotYet,
}

/// Does what a worker that was killed had still to do for a connection. `is_last`: a connection without a way is given up.
pub fn restore(
    record: &Record,
    link: Arc<Link>,
    slot: usize,
    socket: BorrowedFd,
    is_last: bool,
) -> Result<Restored, RestoreError> {
    let restored = match record.stage() {
        Stage::Carried | Stage::Returning => restore_carried(record, link, slot, socket, is_last)?,
        Stage::Free => Restored::Yes,
        Stage::Assigned => {
            let program = Program::left(link, slot);
            program.found_sending(socket, record);
            end(program)
        }
        Stage::Taking => {
            sidestep_repair::undo(socket, &record.saved().ok_or(RestoreError::Damaged)?)?;
            let mut program = Program::left(link, slot);
            program.spare(socket);
            end(program)
        }
    };
    if restored == Restored::Yes {
        record.free();
    }
    Ok(restored)
}

/// The kernel had the connection already.
fn end(mut program: Program) -> Restored {
    program.give_up();
    program.set_reason(Reason::StackEnded);
    Restored::Yes
}

fn restore_carried(
    record: &Record,
    link: Arc<Link>,
    slot: usize,
    socket: BorrowedFd,
    is_last: bool,
) -> Result<Restored, RestoreError> {
    let (kept, progress) = (record.kept().ok_or(RestoreError::Damaged)?, record.progress());
    let Kept { from_program, to_program, queued, .. } = kept;
    let left = kept.unacknowledged(record.released(), progress.snd_una);
    // The worker may have been killed before it told the program.
    let released = from_program.position_of(progress.snd_una, record.released());
    let published = to_program.position_of(progress.rcv_nxt, record.published());
    let mut program = Program::found(link, slot, released, published);
    let found = (record.stage() == Stage::Returning).then(|| record.buffers());
    let queued = record.queue(queued, left);
    let mut handover =
        Handover { program: &mut program, record, kept, progress, queued, unread: Unread::ToKernel, found };
    match handover.run(socket) {
        Ok(()) => {
            // Only now: the program gives its slot back for that.
            program.set_reason(Reason::StackEnded);
            Ok(Restored::Yes)
        }
        Err(error) if is_stranded(&error) && !is_last => Ok(Restored::NotYet),
        Err(error) => {
            if is_stranded(&error) {
                abandon(&mut program, socket);
            }
            Err(error.into())
        }
    }
}

/// Whether the kernel has no way to the peer at present, as while a device is down, or no memory for the connection's bytes, which others
/// may have taken. The connection stays parked; the same call may succeed later.
pub fn is_stranded(error: &GiveBackError) -> bool {
    let (GiveBackError::Parked(call) | GiveBackError::Detached(call)) = error else { return false };
    let has_no_way = matches!(
        call.source,
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::ADDRNOTAVAIL | Errno::NODEV
    );
    has_no_way || matches!(call.source, Errno::NOMEM | Errno::NOBUFS)
}

/// Gives up a connection that the kernel does not accept. The program finds it ended with ECONNABORTED.
pub fn abandon(program: &mut Program, socket: BorrowedFd) {
    // If this fails, too, nothing is left to do.
    let _ = sidestep_repair::abandon(socket);
    program.give_up();
}

impl Handover<'_> {
    /// The kernel and the program go on. After an error of [`is_stranded`] the connection is as it was; after any other it has
    /// ended.
    pub fn run(&mut self, socket: BorrowedFd) -> Result<(), GiveBackError> {
        // An earlier process was killed when the kernel had the connection already.
        let is_live = self.found.is_some() && sidestep_repair::is_parked(socket).is_ok_and(|parked| !parked);
        let start = self.start();
        let (given, unread) = if is_live { (self.record.given(), Vec::new()) } else { self.look() };
        self.program.copy_from(start, given.from_program, &mut self.queued);
        let (state, queues) = (self.state(), Queues::new(&unread, &self.queued));
        let buffers = self.found.map_or_else(|| Buffers::read(socket), Ok).map_err(GiveBackError::Parked)?;
        let outcome = if is_live {
            sidestep_repair::finish(socket, &state, &queues, buffers)
        } else {
            self.record.begin_returning(given, buffers);
            match self.found {
                Some(_) => sidestep_repair::give_back_again(socket, &state, &queues, buffers),
                None => sidestep_repair::give_back_prepared(socket, &state, &queues, buffers),
            }
        };
        // What the kernel had no room for is still in the ring, and the program's to send.
        let unqueued = match outcome {
            Ok(()) => 0,
            Err(GiveBackError::Live { unqueued, .. }) => unqueued as u64,
            Err(error) => {
                if !is_stranded(&error) {
                    abandon(self.program, socket);
                }
                return Err(error);
            }
        };
        // Otherwise nobody has sent anything since.
        let queued = if is_live { sidestep_repair::queued_since(socket).unwrap_or_default() } else { 0 };
        let behind = queued.saturating_sub(self.queued.len() as u64);
        // A program that violates the protocol gets what is consistent.
        let end = start.saturating_add(given.from_program.saturating_sub(unqueued));
        let _ = self.program.hand_over(socket, end, given.unread as usize, behind);
        Ok(())
    }

    /// Position of the program's first byte that is not acknowledged.
    fn start(&self) -> u64 {
        self.kept.from_program.position_of(self.progress.snd_una, self.record.released())
    }

    /// What the kernel is to get. One look only: a program that writes on and on must not keep this process here. What it writes
    /// from now on it sends by kernel itself, after [`Program::hand_over`].
    fn look(&mut self) -> (Given, Vec<u8>) {
        let from_program = self.program.waiting().unwrap_or(0) as u64;
        if self.unread == Unread::ToKernel {
            self.program.end_reading();
        }
        let unread = self.program.left_unread().unwrap_or_default();
        (Given { from_program, unread: unread.len() as u64 }, unread)
    }

    fn state(&self) -> State {
        let (mut state, progress) = (self.kept.state, &self.progress);
        state.snd_una = progress.snd_una.0;
        state.snd_nxt = progress.snd_nxt.0;
        state.rcv_nxt = progress.rcv_nxt.0;
        state.window.snd_wl1 = progress.snd_wl1.0;
        state.window.snd_wnd = progress.snd_edge.since_or_zero(progress.snd_una);
        state.window.max_window = progress.max_window.max(state.window.snd_wnd);
        state.window.rcv_wup = progress.rcv_acked.0;
        state.window.rcv_wnd = progress.rcv_edge.since_or_zero(progress.rcv_acked);
        state
    }
}

#[cfg(test)]
pub(crate) mod tests;
