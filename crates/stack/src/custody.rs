//! What the worker hands to the keeper and to its standby, which give connections back if the worker is killed. Messages of the
//! broker's protocol, most with the same meaning; a connection's number is that of its record.
//!
//! | message | with it | meaning |
//! |---|---|---|
//! | `Link`, `PeerDoorbell` | memory, eventfd | as the broker has sent it |
//! | `Unlink` | | as the broker has sent it |
//! | `Slot` | socket | the record `arg` is of this connection; its domain as in `Foreign` |
//! | `Release` | | `arg`: the record is free |
//! | `Hello` | claim | the worker drives this queue ([`sidestep_device::end_claim`]) |
//!
//! The end of the worker's side of the socket says that the worker gives nothing back any more.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{self, Errno};
use rustix::net::{Shutdown, shutdown};
use sidestep_abi::msg::{Kind, Msg};
use sidestep_broker::domain::Key;
use sidestep_broker::wire;
use sidestep_device::Device;

/// The worker's ends of the sockets to the keeper and to its standby.
pub struct Custody {
    socket: OwnedFd,
    standby: OwnedFd,
}

impl Custody {
    pub fn new(socket: OwnedFd, standby: OwnedFd) -> Custody {
        Custody { socket, standby }
    }

    /// Keeper and standby get the message before the worker relies on what it says: if the worker is killed, they first read all
    /// that was sent.
    ///
    /// # Errors
    ///
    /// EPIPE: the keeper has ended.
    pub fn tell(&self, msg: &Msg, descriptor: Option<BorrowedFd>) -> io::Result<()> {
        // The keeper replaces a standby that has ended, and this worker with it.
        let _ = tell(&self.standby, msg, descriptor);
        tell(&self.socket, msg, descriptor)
    }

    /// The keeper can end what says that this process drives the devices.
    pub fn lend_claims(&self, devices: &[Device]) -> io::Result<()> {
        let mut claims = devices.iter().flat_map(Device::claims);
        claims.try_for_each(|claim| self.tell(&Msg::new(Kind::Hello), Some(claim)))
    }

    /// The keeper holds the socket of this record.
    pub fn hold(&self, record: u32, place: (u32, u32, u32), domain: Key, socket: BorrowedFd) -> io::Result<()> {
        let (link, side, slot) = place;
        let msg = Msg { link, side, slot, arg: record.into(), ..Msg::new(Kind::Slot) };
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

    /// Readable when the keeper has ended, or wants the worker to end.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the worker is to end.
    pub fn is_over(&self) -> bool {
        let mut end = [PollFd::new(&self.socket, PollFlags::IN | PollFlags::RDHUP)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut end, Some(&now)).is_ok_and(|n| n > 0)
    }
}

fn tell(socket: &OwnedFd, msg: &Msg, descriptor: Option<BorrowedFd>) -> io::Result<()> {
    loop {
        match wire::send(socket.as_fd(), msg, descriptor) {
            // The other end reads at once.
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS) => {
                poll(&mut [PollFd::new(socket, PollFlags::OUT)], None).map(drop)?;
            }
            other => return other,
        }
    }
}
