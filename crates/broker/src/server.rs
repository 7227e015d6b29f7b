//! The loop: one epoll instance, no thread, no blocking call but the wait itself.

use crate::broker::{Broker, Poller, Settings};
use crate::listen::Listener;
pub use crate::raw::fds::pass_on_only_stdio;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::process::{Resource, Rlimit};
use rustix::time::Timespec;
use std::io;
use std::time::{Duration, Instant};

/// Numbers in the epoll set that are not connections.
const LISTENER: u64 = 0;
const STOP: u64 = 1;

/// Between two looks at what is held.
const SWEEP: Duration = Duration::from_millis(100);
/// After a connection could not be accepted for a reason that may last.
const PAUSE: Duration = Duration::from_millis(100);

pub struct Server {
    listener: Listener,
    broker: Broker,
    epoll: OwnedFd,
    _stop: OwnedFd,
    /// Given up for a moment to turn a connection away when no descriptor is left.
    spare: Option<OwnedFd>,
    /// Until then nothing is accepted: what waits in the backlog would make the loop spin.
    paused: Option<Instant>,
    idle_exit: Option<Duration>,
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nobody was connected for as long as allowed.
    Idle,
    /// The stop descriptor became readable.
    Stopped,
}

impl Server {
    /// `stop`: the server ends when it becomes readable.
    pub fn new(
        listener: Listener,
        settings: Settings,
        stop: OwnedFd,
        idle_exit: Option<Duration>,
    ) -> io::Result<Server> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener.socket, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)?;
        let poller = Poller(epoll.try_clone()?);
        let broker = Broker::new(settings, poller);
        Ok(Server { listener, broker, epoll, _stop: stop, spare: spare(), paused: None, idle_exit })
    }

    pub fn run(mut self) -> io::Result<Ended> {
        let mut events = Vec::with_capacity(256);
        let mut idle_since = Instant::now();
        let mut swept = Instant::now();
        loop {
            events.clear();
            self.resume();
            let timeout = self.timeout(idle_since, swept);
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let was_idle = self.broker.is_idle();
            for &event in &events {
                if self.handle(event) {
                    return Ok(Ended::Stopped);
                }
            }
            self.broker.settle();
            if self.broker.needs_sweep() && swept.elapsed() >= SWEEP {
                swept = Instant::now();
                self.broker.sweep();
                self.broker.settle();
            }
            if !was_idle || !self.broker.is_idle() {
                idle_since = Instant::now();
            }
            if self.idle_exit.is_some_and(|limit| self.broker.is_idle() && idle_since.elapsed() >= limit) {
                return Ok(Ended::Idle);
            }
        }
    }

    fn timeout(&self, idle_since: Instant, swept: Instant) -> Option<Timespec> {
        let idle = self.idle_exit.filter(|_| self.broker.is_idle()).map(|limit| idle_since + limit);
        let sweep = Some(swept + SWEEP).filter(|_| self.broker.needs_sweep());
        let next = idle.into_iter().chain(sweep).chain(self.paused).min()?;
        let left = next.saturating_duration_since(Instant::now());
        Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) })
    }

    /// True: stop.
    fn handle(&mut self, event: Event) -> bool {
        let flags = event.flags;
        match event.data.u64() {
            LISTENER => self.accept(),
            STOP => return true,
            id => {
                if flags.contains(EventFlags::OUT) {
                    self.broker.writable(id);
                }
                let hung_up = flags.intersects(EventFlags::HUP | EventFlags::ERR);
                if hung_up || flags.contains(EventFlags::IN) {
                    self.broker.readable(id, hung_up);
                }
            }
        }
        false
    }

    fn accept(&mut self) {
        loop {
            match rustix::net::accept_with(&self.listener.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                // Without memory for it, dropping the socket leaves that process on the kernel.
                Ok(socket) => drop(self.broker.connected(socket)),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::MFILE | Errno::NFILE) => return self.turn_one_away(),
                Err(Errno::AGAIN) => return,
                Err(_) => return self.pause(),
            }
        }
    }

    /// No descriptor is left: closing the connection tells the process to stay on the kernel. Left in the
    /// backlog it would make this loop spin.
    fn turn_one_away(&mut self) {
        self.spare = None;
        let turned = rustix::net::accept_with(&self.listener.socket, SocketFlags::CLOEXEC).map(drop);
        self.spare = spare();
        if turned.is_err() {
            self.pause();
        }
    }

    fn pause(&mut self) {
        if self.hear_listener(EventFlags::empty()) {
            self.paused = Some(Instant::now() + PAUSE);
        }
    }

    fn resume(&mut self) {
        if self.paused.is_some_and(|until| Instant::now() >= until) {
            self.paused = if self.hear_listener(EventFlags::IN) { None } else { Some(Instant::now() + PAUSE) };
        }
    }

    fn hear_listener(&self, flags: EventFlags) -> bool {
        epoll::modify(&self.epoll, &self.listener.socket, EventData::new_u64(LISTENER), flags).is_ok()
    }
}

fn spare() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(Into::into)
}

/// As many descriptors as the system allows: one for each member, link and doorbell.
pub fn raise_fd_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Fewer descriptors mean fewer members, and nothing worse.
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
}
