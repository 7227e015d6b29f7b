//! HTTP load on kept connections: requests at a constant rate, or as fast as they are answered.
//!
//! At a rate the loop is open: a request is due when its time has come, whether or not the ones before are answered, and
//! its latency counts from then. What a slow answer holds up is in the figures of all that wait behind it, and so is a
//! generator that is not given a processor.
//!
//! `ready` is printed when all connections are warm; the load begins with the next line of the standard input.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::answer::Answer;
use crate::args::Args;
use crate::clock::Times;
use crate::epoll::Epoll;
use crate::net;
use crate::ticks::Ticks;

/// Requests before any is timed, on each connection and on all of them together: enough for all on the way to have
/// their own connections, too.
const WARM_UP: usize = 16;
const WARM_UP_ALL: usize = 1024;
/// However many connections there are.
const WARM_UP_LEAST: usize = 4;
/// What is not answered so long after the end is given up.
const PATIENCE: Duration = Duration::from_secs(5);
/// The clock of a load without a rate ticks only to see whether it is over.
const WATCH: Duration = Duration::from_millis(10);
const OK: u16 = 200;
/// At most so many of epoll at once, and so many bytes of a read.
const EVENTS: usize = 64;
const READ: usize = 16 * 1024;
/// No connection has this key.
const CLOCK: u64 = u64::MAX;
const SHARES: [(&str, f64); 8] = [
    ("p5", 0.05),
    ("p25", 0.25),
    ("p50", 0.5),
    ("p75", 0.75),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p999", 0.999),
];

struct Connection {
    stream: TcpStream,
    answer: Answer,
    /// Since when the request was due that is on its way.
    busy: Option<Instant>,
    /// Requests that it has carried, or counts as if it had.
    carried: usize,
}

struct Load {
    target: SocketAddrV4,
    request: Vec<u8>,
    /// A connection carries so many requests and is given up for a new one; 0 for any number.
    most: usize,
    epoll: Epoll,
    connections: Vec<Connection>,
    idle: VecDeque<usize>,
    /// Due and not sent, since no connection was idle.
    waiting: VecDeque<Instant>,
    latencies: Vec<Duration>,
    failed: u64,
}

pub fn run(args: &Args) -> Result<(), String> {
    let target: String = args.required("target")?;
    let target = target.parse().map_err(|_| format!("--target: '{target}' is not ADDRESS:PORT"))?;
    let connections: usize = args.required("connections")?;
    let (rate, seconds) = (args.get("rate", 0.0)?, args.seconds()?);
    let most = args.get("requests", 0)?;
    args.finish()?;
    if connections == 0 || !(0.0..=1e6).contains(&rate) {
        return Err("--connections must be 1 or more, --rate up to a million".into());
    }
    let mut load = Load::new(target, connections, most)?;
    load.warm_up()?;
    net::say("ready")?;
    std::io::stdin().read_line(&mut String::new()).map_err(|e| format!("standard input: {e}"))?;
    let answer = if rate > 0.0 { load.at_rate(rate, seconds) } else { load.saturated(seconds) }?;
    net::say(&answer)
}

impl Load {
    fn new(target: SocketAddrV4, count: usize, most: usize) -> Result<Load, String> {
        let mut load = Load {
            target,
            request: format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n").into_bytes(),
            most,
            epoll: Epoll::new(EVENTS)?,
            connections: Vec::new(),
            idle: (0..count).collect(),
            waiting: VecDeque::new(),
            latencies: Vec::new(),
            failed: 0,
        };
        for number in 0..count {
            // Renewed one after another, and not all at the same time.
            let carried = number * most / count;
            load.connections.push(Connection { carried, ..load.connect(number)? });
        }
        Ok(load)
    }

    fn connect(&self, number: usize) -> Result<Connection, String> {
        let stream = TcpStream::connect(self.target).map_err(|e| format!("connect to {}: {e}", self.target))?;
        stream.set_nodelay(true).map_err(|e| format!("TCP_NODELAY: {e}"))?;
        self.epoll.add(stream.as_raw_fd(), number as u64)?;
        Ok(Connection { stream, answer: Answer::default(), busy: None, carried: 0 })
    }

    /// Every connection has answered, and answers as it should.
    fn warm_up(&mut self) -> Result<(), String> {
        let wanted = self.warm_up_requests();
        for _ in 0..wanted {
            self.due(Instant::now())?;
        }
        let end = Instant::now() + PATIENCE;
        let mut clock = self.watch(WATCH)?;
        while self.answered() < wanted {
            if self.turn()? {
                clock.due()?.for_each(drop);
            }
            if Instant::now() > end {
                return Err(format!("{} of {wanted} first requests are not answered", wanted - self.answered()));
            }
        }
        if self.failed > 0 {
            return Err(format!("{} of {wanted} first requests failed", self.failed));
        }
        self.latencies.clear();
        Ok(())
    }

    fn at_rate(&mut self, rate: f64, length: Duration) -> Result<String, String> {
        let wanted = (rate * length.as_secs_f64()).round() as usize;
        let begin = Instant::now();
        let mut clock = self.watch(Duration::from_secs_f64(1.0 / rate))?;
        let mut sent = 0;
        while self.answered() < wanted && begin.elapsed() < length + PATIENCE {
            if self.turn()? {
                // The clock goes on ticking, which ends a wait for answers that do not come.
                let due: Vec<Instant> = clock.due()?.take(wanted - sent).collect();
                sent += due.len();
                due.into_iter().try_for_each(|at| self.due(at))?;
            }
        }
        self.told(begin.elapsed(), 0)
    }

    fn saturated(&mut self, length: Duration) -> Result<String, String> {
        let begin = Instant::now();
        let mut clock = self.watch(WATCH)?;
        while begin.elapsed() < length {
            // One for each connection that has none.
            while !self.idle.is_empty() {
                self.due(Instant::now())?;
            }
            if self.turn()? {
                clock.due()?.for_each(drop);
            }
        }
        let (took, counted) = (begin.elapsed(), self.latencies.len());
        self.drain(&mut clock)?;
        // What was on its way was begun too late to be counted, unless it has been lost.
        let drained = self.latencies.len() - counted;
        self.latencies.truncate(counted);
        self.told(took, drained)
    }

    /// Waits for what is on its way.
    fn drain(&mut self, clock: &mut Ticks) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        while self.connections.iter().any(|connection| connection.busy.is_some()) && Instant::now() < end {
            if self.turn()? {
                clock.due()?.for_each(drop);
            }
        }
        Ok(())
    }

    fn warm_up_requests(&self) -> usize {
        let count = self.connections.len();
        let most = if self.most == 0 { WARM_UP } else { self.most };
        count * (WARM_UP_ALL / count).clamp(WARM_UP_LEAST, WARM_UP).min(most)
    }

    fn answered(&self) -> usize {
        self.latencies.len() + self.failed as usize
    }

    fn watch(&self, period: Duration) -> Result<Ticks, String> {
        let clock = Ticks::every(period)?;
        self.epoll.add(clock.fd(), CLOCK)?;
        Ok(clock)
    }

    /// A request that is due now or was before.
    fn due(&mut self, at: Instant) -> Result<(), String> {
        self.waiting.push_back(at);
        self.send()
    }

    /// As many as there are idle connections for; the one that has been idle longest is taken.
    fn send(&mut self) -> Result<(), String> {
        while !self.waiting.is_empty() {
            let Some(number) = self.idle.pop_front() else { break };
            let at = self.waiting.pop_front().expect("one is waiting");
            if self.most != 0 && self.connections[number].carried >= self.most {
                self.renew(number)?;
            }
            let connection = &mut self.connections[number];
            connection.carried += 1;
            connection.busy = Some(at);
            if connection.stream.write_all(&self.request).is_err() {
                self.lost(number)?;
            }
        }
        Ok(())
    }

    /// Waits for answers and takes them. Whether the clock has ticked.
    fn turn(&mut self) -> Result<bool, String> {
        let ready: Vec<u64> = self.epoll.wait()?.collect();
        for key in ready.iter().filter(|key| **key != CLOCK) {
            self.read(*key as usize)?;
        }
        self.send()?;
        Ok(ready.contains(&CLOCK))
    }

    fn read(&mut self, number: usize) -> Result<(), String> {
        let mut room = [0; READ];
        let connection = &mut self.connections[number];
        let count = match connection.stream.read(&mut room) {
            Ok(count) => count,
            Err(e) if e.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(_) => 0,
        };
        if count == 0 {
            return self.lost(number);
        }
        if let Some(status) = connection.answer.take(&room[..count])? {
            let at = connection.busy.take().ok_or("an answer to no request")?;
            if status == OK {
                self.latencies.push(at.elapsed())
            } else {
                self.failed += 1
            }
            self.idle.push_back(number);
        }
        Ok(())
    }

    /// The other side has closed: what was on its way has failed.
    fn lost(&mut self, number: usize) -> Result<(), String> {
        if self.connections[number].busy.is_some() {
            self.failed += 1;
            self.idle.push_back(number);
        }
        self.renew(number)
    }

    fn renew(&mut self, number: usize) -> Result<(), String> {
        net::reset_at_close(self.connections[number].stream.as_raw_fd())?;
        self.connections[number] = self.connect(number)?;
        Ok(())
    }

    /// What is not answered has waited for as long as it has: leaving it out would be to the credit of who is too slow.
    /// `drained` were answered too late to count.
    fn told(&mut self, took: Duration, drained: usize) -> Result<String, String> {
        let answered = self.latencies.len();
        let open = self.connections.iter().filter_map(|connection| connection.busy);
        let unanswered: Vec<Duration> = open.chain(self.waiting.iter().copied()).map(|at| at.elapsed()).collect();
        self.latencies.extend(&unanswered);
        if answered == 0 {
            return Err("not one request was answered".into());
        }
        let times = Times::of(&self.latencies);
        let shares: String =
            SHARES.iter().map(|(name, share)| format!("\"{name}\":{:.1},", times.percentile(*share) / 1e3)).collect();
        Ok(format!(
            "{{\"seconds\":{:.6},\"warm_up\":{},\"answered\":{answered},\"drained\":{drained},\"unanswered\":{},\"failed\":{},\
             \"latency_us\":{{{shares}\"mean\":{:.1},\"max\":{:.1}}}}}",
            took.as_secs_f64(),
            self.warm_up_requests(),
            unanswered.len(),
            self.failed,
            times.mean() / 1e3,
            times.percentile(1.0) / 1e3,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// Answers so many requests of each connection, each after a while, and closes.
    fn server(after: Duration, requests: usize) -> SocketAddrV4 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut room = [0; 1024];
                    for _ in 0..requests {
                        if !matches!(stream.read(&mut room), Ok(1..)) {
                            return;
                        }
                        thread::sleep(after);
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                    }
                });
            }
        });
        address
    }

    fn field(told: &str, name: &str) -> f64 {
        let rest = &told[told.find(&format!("\"{name}\":")).unwrap() + name.len() + 3..];
        rest[..rest.find([',', '}']).unwrap()].parse().unwrap()
    }

    #[test]
    fn every_request_of_a_rate_is_sent_and_answered() {
        let mut load = Load::new(server(Duration::ZERO, usize::MAX), 4, 0).unwrap();
        load.warm_up().unwrap();
        let told = load.at_rate(500.0, Duration::from_millis(200)).unwrap();
        assert_eq!((field(&told, "answered"), field(&told, "failed")), (100.0, 0.0));
    }

    #[test]
    fn who_waits_behind_a_slow_answer_is_slow_too() {
        let mut load = Load::new(server(Duration::from_millis(5), usize::MAX), 1, 0).unwrap();
        load.warm_up().unwrap();
        // One in 5 ms is answered and one in 1 ms is due: the last of 40 waits for four fifths of all that time.
        let told = load.at_rate(1000.0, Duration::from_millis(40)).unwrap();
        assert!(field(&told, "max") > 0.8 * 40.0 * 4000.0, "{told}");
    }

    #[test]
    fn a_load_without_rate_counts_what_was_answered() {
        let mut load = Load::new(server(Duration::ZERO, usize::MAX), 2, 0).unwrap();
        load.warm_up().unwrap();
        let told = load.saturated(Duration::from_millis(50)).unwrap();
        assert!(field(&told, "answered") > 2.0 && field(&told, "unanswered") == 0.0, "{told}");
    }

    #[test]
    fn what_is_lost_at_saturation_is_told() {
        // Each connection answers what warms it up and one more, and then no more, but stays.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut room = [0; 1024];
            for _ in 0..=WARM_UP {
                let _ = stream.read(&mut room);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
            thread::sleep(2 * PATIENCE);
        });
        let mut load = Load::new(address, 1, 0).unwrap();
        load.warm_up().unwrap();
        let told = load.saturated(Duration::from_millis(50)).unwrap();
        assert_eq!((field(&told, "answered"), field(&told, "unanswered")), (1.0, 1.0));
    }

    #[test]
    fn a_connection_may_be_for_some_requests_only() {
        for most in [1, 3] {
            let mut load = Load::new(server(Duration::ZERO, most), 2, most).unwrap();
            load.warm_up().unwrap();
            let told = load.at_rate(500.0, Duration::from_millis(40)).unwrap();
            assert_eq!((field(&told, "answered"), field(&told, "failed")), (20.0, 0.0));
        }
    }

    #[test]
    fn connections_are_renewed_one_after_another() {
        let load = Load::new(server(Duration::ZERO, usize::MAX), 4, 100).unwrap();
        let carried: Vec<usize> = load.connections.iter().map(|each| each.carried).collect();
        assert_eq!(carried, [0, 25, 50, 75]);
    }

    #[test]
    fn many_connections_are_warmed_up_by_fewer_requests_each() {
        let address = server(Duration::ZERO, usize::MAX);
        for (count, wanted) in [(1, 16), (64, 1024), (128, 1024), (300, 1200)] {
            assert_eq!(Load::new(address, count, 0).unwrap().warm_up_requests(), wanted);
        }
        assert_eq!(Load::new(address, 64, 1).unwrap().warm_up_requests(), 64);
    }

    #[test]
    fn a_connection_that_ends_is_a_failure_and_made_again() {
        let mut load = Load::new(server(Duration::ZERO, WARM_UP), 1, 0).unwrap();
        load.warm_up().unwrap();
        let told = load.at_rate(500.0, Duration::from_millis(60)).unwrap();
        assert!(field(&told, "answered") + field(&told, "failed") == 30.0, "{told}");
    }
}
