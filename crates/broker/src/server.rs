//! The main thread: one epoll instance, and no blocking call except the wait itself. Calls that may block are made by
//! receivers.

use crate::broker::{Broker, Poller, Settings};
use crate::listen::Listener;
pub use crate::raw::fds::pass_on_only_stdio;
pub use crate::reload::{Reload, Reloaded};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};
use rustix::process::{Resource, Rlimit};
use rustix::time::Timespec;
use sidestep_error::chain;
use std::io;
use std::time::{Duration, Instant};

/// Numbers in the epoll set that are not connections.
const MEMBERS: u64 = 0;
const OPERATORS: u64 = 1;
const STOP: u64 = 2;
const RELOAD: u64 = 3;
const RELOADED: u64 = 4;

/// Interval of sweeps while something is held, or cannot be sent.
const SWEEP: Duration = Duration::from_millis(100);
/// Pause after a connection could not be accepted for a reason that may last.
const PAUSE: Duration = Duration::from_millis(100);

/// Most connections that are accepted before everything else gets its turn: a user can connect faster than the broker accepts. A
/// listener with more of them reports that again.
const ACCEPTS: usize = 64;

/// Half of what the kernel may keep of the broker's records for a process that does not read them: some twenty records. It counts as the
/// broker's memory, and further ones in the process's domain.
const UNREAD: usize = 8192;

/// Requests from outside.
pub struct Signals {
    /// Becomes readable when the server is to end.
    pub stop: OwnedFd,
    /// Reads the configuration again on request. None: there is no configuration.
    pub reload: Option<Reload>,
}

/// The main thread: it listens, and waits for members, timers and signals.
pub struct Server {
    members: Listener,
    /// None: there is no suitable directory for it.
    operators: Option<Listener>,
    broker: Broker,
    epoll: OwnedFd,
    signals: Signals,
    /// Closed for a moment to accept, and turn away, a connection when no descriptor is left.
    spare: Option<OwnedFd>,
    /// Until then nothing is accepted: connections in the backlog would make the loop spin.
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
    /// When this returns, the server listens. `idle_exit`: it ends when nobody has needed it for this long.
    pub fn new(
        members: Listener,
        operators: Option<Listener>,
        settings: Settings,
        signals: Signals,
        idle_exit: Option<Duration>,
    ) -> io::Result<Server> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let add = |fd: BorrowedFd<'_>, number| epoll::add(&epoll, fd, EventData::new_u64(number), EventFlags::IN);
        add(members.socket.as_fd(), MEMBERS)?;
        operators.iter().try_for_each(|listener| add(listener.socket.as_fd(), OPERATORS))?;
        add(signals.stop.as_fd(), STOP)?;
        if let Some(reload) = &signals.reload {
            // Edge-triggered, so that bytes that cannot be read do not make the loop spin.
            let edge = EventFlags::IN | EventFlags::ET;
            epoll::add(&epoll, reload.asked(), EventData::new_u64(RELOAD), edge)?;
            epoll::add(&epoll, reload.answered(), EventData::new_u64(RELOADED), edge)?;
        }
        let broker = Broker::new(settings, Poller(epoll.try_clone()?));
        Ok(Server { members, operators, broker, epoll, signals, spare: spare(), paused: None, idle_exit })
    }

    /// Serves until it is stopped, or until nobody has needed it for `idle_exit`.
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
            let now = Instant::now();
            if self.broker.needs_sweep() && now - swept >= SWEEP {
                swept = now;
                self.broker.sweep();
                self.broker.settle();
            }
            if self.broker.next_recheck().is_some_and(|due| now >= due) {
                self.broker.recheck(now);
                self.broker.settle();
            }
            if !was_idle || !self.broker.is_idle() {
                idle_since = now;
            }
            if self.idle_exit.is_some_and(|limit| self.broker.is_idle() && idle_since.elapsed() >= limit) {
                return Ok(Ended::Idle);
            }
        }
    }

    fn timeout(&self, idle_since: Instant, swept: Instant) -> Option<Timespec> {
        let idle = self.idle_exit.filter(|_| self.broker.is_idle()).map(|limit| idle_since + limit);
        let sweep = Some(swept + SWEEP).filter(|_| self.broker.needs_sweep());
        let next = idle.into_iter().chain(sweep).chain(self.paused).chain(self.broker.next_recheck()).min()?;
        let left = next.saturating_duration_since(Instant::now());
        Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) })
    }

    /// Handles an event. True: the server is to end.
    fn handle(&mut self, event: Event) -> bool {
        let flags = event.flags;
        match event.data.u64() {
            MEMBERS => self.accept(MEMBERS),
            OPERATORS => self.accept(OPERATORS),
            STOP => return true,
            RELOAD => self.signals.reload.iter_mut().for_each(Reload::start),
            RELOADED => self.reloaded(),
            id => {
                if flags.contains(EventFlags::OUT) {
                    self.broker.writable(id);
                }
                if flags.contains(EventFlags::IN) {
                    self.broker.readable(id);
                } else if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                    self.broker.hung_up(id);
                }
            }
        }
        false
    }

    fn accept(&mut self, whose: u64) {
        for _ in 0..ACCEPTS {
            if self.broker.is_clogged() {
                return self.pause();
            }
            let listener = if whose == MEMBERS { Some(&self.members) } else { self.operators.as_ref() };
            let Some(listener) = listener else {
                return;
            };
            let accepted = rustix::net::accept_with(&listener.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
                .and_then(|socket| sockopt::set_socket_send_buffer_size(&socket, UNREAD).map(|()| socket));
            match accepted {
                Ok(socket) if whose == MEMBERS => self.broker.connected(socket),
                Ok(socket) => self.broker.operator_connected(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::MFILE | Errno::NFILE) => return self.turn_one_away(whose),
                Err(Errno::AGAIN) => return,
                Err(_) => return self.pause(),
            }
        }
    }

    /// No descriptor is left: closing the connection tells the process to stay on the kernel. In the backlog it would make this
    /// loop spin.
    fn turn_one_away(&mut self, whose: u64) {
        self.spare = None;
        let listener = if whose == MEMBERS { Some(&self.members) } else { self.operators.as_ref() };
        let turned = listener.map(|listener| rustix::net::accept_with(&listener.socket, SocketFlags::CLOEXEC));
        match turned {
            Some(Ok(socket)) => self.broker.turn_away_at_the_limit(socket),
            _ => self.pause(),
        }
        self.spare = spare();
        if self.spare.is_none() {
            self.pause();
        }
    }

    fn reloaded(&mut self) {
        match self.signals.reload.as_mut().and_then(Reload::answer) {
            Some(Ok(Reloaded { trust, subordinates })) => {
                if let Err(e) = self.members.open_to_guests(trust.has_guests()) {
                    complain(&format!("cannot change who may connect: {}", io::Error::from(e)));
                }
                self.broker.set_subordinates(subordinates);
                self.broker.set_trust(trust);
            }
            Some(Err(error)) => {
                complain(&format!("{}; who may share memory stays as it was", chain(&error)));
            }
            None => {}
        }
    }

    fn pause(&mut self) {
        // Even if one listener could not be muted, the other one may be, and `resume` restores both.
        self.hear_listeners(EventFlags::empty());
        self.paused = Some(Instant::now() + PAUSE);
    }

    fn resume(&mut self) {
        if self.paused.is_some_and(|until| Instant::now() >= until) {
            let accepts = !self.broker.is_clogged() && self.hear_listeners(EventFlags::IN);
            self.paused = if accepts { None } else { Some(Instant::now() + PAUSE) };
        }
    }

    /// Changes the events of both listeners. False: one could not be changed.
    fn hear_listeners(&self, flags: EventFlags) -> bool {
        let hear = |listener: &Listener, number| {
            epoll::modify(&self.epoll, &listener.socket, EventData::new_u64(number), flags).is_ok()
        };
        let operators = self.operators.as_ref().is_none_or(|listener| hear(listener, OPERATORS));
        hear(&self.members, MEMBERS) && operators
    }
}

/// For anybody who still reads the log.
fn complain(what: &str) {
    tracing::warn!("{what}");
}

fn spare() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(Into::into)
}

/// Raises the limit of descriptors as far as the system permits: each member, link and doorbell needs some.
pub fn raise_fd_limit() {
    raise(Resource::Nofile); // with fewer descriptors fewer members can join; nothing else breaks
}

/// Raises the limit of a file's size as far as the system permits: a link's memory is a file.
pub fn raise_file_size_limit() {
    raise(Resource::Fsize); // a link that would be larger is refused
}

fn raise(resource: Resource) {
    let limit = rustix::process::getrlimit(resource);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(resource, raised);
}
