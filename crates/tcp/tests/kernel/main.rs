//! The fast path against the kernel's TCP, over a TAP device in a network namespace without a route outside. Needs root.

mod handshake;
mod tap;
#[path = "../../../../fuzz/bodies/tcp_end.rs"]
mod tcp_end;
#[path = "../../../../fuzz/bodies/tcp_store.rs"]
mod tcp_store;
mod world;

use handshake::Offer;
use rustix::net::sockopt;
use sidestep_tcp::{Back, Discarded, Seq};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use tcp_end::byte;
use world::{V4, V6, World, connect};

/// Bytes in each direction.
const BYTES: u32 = 3_000_000;

const ALL: Offer = Offer { timestamps: true, sack: true, scale: Some(7) };
const NONE: Offer = Offer { timestamps: false, sack: false, scale: None };

/// Sizes between 1 byte and 8 KiB, always the same ones.
fn sizes() -> impl Iterator<Item = u32> {
    (0u32..).map(|n| 1 + (n.wrapping_mul(0x9E37_79B1) >> 19))
}

fn write_all(stream: &mut TcpStream, first: Seq) {
    let mut sent = 0;
    for size in sizes() {
        let size = size.min(BYTES - sent);
        let bytes: Vec<u8> = (0..size).map(|n| byte(1, first.plus(sent + n))).collect();
        stream.write_all(&bytes).expect("write");
        sent += size;
        if sent == BYTES {
            return;
        }
    }
}

fn read_all(stream: &mut TcpStream, first: Seq, read: &AtomicU32) {
    let mut buffer = vec![0; 10_000];
    let mut got = 0;
    while got < BYTES {
        let n = stream.read(&mut buffer).expect("read");
        assert!(n > 0, "the end after {got} bytes");
        for (at, found) in buffer[..n].iter().enumerate() {
            assert_eq!(*found, byte(0, first.plus(got + at as u32)), "byte {at} after {got}");
        }
        got += n as u32;
        read.store(got, Relaxed);
    }
}

/// The kernel's program writes and reads at once, compares, and ends the connection.
fn both_ways(mut stream: TcpStream, writes: Seq, reads: Seq, read: &AtomicU32) {
    let mut writer = stream.try_clone().expect("another descriptor");
    let writing = std::thread::spawn(move || write_all(&mut writer, writes));
    read_all(&mut stream, reads, read);
    writing.join().expect("the writer");
}

/// The fast path's program writes `bytes`, and reads what comes, until the fast path gives the connection back.
fn until_returned(world: &mut World, bytes: u32) -> Back {
    until_returned_within(world, || bytes)
}

/// The same; `limit` says how much the program may have written by now.
fn until_returned_within(world: &mut World, limit: impl Fn() -> u32) -> Back {
    let mut written = 0;
    let mut sizes = sizes();
    loop {
        let before = world.end.positions.written;
        let limit = limit();
        world.end.write(sizes.next().unwrap_or(1).min(limit - written));
        written += world.end.positions.written.since(before);
        if let Some(back) = world.turn(written < limit) {
            return back;
        }
    }
}

fn streams(addresses: [&str; 2], offer: Offer) {
    // The kernel's program may sleep for long; its window stays open if no more is sent than its buffer holds.
    let read = Arc::new(AtomicU32::new(0));
    let limit = read.clone();
    let program = move |stream: TcpStream, writes, reads| both_ways(stream, writes, reads, &read);
    connect(addresses, offer, program, |world| {
        let first = world.end.store.progress();
        let back = until_returned_within(world, || BYTES.min(limit.load(Relaxed) + 30_000));
        println!("{offer:?}: {} frames to the kernel, {} from it", world.sent, world.received);
        assert_eq!(back, Back::Fin, "the kernel ends the connection, and nothing earlier does");
        world.end.check_whole();
        let progress = world.end.store.progress();
        assert_eq!(progress.rcv_nxt, first.rcv_nxt.plus(BYTES));
        assert_eq!(progress.snd_nxt, first.snd_nxt.plus(BYTES));
        // The kernel probes for a loss sooner than a delayed acknowledgement leaves (RFC 8985, section 7).
        assert!(world.end.discarded.iter().all(|why| *why == Discarded::OldData), "{:?}", world.end.discarded);
    });
}

#[test]
fn ipv4_with_all_options() {
    streams(V4, ALL);
}

#[test]
fn ipv4_without_options() {
    streams(V4, NONE);
}

#[test]
fn ipv6_with_all_options() {
    streams(V6, Offer { scale: Some(2), ..ALL });
}

#[test]
fn ipv6_with_timestamps_only() {
    streams(V6, Offer { timestamps: true, ..NONE });
}

/// Reads until the end, whatever it is.
fn read_only(mut stream: TcpStream, _: Seq, _: Seq) {
    let mut buffer = [0; 1000];
    while stream.read(&mut buffer).is_ok_and(|n| n > 0) {}
}

/// Writes until the end, whatever it is.
fn write_only(mut stream: TcpStream, writes: Seq, _: Seq) {
    let mut at = writes;
    loop {
        let bytes: Vec<u8> = (0..500).map(|n| byte(1, at.plus(n))).collect();
        if stream.write_all(&bytes).is_err() {
            return;
        }
        at = at.plus(500);
    }
}

fn loss_to_the_kernel(offer: Offer) -> Back {
    let mut back = None;
    connect(V4, offer, read_only, |world| {
        world.lost_to_kernel = Some(20);
        back = Some(until_returned(world, BYTES));
        world.end.check_whole();
        world.reset();
    });
    back.expect("a reason")
}

#[test]
fn a_segment_that_the_kernel_misses_returns_the_connection() {
    assert_eq!(loss_to_the_kernel(ALL), Back::Sack);
    assert_eq!(loss_to_the_kernel(NONE), Back::DuplicateAcks);
}

#[test]
fn a_segment_that_is_missing_returns_the_connection() {
    connect(V4, ALL, write_only, |world| {
        world.lost_from_kernel = Some(20);
        assert_eq!(until_returned(world, 0), Back::Gap);
        world.end.check_whole();
        world.reset();
    });
}

#[test]
fn the_last_segment_is_lost() {
    connect(V4, ALL, read_only, |world| {
        world.lost_to_kernel = Some(2);
        assert_eq!(world.turn(true), None, "the acknowledgement that ends the handshake");
        world.end.write(10);
        assert_eq!(until_returned(world, 0), Back::Timeout);
        assert_eq!(world.end.store.progress().in_flight(), 10);
        world.reset();
    });
}

#[test]
fn a_program_that_does_not_read_closes_its_window() {
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let reads_nothing = move |stream: TcpStream, _, _| {
        let _ = is_done.recv();
        drop(stream);
    };
    connect(V4, ALL, reads_nothing, |world| {
        let back = until_returned(world, BYTES);
        assert!(matches!(back, Back::ZeroWindow | Back::SmallWindow), "{back}");
        world.end.check_whole();
        drop(done);
    });
}

#[test]
fn a_program_that_closes_without_reading_resets() {
    // The first segment has one byte, so the rest of the second one stays unread.
    let reads_little = |mut stream: TcpStream, _, _| stream.read_exact(&mut [0; 2]).expect("two bytes");
    connect(V4, ALL, reads_little, |world| {
        assert_eq!(until_returned(world, 3000), Back::Reset);
        world.end.check_whole();
    });
}

/// Linux probes an idle peer with the number before the next one, and takes the answer for a sign of life.
#[test]
fn keepalive_probes_are_answered() {
    let keeps_alive = |mut stream: TcpStream, _, _| {
        let second = Duration::from_secs(1);
        sockopt::set_tcp_keepidle(&stream, second).expect("TCP_KEEPIDLE");
        sockopt::set_tcp_keepintvl(&stream, second).expect("TCP_KEEPINTVL");
        sockopt::set_tcp_keepcnt(&stream, 2).expect("TCP_KEEPCNT");
        sockopt::set_socket_keepalive(&stream, true).expect("SO_KEEPALIVE");
        // Without answers the kernel would end the connection after three seconds.
        stream.set_read_timeout(Some(4 * second)).expect("a timeout");
        let error = stream.read(&mut [0; 1]).expect_err("nothing is sent");
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    };
    connect(V4, ALL, keeps_alive, |world| {
        assert_eq!(until_returned(world, 0), Back::Fin);
        assert!(world.end.discarded.len() >= 2, "{:?}", world.end.discarded);
        assert!(world.end.discarded.iter().all(|why| *why == Discarded::OutOfWindow));
    });
}
