//! What the worker hands to the keeper and to its standby, which give connections back if the worker is killed. Messages of the
//! broker's protocol, most with the same meaning; a connection's number is that of its record.
//!
//! | message | with it | meaning |
//! |---|---|---|
//! | `Link`, `PeerDoorbell` | memory, eventfd | as the broker has sent it |
//! | `Unlink` | | as the broker has sent it |
//! | `Slot` | socket | the record `arg` is of the connection of the question `side`; its domain as in `Foreign` |
//! | `Release` | | `arg`: the record is free |
//! | `Hello` | claim | the worker drives this queue ([`sidestep_device::end_claim`]) |
//!
//! The end of the worker's side of the socket says that the worker gives nothing back any more.
//! A slot tells its connections apart by the numbers of the broker's questions ([`sidestep_ring::slot::hold_socket`]).

use crate::process::{LOOK, Process};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{self, Errno};
use rustix::net::{Shutdown, shutdown};
use rustix::time::Timespec;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_broker::domain::Key;
use sidestep_broker::wire;
use sidestep_device::Device;
use std::time::Instant;

/// Pause before a descriptor is sent again that the kernel did not take.
const FEWER_IN_FLIGHT: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// The worker's ends of the sockets to the keeper and to its standby.
pub struct Custody {
    socket: OwnedFd,
    standby: OwnedFd,
    keeper: Process,
    /// When [`Custody::is_over`] next looks whether the keeper has ended.
    look_at: Instant,
}

impl Custody {
    pub fn new(socket: OwnedFd, keeper: Process, standby: OwnedFd) -> Custody {
        Custody { socket, standby, keeper, look_at: Instant::now() + LOOK }
    }

    /// Keeper and standby get the message before the worker relies on what it says: if the worker is killed, they first read all
    /// that was sent.
    ///
    /// # Errors
    ///
    /// EPIPE: the keeper has ended.
    pub fn tell(&self, msg: &Msg, descriptor: Option<BorrowedFd>) -> io::Result<()> {
        // The keeper replaces a standby that has ended, and this worker with it.
        let _ = self.tell_by(&self.standby, msg, descriptor);
        self.tell_by(&self.socket, msg, descriptor)
    }

    fn tell_by(&self, socket: &OwnedFd, msg: &Msg, descriptor: Option<BorrowedFd>) -> io::Result<()> {
        let look = Timespec::try_from(LOOK).unwrap_or_default();
        loop {
            match wire::send(socket.as_fd(), msg, descriptor) {
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS) if self.keeper.has_ended() => {
                    return Err(Errno::PIPE);
                }
                // Too many descriptors of this user are in flight, and the socket may have room: only its end wakes early.
                Err(Errno::TOOMANYREFS) => {
                    poll(&mut [PollFd::new(socket, PollFlags::empty())], Some(&FEWER_IN_FLIGHT)).map(drop)?;
                }
                // The other end reads at once.
                Err(Errno::AGAIN | Errno::NOBUFS) => {
                    poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&look)).map(drop)?;
                }
                other => return other,
            }
        }
    }

    /// The keeper can end what says that this process drives the devices.
    pub fn lend_claims(&self, devices: &[Device]) -> io::Result<()> {
        let mut claims = devices.iter().flat_map(Device::claims);
        claims.try_for_each(|claim| self.tell(&Msg::new(Kind::Hello), Some(claim)))
    }

    /// The keeper holds the socket of this record.
    pub fn hold(
        &self,
        record: u32,
        question: u32,
        place: (u32, u32, u32),
        domain: Key,
        socket: BorrowedFd,
    ) -> io::Result<()> {
        let (link, _, slot) = place;
        // Not in `arg`, all of which a keeper of an older release takes for the record.
        let msg = Msg { link, side: question, slot, arg: record.into(), ..Msg::new(Kind::Slot) };
        self.tell(&domain.put_into(msg), Some(socket))
    }

    /// The keeper closes it.
    pub fn drop_socket(&self, record: u32) -> io::Result<()> {
        self.tell(&Msg { arg: record.into(), ..Msg::new(Kind::Release) }, None)
    }

    /// The worker has given back what it can. Its end is not heard by itself while one of its threads sleeps in the kernel.
    pub fn end(&self) {
        for socket in [&self.socket, &self.standby] {
            // The other end may be gone.
            let _ = shutdown(socket, Shutdown::Write);
        }
    }

    /// Readable when the keeper wants the worker to end, or has ended and no thread of it sleeps.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the worker is to end. A keeper that was killed keeps its end of the socket open while a thread of it sleeps: only a look at
    /// its process tells, and there is one in [`LOOK`].
    pub fn is_over(&mut self) -> bool {
        let mut end = [PollFd::new(&self.socket, PollFlags::IN | PollFlags::RDHUP)];
        if poll(&mut end, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0) {
            return true;
        }
        let now = Instant::now();
        if now < self.look_at {
            return false;
        }
        self.look_at = now + LOOK;
        self.keeper.has_ended()
    }
}
