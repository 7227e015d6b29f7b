//! Byte-exact streams: pseudo-random sizes, pauses and calls, in one and in both directions.

use crate::case::{Case, case};
use crate::link;
use crate::rng::{Rng, run_seed};
use crate::sys::net::Family::{self, V4, V6};
use crate::sys::{io, net};
use crate::traffic::{both_ways, recv_mixed, send_mixed};

const MIB: u64 = 1 << 20;

pub const CASES: &[Case] = &[
    case("stream.sent_by_client_v4", || sent(V4)).bulk(),
    case("stream.sent_by_client_v6", || sent(V6)).bulk(),
    case("stream.received_by_server_v4", || received(V4)).bulk(),
    case("stream.received_by_server_v6", || received(V6)).bulk(),
    case("stream.both_ways_v4", || both(V4, 64 << 10, 4 * MIB)).bulk(),
    case("stream.both_ways_v6", || both(V6, 64 << 10, 4 * MIB)).bulk(),
    case("stream.both_ways_small_pieces", || both(V4, 300, MIB / 4)).bulk(),
    case("stream.both_ways_in_one_process", both_in_one_process).bulk(),
    case("stream.one_thread_talks_to_itself_v4", || one_thread(V4)).bulk(),
    case("stream.one_thread_talks_to_itself_v6", || one_thread(V6)).bulk(),
    case("stream.single_bytes", single_bytes).bulk(),
    case("stream.large_writes", large_writes).bulk(),
    case("stream.a_thousand_pieces_in_one_call", thousand_pieces),
    case("stream.writers_share_a_socket", writers_share).bulk(),
    case("stream.long_records_of_two_writers_stay_whole", long_records).bulk(),
    case("stream.short_records_of_several_writers_stay_whole", short_records).bulk(),
    case("stream.readers_share_a_socket", readers_share).bulk(),
];

fn sent(family: Family) {
    let (mut end, mut peer) = link::client(family);
    let (n, seed) = (8 * MIB, run_seed());
    peer.start("mixed", &[0, n, 100_000, seed]);
    send_mixed(&mut end.tx, n, 100_000, seed + 1);
    peer.finish();
}

fn received(family: Family) {
    let (mut end, mut peer) = link::server(family);
    let (n, seed) = (8 * MIB, run_seed());
    peer.start("mixed", &[n, 0, 100_000, seed]);
    recv_mixed(&mut end.rx, n, 100_000, seed + 1);
    peer.finish();
}

fn both(family: Family, most: u64, n: u64) {
    let (mut end, mut peer) = link::client(family);
    let seed = run_seed();
    peer.start("mixed", &[n, n, most, seed]);
    both_ways(&mut end, n, n, most, seed + 1);
    peer.finish();
}

fn both_in_one_process() {
    let (mut a, mut b) = link::own_pair(V4);
    let (n, seed) = (4 * MIB, run_seed());
    std::thread::scope(|s| {
        s.spawn(|| both_ways(&mut a, n, n, 50_000, seed));
        both_ways(&mut b, n, n, 50_000, seed + 1);
    });
}

/// Never more bytes in flight than certainly fit, since nobody else reads.
fn one_thread(family: Family) {
    let (mut a, mut b) = link::own_pair(family);
    let mut rng = Rng::new(run_seed());
    for round in 0..400 {
        let (from, to) = if round % 3 == 0 { (&mut b, &mut a) } else { (&mut a, &mut b) };
        let n = rng.size(20_000);
        send_mixed(&mut from.tx, n as u64, 7000, rng.number());
        recv_mixed(&mut to.rx, n as u64, 5000, rng.number());
    }
}

fn single_bytes() {
    let (mut end, mut peer) = link::client(V4);
    peer.start("mixed", &[0, 20_000, 64, 1]);
    for _ in 0..20_000 {
        assert_eq!(end.tx.try_send(1, io::write), Ok(1));
    }
    peer.finish();
}

fn large_writes() {
    let (mut end, mut peer) = link::client(V4);
    for size in [128 << 10, 1 << 20, 3 << 20, (4 << 20) + 1] {
        peer.start("recv", &[size]);
        assert_eq!(end.tx.try_send(size as usize, io::write), Ok(size as usize));
        peer.finish();
    }
}

/// IOV_MAX pieces of 0 to 5 bytes each way.
fn thousand_pieces() {
    let (mut end, mut peer) = link::client(V4);
    let mut rng = Rng::new(run_seed());
    let sizes: Vec<usize> = (0..1024).map(|_| rng.below(6) as usize).collect();
    let total: usize = sizes.iter().sum();
    let bytes = end.tx.upcoming(total);
    assert_eq!(io::writev_pieces(end.fd(), &bytes, &sizes), Ok(total));
    end.tx.sent(total);
    peer.recv(total);
    peer.send(total);
    end.rx.await_bytes(total);
    let mut got = vec![0; total];
    assert_eq!(io::readv_pieces(end.fd(), &mut got, &sizes), Ok(total));
    end.rx.arrived(&got);
    assert_eq!(io::writev_pieces(end.fd(), &[0; 1025], &[1; 1025]), Err(crate::sys::errno::EINVAL));
}

/// Small records of several threads must arrive undivided, and in each thread's order.
fn writers_share() {
    const THREADS: u64 = 4;
    const RECORDS: u64 = 2000;
    let (a, b) = link::own_pair(V4);
    std::thread::scope(|s| {
        for thread in 0..THREADS {
            let fd = a.fd();
            s.spawn(move || {
                for record in 0..RECORDS {
                    let bytes = [thread.to_le_bytes(), record.to_le_bytes()].concat();
                    assert_eq!(io::write(fd, &bytes), Ok(16));
                }
            });
        }
        let mut next = [0; THREADS as usize];
        for _ in 0..THREADS * RECORDS {
            let mut bytes = [0; 16];
            assert_eq!(io::recv(b.fd(), &mut bytes, libc::MSG_WAITALL), Ok(16));
            let [thread, record] = [0, 8].map(|i| u64::from_le_bytes(bytes[i..i + 8].try_into().expect("8 bytes")));
            assert_eq!(next.get(thread as usize), Some(&record), "record of thread {thread}");
            next[thread as usize] += 1;
        }
    });
}

/// A write for which there is room is not interrupted by another thread's write.
fn long_records() {
    const LONG: usize = 100_000;
    let (a, b) = link::own_pair(V4);
    let mut both = vec![0; 2 * LONG];
    for _ in 0..50 {
        std::thread::scope(|s| {
            for record in [[1; LONG], [2; LONG]] {
                let fd = a.fd();
                s.spawn(move || assert_eq!(io::write(fd, &record), Ok(LONG)));
            }
            assert_eq!(io::recv(b.fd(), &mut both, libc::MSG_WAITALL), Ok(2 * LONG));
        });
        assert!(both[..LONG].iter().all(|byte| *byte == both[0]), "another record in the first one");
        assert!(both[LONG..].iter().all(|byte| *byte == 3 - both[0]), "another record in the second one");
    }
}

/// Blocking writes of several threads, of which each often finds less space than its record needs.
fn short_records() {
    const SHORT: usize = 100;
    const RECORDS: usize = 6000;
    const WRITERS: u8 = 4;
    let (a, b) = link::own_pair(V4);
    std::thread::scope(|s| {
        for writer in 0..WRITERS {
            let fd = a.fd();
            s.spawn(move || (0..RECORDS).for_each(|_| assert_eq!(io::write(fd, &[writer; SHORT]), Ok(SHORT))));
        }
        let mut record = [0; SHORT];
        for at in 0..RECORDS * usize::from(WRITERS) {
            if at % 600 == 0 {
                crate::sys::cpu::sleep_ms(5); // until the ring is full
            }
            assert_eq!(io::recv(b.fd(), &mut record, libc::MSG_WAITALL), Ok(SHORT));
            assert!(record.iter().all(|byte| *byte == record[0]), "record {at} has bytes of another one: {record:?}");
        }
    });
}

/// Each byte goes to exactly one of the readers.
fn readers_share() {
    const TOTAL: usize = 1 << 20;
    let (mut a, b) = link::own_pair(V4);
    let bytes = a.tx.upcoming(TOTAL);
    let mut want = [0u64; 256];
    bytes.iter().for_each(|&b| want[b as usize] += 1);
    let got = std::thread::scope(|s| {
        let readers: Vec<_> = (0..4).map(|_| s.spawn(|| histogram(b.fd()))).collect();
        a.send(TOTAL);
        net::shutdown(a.fd(), libc::SHUT_WR).expect("shutdown");
        let mut sum = [0u64; 256];
        for reader in readers {
            let part = reader.join().expect("a reader");
            sum.iter_mut().zip(part).for_each(|(s, p)| *s += p);
        }
        sum
    });
    assert_eq!(got, want, "the readers together got other bytes than were sent");
}

fn histogram(fd: crate::sys::Fd) -> [u64; 256] {
    let mut counts = [0; 256];
    let mut buf = [0; 1000];
    loop {
        let n = io::read(fd, &mut buf).expect("read");
        if n == 0 {
            return counts;
        }
        buf[..n].iter().for_each(|&b| counts[b as usize] += 1);
    }
}
