//! The puppet's own side: reads commands from standard input, executes them, and answers each with a number.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;

use crate::end::{End, Side};
use crate::link::{self, Listener, connect};
use crate::peer::Preload;
use crate::replace::{self, Exec};
use crate::sys::epoll::Epoll;
use crate::sys::net::{Addr, Family};
use crate::sys::{Fd, cpu, fds, io, net, passing, process};
use crate::traffic;

#[derive(Default)]
struct Puppet {
    end: Option<End>,
    listener: Option<Listener>,
    side: Option<Side>,
}

/// With arguments `FD SIDE SENT RECEIVED` the puppet continues with an inherited connection. With `fresh` it has none. In both
/// cases it answers once when it is ready.
pub fn run(args: &[String]) {
    process::die_with_parent();
    // A buffer of one byte reads nothing ahead: descriptors are passed between the lines.
    // SAFETY: standard input is the channel, and nothing else in a puppet uses it.
    let mut channel = BufReader::with_capacity(1, unsafe { UnixStream::from_raw_fd(0) });
    let mut puppet = Puppet::default();
    if let [fd, side, sent, received] = args {
        let number = |s: &String| s.parse::<u64>().expect("a number");
        puppet.adopt(number(fd) as Fd, number(side), number(sent), number(received));
        answer(&mut channel, 0);
    }
    if args == ["fresh"] {
        answer(&mut channel, 0);
    }
    let mut line = String::new();
    while channel.read_line(&mut line).is_ok_and(|n| n > 0) {
        let (op, args) = parse(&line);
        let value = puppet.obey(&op, &args);
        answer(&mut channel, value);
        line.clear();
    }
}

fn answer(channel: &mut BufReader<UnixStream>, value: u64) {
    // A case that has ended reads no answer; that is no failure of the puppet.
    let _ = channel.get_mut().write_all(format!("{value}\n").as_bytes());
}

/// Parses `DELAY-MS OP ARGS…`, waits for the delay, and returns the rest.
fn parse(line: &str) -> (String, Vec<u64>) {
    let mut words = line.split_whitespace();
    let delay = words.next().and_then(|w| w.parse().ok()).expect("a delay");
    let op = words.next().expect("an operation").to_owned();
    let args = words.map(|w| w.parse().expect("a number")).collect();
    if delay > 0 {
        cpu::sleep_ms(delay);
    }
    (op, args)
}

fn family(code: u64) -> Family {
    if code == Family::V4 as u64 { Family::V4 } else { Family::V6 }
}

impl Puppet {
    fn adopt(&mut self, fd: Fd, side: u64, sent: u64, received: u64) {
        let side = if side == 0 { Side::Client } else { Side::Server };
        let mut end = End::new(fd, side);
        (end.tx.at, end.rx.at) = (sent, received);
        (self.end, self.side) = (Some(end), Some(side));
    }

    fn obey(&mut self, op: &str, args: &[u64]) -> u64 {
        match (op, args) {
            ("listen", &[code]) => {
                let listener = Listener::new(family(code));
                let port = listener.port();
                self.listener = Some(listener);
                port.into()
            }
            ("accept", &[]) => {
                let fd = self.listener.take().expect("a listener").accept();
                self.adopt(fd, 1, 0, 0);
                0
            }
            ("connect", &[code, port]) => {
                let family = family(code);
                self.adopt(connect(&Addr::server(family, port as u16), family), 0, 0, 0);
                0
            }
            ("take", &[server, sent, received]) => {
                self.adopt(passing::receive_fd(0), server, sent, received);
                0
            }
            // The number of bytes that a connection takes without a reader, measured in this process.
            ("capacity", &[code]) => link::own_pair(family(code)).0.tx.fill() as u64,
            ("exec", &[kind, strip]) => self.exec(kind, strip == 1),
            // The new image has no connection: the descriptor was close-on-exec.
            ("exec_without", &[]) => replace::exec(Exec::Execv, &["fresh".to_owned()], Preload::Kept),
            ("take_set", &[]) => passing::receive_fd(0) as u64,
            // The mask, and the lower half of the data above it.
            ("told", &[set, ms]) => {
                Epoll { fd: set as Fd }.wait(ms as i32).first().map_or(0, |&(mask, data)| data << 32 | u64::from(mask))
            }
            ("exit", &[]) => std::process::exit(0),
            ("exit_now", &[]) => process::exit_now(0),
            ("abort", &[]) => {
                process::set_limit(libc::RLIMIT_CORE, 0);
                std::process::abort()
            }
            _ => on_connection(self.end.as_mut().expect("a connection"), op, args),
        }
    }

    /// Executes a new image of this program, which answers.
    fn exec(&mut self, kind: u64, strip: bool) -> u64 {
        let end = self.end.as_ref().expect("a connection");
        fds::set_cloexec(end.fd(), false);
        let side = u64::from(self.side == Some(Side::Server));
        let args = [end.fd() as u64, side, end.tx.at, end.rx.at].map(|n| n.to_string());
        let preload = if strip { Preload::Stripped } else { Preload::Kept };
        replace::exec(Exec::ALL[kind as usize], &args, preload)
    }
}

fn on_connection(end: &mut End, op: &str, args: &[u64]) -> u64 {
    match (op, args) {
        ("echo", &[rounds, n]) => {
            for _ in 0..rounds {
                end.recv(n as usize);
                end.send(n as usize);
            }
        }
        ("warm", &[]) => link::warm_answering(end),
        ("send", &[n]) => end.send(n as usize),
        // All bytes in one call, which a blocking write must manage.
        ("send_once", &[n]) => assert_eq!(end.tx.try_send(n as usize, io::write), Ok(n as usize)),
        // In pieces with pauses, so that the other side runs out of bytes in between.
        ("trickle", &[pieces, n, pause_ms]) => (0..pieces).for_each(|_| {
            end.send(n as usize);
            cpu::sleep_ms(pause_ms);
        }),
        ("recv", &[n]) => end.recv(n as usize),
        // Slowly, so that the other side's buffers fill up in between.
        ("sip", &[pieces, n, pause_ms]) => (0..pieces).for_each(|_| {
            end.recv(n as usize);
            cpu::sleep_ms(pause_ms);
        }),
        // Another holder of the connection has received or sent this many bytes.
        ("skip", &[n]) => end.rx.skipped(n as usize),
        ("skip_sent", &[n]) => end.tx.sent(n as usize),
        // Bytes of another stream than this connection's.
        ("count", &[n]) => return traffic::checksum_of(end.fd(), n),
        ("drain", &[]) => return end.rx.drain(),
        ("fill", &[]) => return end.tx.fill() as u64,
        // All bytes before the end of the stream, or before an error.
        ("whole", &[]) => return end.rx.whole(),
        ("ending", &[]) => return end.rx.ending().map_or_else(|e| e.0 as u64, |()| 0),
        ("await", &[n]) => end.rx.await_bytes(n as usize),
        ("unread", &[]) => return fds::unread(end.fd()) as u64,
        ("mixed", &[send, recv, most, seed]) => traffic::both_ways(end, send, recv, most, seed),
        ("echo_all", &[how, seed]) => return traffic::echo_all(end, how, seed),
        ("farewell", &[n]) => traffic::send_at_exit(end, n as usize),
        ("shutdown", &[how]) => drop(net::shutdown(end.fd(), how as i32).expect("shutdown")),
        ("close", &[]) => end.close(),
        ("reset", &[]) => {
            net::set_linger(end.fd(), 0);
            end.close();
        }
        ("option", &[level, name, value]) => {
            net::set_option(end.fd(), level as i32, name as i32, &(value as i32)).expect("setsockopt");
        }
        // In a set that survives exec.
        ("watch", &[mask, data]) => {
            let set = Epoll::with_size(1);
            set.control(libc::EPOLL_CTL_ADD, end.fd(), mask as u32, data).expect("EPOLL_CTL_ADD");
            return set.fd as u64;
        }
        ("watch_otherwise", &[set, mask, data]) => {
            let set = Epoll { fd: set as Fd };
            set.control(libc::EPOLL_CTL_MOD, end.fd(), mask as u32, data).expect("EPOLL_CTL_MOD");
        }
        ("urgent", &[byte]) => {
            assert_eq!(io::send(end.fd(), &[byte as u8], libc::MSG_OOB), Ok(1));
        }
        ("raw", &[byte, n]) => {
            let bytes = vec![byte as u8; n as usize];
            assert_eq!(io::write(end.fd(), &bytes), Ok(bytes.len()));
        }
        _ => panic!("the puppet does not know {op} {args:?}"),
    }
    0
}
