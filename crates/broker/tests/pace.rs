//! How fast the broker pairs. A figure, not a test: `cargo test --release -p sidestep-broker --test pace -- --ignored --nocapture`.
//! `SIDESTEPD` names another program to measure.

use crate::common::{FakeMember, Given, receive, tcp_pair};
use rustix::event::{PollFd, PollFlags};
use sidestep_abi::msg::Kind;
use sidestep_broker::listen::Address;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const CONNECTIONS: usize = 500;
const ROUNDS: usize = 9;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

fn start(address: &Address) -> Running {
    let program = std::env::var("SIDESTEPD").unwrap_or_else(|_| env!("CARGO_BIN_EXE_sidestepd").into());
    let mut command = Command::new(program);
    command.args(["--address", &address.to_string(), "--idle-exit", "0", "--ready-fd", "1"]);
    let mut running = Running(command.stdout(Stdio::piped()).spawn().expect("spawn"));
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().expect("piped")).read_line(&mut line).expect("read");
    assert_eq!(line, "ready\n");
    running
}

fn slot(member: &FakeMember) -> Given {
    loop {
        let mut readable = [PollFd::new(&member.socket, PollFlags::IN)];
        rustix::event::poll(&mut readable, None).expect("poll");
        let (msg, _) = receive(&member.socket).expect("an answer");
        match msg.kind() {
            Some(Kind::Slot) => {
                return Given { link: msg.link, slot: msg.slot as usize, side: msg.side as usize };
            }
            Some(Kind::Refused) => panic!("refused: {}", msg.arg),
            _ => {}
        }
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Microseconds for each pair and the release of its slot, one after the other or with `depth` under way.
fn measure(a: &FakeMember, b: &FakeMember, pairs: &[(TcpStream, TcpStream)], depth: usize) -> f64 {
    let began = Instant::now();
    for part in pairs.chunks(depth) {
        part.iter().enumerate().for_each(|(n, (client, _))| a.offer(n as u64, client));
        part.iter().enumerate().for_each(|(n, (_, server))| b.offer(n as u64, server));
        let given: Vec<_> = part.iter().map(|_| (slot(a), slot(b))).collect();
        for (of_a, of_b) in given {
            a.release(of_a);
            b.release(of_b);
        }
    }
    began.elapsed().as_secs_f64() * 1e6 / pairs.len() as f64
}

#[test]
#[ignore = "a figure, not a test"]
fn pairs_in_a_second() {
    let address: Address = format!("@sidestep-pace-{}", std::process::id()).parse().expect("valid");
    let _broker = start(&address);
    let pairs: Vec<_> = (0..CONNECTIONS).map(|_| tcp_pair("127.0.0.1")).collect();
    let (a, b) = (FakeMember::join(&address, 4096), FakeMember::join(&address, 4096));
    let _bells = (a.bell(0), b.bell(0));
    for depth in [1, 50] {
        let figures = (0..ROUNDS).map(|_| measure(&a, &b, &pairs, depth)).collect();
        let us = median(figures);
        println!("{depth} under way: {us:.1} us a pair, {:.0} pairs a second", 1e6 / us);
    }
}
