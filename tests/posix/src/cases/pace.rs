//! Which connections are offered by default, when no threshold is set.

use std::time::{Duration, Instant};

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::sys::cpu::sleep_ms;
use crate::sys::epoll::{Epoll, IN};
use crate::sys::net::Family::V4;
use crate::sys::process::in_child;

pub const CASES: &[Case] = &[
    case("pace.quick_messages_go_by_ring", quick_messages).by_pace(),
    case("pace.rare_messages_stay_on_the_kernel", rare_messages).by_pace().never("the ends sleep").reason("rare"),
    case("pace.rare_messages_of_a_busy_thread_go_by_ring", busy_thread).by_pace(),
    case("pace.rare_messages_of_many_connections_go_by_ring", many_connections).by_pace(),
    case("pace.busy_end_has_its_way", busy_end).by_pace(),
    case("pace.no_answer_is_late_for_an_upgrade", prompt_answers).by_pace(),
    case("pace.rare_messages_before_quick_ones", rare_then_quick).by_pace(),
];

fn rounds(client: &mut End, server: &mut End, n: usize, mut pause: impl FnMut()) {
    for _ in 0..n {
        client.send(100);
        pause();
        server.recv(100);
        pause();
    }
}

fn quick_messages() {
    let (mut client, mut server) = link::cold_pair_ends(V4, 0);
    rounds(&mut client, &mut server, 5000, || ());
}

fn rare_messages() {
    let (mut client, mut server) = link::cold_pair_ends(V4, 0);
    rounds(&mut client, &mut server, 100, || sleep_ms(1));
}

/// Each connection is used once in two milliseconds, and all are used one right after the other.
fn many_connections() {
    let mut pairs: Vec<_> = (0..16).map(|_| link::cold_pair_ends(V4, 0)).collect();
    for _ in 0..100 {
        pairs.iter_mut().for_each(|(client, _)| client.send(100));
        pairs.iter_mut().for_each(|(_, server)| server.recv(100));
        sleep_ms(2);
    }
}

/// A client that waits in its reads, and a server that waits in a set, which is ready for rings later. Nagle's algorithm is on.
fn prompt_answers() {
    const PAIRS: u64 = 12;
    let late = (0..PAIRS).filter(|number| {
        let (mut client, mut server) = link::cold_pair_ends(V4, *number);
        let child = in_child(|| {
            client.close();
            let set = Epoll::new();
            set.add(server.fd(), IN);
            for _ in 0..ROUNDS {
                assert_eq!(set.wait(5000).len(), 1);
                server.recv(30);
                server.send(900);
            }
        });
        server.close();
        let slowest = (0..ROUNDS).map(|_| {
            let began = Instant::now();
            client.send(30);
            client.recv(900);
            began.elapsed()
        });
        let is_late = slowest.max() > Some(Duration::from_millis(35));
        child.succeed();
        is_late
    });
    // A machine that is busy with other things is late, too.
    assert!(late.count() <= PAIRS as usize / 4, "the kernel waits for acknowledgements");
}

const ROUNDS: usize = 60;

fn rare_then_quick() {
    let (mut client, mut server) = link::cold_pair_ends(V4, 0);
    rounds(&mut client, &mut server, 50, || sleep_ms(1));
    rounds(&mut client, &mut server, 5000, || ());
}

fn work() {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1) {
        std::hint::spin_loop();
    }
}

/// One end sleeps for each answer of the other end, which is busy.
fn busy_end() {
    let (mut client, mut server) = link::cold_pair_ends(V4, 0);
    let rounds = 300;
    let resting = std::thread::spawn(move || {
        for _ in 0..rounds {
            client.send(100);
            client.recv(100);
        }
        client
    });
    let set = Epoll::new();
    set.add(server.fd(), IN);
    for _ in 0..rounds {
        assert_eq!(set.wait(10_000).len(), 1);
        server.recv(100);
        work();
        server.send(100);
    }
    drop(resting.join());
}

/// Is busy for a millisecond before it looks for each message.
fn busy_thread() {
    let (mut client, mut server) = link::cold_pair_ends(V4, 0);
    let set = Epoll::new();
    set.add(server.fd(), IN);
    for _ in 0..200 {
        client.send(100);
        work();
        assert_eq!(set.wait(1000).len(), 1);
        server.recv(100);
    }
}
