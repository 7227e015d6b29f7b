//! The control socket to the broker, and the worker's doorbell.

use crate::link::PLACE;
use crate::mapping::Mapping;
use crate::room;
use rustix::event::epoll::{self, CreateFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io;
use rustix::time::Timespec;
use sidestep_abi::Reason;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_abi::page::Page;
use sidestep_broker::wire::{self, Incoming};

pub struct Control {
    socket: OwnedFd,
    bell: OwnedFd,
    /// What `sidestep status` shows of this process. None until the broker has welcomed it.
    page: Option<Mapping>,
}

impl Control {
    /// Joins as the stack. `socket`: connected to the operator's socket.
    pub fn join(socket: OwnedFd, ring_size: u32) -> io::Result<Control> {
        let bell = epoll::create(CreateFlags::CLOEXEC)?;
        let hello = Msg { arg: u64::from(ring_size), arg2: room::doorbells(), ..Msg::new(Kind::Hello) };
        wire::send(socket.as_fd(), &hello, None)?;
        let doorbell = Msg { place: PLACE, ..Msg::new(Kind::Doorbell) };
        wire::send(socket.as_fd(), &doorbell, Some(bell.as_fd()))?;
        Ok(Control { socket, bell, page: None })
    }

    pub fn receive(&self) -> Incoming {
        wire::receive(self.socket.as_fd())
    }

    /// The broker has welcomed this process, and shares this page with it.
    pub fn welcomed(&mut self, file: &OwnedFd) -> io::Result<()> {
        self.page = Some(Mapping::new(file, size_of::<Page>())?);
        Ok(())
    }

    /// The page, if this process has been welcomed.
    pub fn page(&self) -> Option<&Page> {
        // SAFETY: a page consists of atomics and padding.
        self.page.as_ref().map(|mapping| unsafe { mapping.at(0) })
    }

    /// Answers the broker's question of this number. None: the stack carries the connection.
    pub fn answer(&self, number: u64, declined: Option<Reason>) {
        self.tell(&Msg { arg: number, arg2: declined.map_or(0, |reason| reason as u64), ..Msg::new(Kind::Carry) });
    }

    pub fn release(&self, (link, side, slot): (u32, u32, u32)) {
        self.tell(&Msg { link, slot, side, ..Msg::new(Kind::Release) });
    }

    fn tell(&self, msg: &Msg) {
        // The broker reads, or its end is heard.
        let _ = wire::send(self.socket.as_fd(), msg, None);
    }

    /// Readable when the broker has sent something.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Readable when a program has rung.
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The eventfds in the doorbell are edge-triggered: one look takes them out.
    pub fn hush(&self) {
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 64];
        let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = epoll::wait(&self.bell, &mut events[..], Some(&no_time));
    }
}
