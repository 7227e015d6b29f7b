//! The programs under attack, and their honest peers: ordinary socket programs that know nothing of Sidestep.
//!
//! An echo server in each way of waiting, and an echo client that compares every byte. All calls go through libc.

use sidestep_posix::rng::Rng;
use std::io::{BufRead, Error, ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// How a server waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Waiting {
    /// A thread for each connection, blocking calls.
    Block,
    Poll,
    Epoll,
    /// Edge-triggered.
    Epollet,
}

/// An honest answer that takes longer than this counts as none.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of the largest honest message.
const LARGEST: u64 = 50_000;

pub fn serve(waiting: Waiting) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    match waiting {
        Waiting::Block => serve_threads(&listener),
        Waiting::Poll => serve_poll(&listener),
        Waiting::Epoll => serve_epoll(&listener, false),
        Waiting::Epollet => serve_epoll(&listener, true),
    }
}

fn serve_threads(listener: &TcpListener) -> Result<()> {
    loop {
        let (mut stream, _) = listener.accept()?;
        std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            let mut buffer = [0; 32 * 1024];
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..n]).is_err() {
                    return;
                }
            }
        })?;
    }
}

/// A connection of a server with one thread: while its answer does not fit, nothing more is read.
struct Echo {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Echo {
    fn new(stream: TcpStream) -> Result<Echo> {
        stream.set_nonblocking(true)?;
        Ok(Echo { stream, answer: Vec::new() })
    }

    /// Goes on until nothing more goes. False: the connection is over.
    fn go(&mut self) -> bool {
        let mut buffer = [0; 32 * 1024];
        loop {
            let step = if self.answer.is_empty() {
                self.stream.read(&mut buffer).inspect(|n| self.answer.extend(&buffer[..*n]))
            } else {
                self.stream.write(&self.answer).inspect(|n| drop(self.answer.drain(..*n)))
            };
            match step {
                Ok(0) => return false,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == ErrorKind::WouldBlock,
            }
        }
    }
}

fn serve_poll(listener: &TcpListener) -> Result<()> {
    let mut echoes: Vec<Echo> = Vec::new();
    loop {
        let wish = |fd: RawFd, events: libc::c_short| libc::pollfd { fd, events, revents: 0 };
        let mut list = vec![wish(listener.as_raw_fd(), libc::POLLIN)];
        list.extend(
            echoes
                .iter()
                .map(|e| wish(e.stream.as_raw_fd(), if e.answer.is_empty() { libc::POLLIN } else { libc::POLLOUT })),
        );
        // SAFETY: the list is as long as it says.
        if unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, -1) } < 0 {
            interrupted()?;
            continue;
        }
        let mut told = list[1..].iter().map(|p| p.revents != 0);
        echoes.retain_mut(|e| !told.next().unwrap_or(false) || e.go());
        if list[0].revents != 0 {
            echoes.push(Echo::new(listener.accept()?.0)?);
        }
    }
}

fn serve_epoll(listener: &TcpListener, edge: bool) -> Result<()> {
    // SAFETY: no memory involved.
    let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    watch(set, listener.as_raw_fd(), libc::EPOLLIN)?;
    let mut echoes: std::collections::HashMap<RawFd, Echo> = Default::default();
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
    loop {
        // SAFETY: room for as many events as the call is told.
        let n = unsafe { libc::epoll_wait(set, events.as_mut_ptr(), events.len() as i32, -1) };
        if n < 0 {
            interrupted()?;
            continue;
        }
        for event in &events[..n as usize] {
            let fd = event.u64 as RawFd;
            if fd == listener.as_raw_fd() {
                let echo = Echo::new(listener.accept()?.0)?;
                let fd = echo.stream.as_raw_fd();
                let wish = if edge { libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET } else { libc::EPOLLIN };
                watch(set, fd, wish)?;
                echoes.insert(fd, echo);
            } else if let Some(echo) = echoes.get_mut(&fd) {
                let empty = echo.answer.is_empty();
                if !echo.go() {
                    echoes.remove(&fd);
                } else if !edge && echo.answer.is_empty() != empty {
                    rewatch(set, fd, if empty { libc::EPOLLOUT } else { libc::EPOLLIN })?;
                }
            }
        }
    }
}

fn watch(set: RawFd, fd: RawFd, events: libc::c_int) -> Result<()> {
    control(set, libc::EPOLL_CTL_ADD, fd, events)
}

fn rewatch(set: RawFd, fd: RawFd, events: libc::c_int) -> Result<()> {
    control(set, libc::EPOLL_CTL_MOD, fd, events)
}

fn control(set: RawFd, operation: libc::c_int, fd: RawFd, events: libc::c_int) -> Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: fd as u64 };
    // SAFETY: one event, alive.
    if unsafe { libc::epoll_ctl(set, operation, fd, &raw mut event) } != 0 {
        return Err(Error::last_os_error());
    }
    Ok(())
}

fn interrupted() -> Result<()> {
    let e = Error::last_os_error();
    if e.kind() == ErrorKind::Interrupted { Ok(()) } else { Err(e) }
}

/// An honest client of all `ports`: for each line on standard input, that many round trips on a connection that
/// lasts and on a new one, to each. Answers with the slowest, in microseconds. `hostile`: also talks to attackers
/// there, in threads of their own.
pub fn ask(ports: &[u16], hostile: Option<u16>) -> Result<()> {
    for port in hostile.into_iter().cycle().take(crate::rounds::ATTACKERS * usize::from(hostile.is_some())) {
        std::thread::spawn(move || talk_to_attacker(port));
    }
    let mut rng = Rng::new(u64::from(std::process::id()));
    let mut lasting = ports.iter().map(|p| connect(*p)).collect::<Result<Vec<_>>>()?;
    for line in std::io::stdin().lock().lines() {
        let rounds: u32 = line?.parse().map_err(Error::other)?;
        let mut worst = Duration::ZERO;
        for (stream, port) in lasting.iter_mut().zip(ports) {
            let mut fresh = connect(*port)?;
            for _ in 0..rounds {
                worst = worst.max(round_trip(stream, &mut rng)?).max(round_trip(&mut fresh, &mut rng)?);
            }
        }
        println!("{}", worst.as_micros());
    }
    Ok(())
}

fn connect(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn round_trip(stream: &mut TcpStream, rng: &mut Rng) -> Result<Duration> {
    let began = Instant::now();
    let said: Vec<u8> = (0..rng.size(LARGEST)).map(|_| rng.number() as u8).collect();
    // No more under way than an echo server takes before it is read from.
    let mut heard = vec![0; said.len()];
    for (say, hear) in said.chunks(8192).zip(heard.chunks_mut(8192)) {
        stream.write_all(say)?;
        stream.read_exact(hear)?;
    }
    if said != heard {
        return Err(Error::other("the answer is not what was said"));
    }
    Ok(began.elapsed())
}

/// As a client that trusts its server: says something, waits for as much, again and again.
fn talk_to_attacker(port: u16) {
    let mut buffer = [b'q'; 4000];
    loop {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            while stream.write_all(&buffer).and_then(|()| stream.read_exact(&mut buffer)).is_ok() {}
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
