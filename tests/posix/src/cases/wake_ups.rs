//! Lost wake-ups: many small exchanges, with random delays around the moment of falling asleep.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::case::{Case, case};
use crate::end::End;
use crate::rng::{Rng, run_seed};
use crate::sys::net::Family::V4;
use crate::traffic::{BLOCKING, EPOLL_EDGE, EPOLL_LEVEL, POLL, Waiter, echo_all, tiny_delay};
use crate::{hosts, link};

pub const CASES: &[Case] = &[
    case("wake_ups.blocking", || two_processes(BLOCKING, BLOCKING)).bulk(),
    case("wake_ups.poll", || two_processes(POLL, POLL)).bulk(),
    case("wake_ups.epoll_level", || two_processes(EPOLL_LEVEL, EPOLL_LEVEL)).bulk(),
    case("wake_ups.epoll_edge", || two_processes(EPOLL_EDGE, EPOLL_EDGE)).bulk(),
    case("wake_ups.epoll_against_blocking", || two_processes(EPOLL_EDGE, BLOCKING)).bulk(),
    case("wake_ups.two_threads_blocking", || two_threads(BLOCKING)).bulk(),
    case("wake_ups.two_threads_epoll", || two_threads(EPOLL_EDGE)).bulk(),
    case("wake_ups.writer_waits_for_space", full_and_empty).bulk(),
];

const LENGTH: Duration = Duration::from_millis(1500);

/// Ends the process if the count stops growing: a wake-up was lost.
fn watch(rounds: &'static AtomicU64) {
    std::thread::spawn(move || {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let now = rounds.load(Ordering::Relaxed);
            if now != last {
                (last, since) = (now, Instant::now());
            }
            assert!(since.elapsed() < Duration::from_secs(6), "no wake-up after exchange {last}");
        }
    });
}

static ROUNDS: AtomicU64 = AtomicU64::new(0);

fn exchange(end: &mut End, how: u64) {
    watch(&ROUNDS);
    let mut wait = Waiter::new(end.fd(), how);
    let mut rng = Rng::new(run_seed());
    let start = Instant::now();
    while start.elapsed() < LENGTH {
        let n = rng.size(200);
        end.send(n);
        tiny_delay(&mut rng);
        let mut left = n;
        while left > 0 {
            left -= wait.recv_some(&mut end.rx, left);
        }
        tiny_delay(&mut rng);
        ROUNDS.fetch_add(1, Ordering::Relaxed);
    }
    println!("{} exchanges", ROUNDS.load(Ordering::Relaxed));
    assert!(
        ROUNDS.load(Ordering::Relaxed) > if hosts::are_two() { 100 } else { 500 },
        "too few exchanges to say anything"
    );
}

fn two_processes(here: u64, there: u64) {
    let (mut end, mut peer) = link::client(V4);
    peer.start("echo_all", &[there, run_seed() + 1]);
    exchange(&mut end, here);
    crate::sys::net::shutdown(end.fd(), libc::SHUT_WR).expect("shutdown");
    assert_eq!(peer.finish(), end.tx.at, "the peer received what was sent");
}

fn two_threads(how: u64) {
    let (mut a, mut b) = link::own_pair(V4);
    let echo = std::thread::spawn(move || echo_all(&mut b, how, run_seed() + 1));
    exchange(&mut a, how);
    crate::sys::net::shutdown(a.fd(), libc::SHUT_WR).expect("shutdown");
    assert_eq!(echo.join().expect("the echo"), a.tx.at);
}

/// The other direction of waking: the writer waits for space that the reader frees.
fn full_and_empty() {
    let (mut end, mut peer) = link::client(V4);
    watch(&ROUNDS);
    for round in 0..12 {
        let n = 6 << 20;
        peer.start("mixed", &[0, n, if round % 2 == 0 { 200_000 } else { 5_000 }, round]);
        end.send(n as usize);
        peer.finish();
        ROUNDS.fetch_add(1, Ordering::Relaxed);
    }
}
