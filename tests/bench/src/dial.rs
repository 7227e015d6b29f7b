//! The client of a Service: does what each line of its standard input says, and answers with a line of JSON.
//!
//! One process for many short runs, so that contestants can take turns without starting anything.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::clock::Times;
use crate::cpu::Cpu;
use crate::net;
use crate::pods::MESSAGE;

/// Connections or requests of one run, whatever the time: tables of connections are finite.
const MOST: usize = 50_000;
/// Requests on a connection before any is timed.
const WARM_UP: usize = 20;

struct Client {
    cpu: Cpu,
    /// Picks the next target: all are used alike, as a Service uses its backends.
    turn: usize,
}

pub fn run(args: &Args) -> Result<(), String> {
    let watched: String = args.get("watch", String::new())?;
    args.finish()?;
    let mut client = Client { cpu: Cpu::new(&watched)?, turn: 0 };
    for line in std::io::stdin().lines() {
        let line = line.map_err(|e| format!("standard input: {e}"))?;
        let answer = client.obey(&line).map_err(|why| format!("'{line}': {why}"))?;
        net::say(&answer)?;
    }
    Ok(())
}

impl Client {
    fn obey(&mut self, line: &str) -> Result<String, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["short", limit, to] => self.short(seconds(limit)?, &targets(to)?),
            ["keep", limit, to] => self.keep(seconds(limit)?, &targets(to)?),
            ["await", limit, number, to] => {
                let number = number.parse().map_err(|_| format!("'{number}' is no pod's number"))?;
                self.wait_for(seconds(limit)?, number, &targets(to)?)
            }
            _ => Err("expected short, keep or await; see --help".into()),
        }
    }

    fn target(&mut self, targets: &[SocketAddrV4]) -> SocketAddrV4 {
        self.turn = self.turn.wrapping_add(1);
        targets[self.turn % targets.len()]
    }

    fn short(&mut self, limit: Duration, targets: &[SocketAddrV4]) -> Result<String, String> {
        let (mut connects, mut wholes) = (Vec::new(), Vec::new());
        let (begin, cpu) = (Instant::now(), self.cpu.nanos()?);
        while begin.elapsed() < limit && wholes.len() < MOST {
            let target = self.target(targets);
            let start = Instant::now();
            let socket = socket()?;
            let before = Instant::now();
            let mut stream = connect(socket, target)?;
            connects.push(before.elapsed());
            request(&mut stream)?;
            reset(stream)?;
            wholes.push(start.elapsed());
        }
        let (took, cpu) = (begin.elapsed(), self.cpu.nanos()? - cpu);
        Ok(format!(
            "{{\"seconds\":{:.6},\"cpu_us\":{:.4},\"connect\":{{{}}},\"whole\":{{{}}}}}",
            took.as_secs_f64(),
            cpu as f64 / 1e3 / wholes.len() as f64,
            Times::of(&connects).json_us(),
            Times::of(&wholes).json_us(),
        ))
    }

    fn keep(&mut self, limit: Duration, targets: &[SocketAddrV4]) -> Result<String, String> {
        let mut stream = connect(socket()?, self.target(targets))?;
        for _ in 0..WARM_UP {
            request(&mut stream)?;
        }
        let mut times = Vec::new();
        let (begin, cpu) = (Instant::now(), self.cpu.nanos()?);
        while begin.elapsed() < limit && times.len() < MOST {
            let start = Instant::now();
            request(&mut stream)?;
            times.push(start.elapsed());
        }
        let (took, cpu) = (begin.elapsed(), self.cpu.nanos()? - cpu);
        reset(stream)?;
        Ok(format!(
            "{{\"seconds\":{:.6},\"cpu_us\":{:.4},\"whole\":{{{}}}}}",
            took.as_secs_f64(),
            cpu as f64 / 1e3 / times.len() as f64,
            Times::of(&times).json_us(),
        ))
    }

    /// Says `waiting` once the first connection has been made, so that a change does not come before it is watched for.
    fn wait_for(&mut self, limit: Duration, number: u8, targets: &[SocketAddrV4]) -> Result<String, String> {
        let begin = Instant::now();
        for tries in 1u32.. {
            let mut stream = connect(socket()?, self.target(targets))?;
            let answered = request(&mut stream)?;
            reset(stream)?;
            if answered == number {
                return Ok(format!("{{\"at_ns\":{},\"tries\":{tries}}}", monotonic_nanos()));
            }
            if begin.elapsed() > limit {
                return Err(format!("pod {number} has not answered one of {tries} connections"));
            }
            if tries == 1 {
                net::say("waiting")?;
            }
        }
        unreachable!("tries end with the time")
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is no number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|e| format!("'{text}': {e}"))
}

fn targets(text: &str) -> Result<Vec<SocketAddrV4>, String> {
    text.split(',').map(|one| one.parse().map_err(|_| format!("'{one}' is not ADDRESS:PORT"))).collect()
}

fn socket() -> Result<OwnedFd, String> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(net::last("socket"));
    }
    // SAFETY: socket() has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn connect(socket: OwnedFd, to: SocketAddrV4) -> Result<TcpStream, String> {
    let address = net::sockaddr(to);
    // SAFETY: the descriptor is ours and open; the address is a whole sockaddr_in and its length is passed with it.
    let answer = unsafe {
        let at = (&raw const address).cast();
        libc::connect(socket.as_raw_fd(), at, size_of::<libc::sockaddr_in>() as u32)
    };
    if answer == 0 { Ok(TcpStream::from(socket)) } else { Err(net::last(&format!("connect to {to}"))) }
}

/// One request and its answer. Returns the number of the pod.
fn request(stream: &mut TcpStream) -> Result<u8, String> {
    let mut message = [0x42u8; MESSAGE];
    stream.write_all(&message).map_err(|e| format!("write: {e}"))?;
    stream.read_exact(&mut message).map_err(|e| format!("read: {e}"))?;
    Ok(message[0])
}

/// Closes without TIME_WAIT, so that many connections do not use up the ports.
fn reset(stream: TcpStream) -> Result<(), String> {
    net::reset_at_close(stream.as_raw_fd())
}

/// On the clock that other processes can read, too.
fn monotonic_nanos() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is ours; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
