//! The last moments of a process: bytes that it writes then must arrive, and nothing may delay its end.

use crate::case::{Case, case};
use crate::link;
use crate::sys::net::Family::V4;
use crate::sys::process::{Ended, in_child};
use crate::sys::threads::blocked;
use crate::sys::{cpu, io};

pub const CASES: &[Case] = &[
    case("at_exit.handler_writes_the_last_bytes", handler_writes),
    case("at_exit.thread_destructor_writes", destructor_writes),
    case("at_exit.with_a_thread_blocked_in_read", with_blocked_reader),
    case("at_exit.while_threads_stream", while_streaming),
    case("at_exit.children_exit_while_the_parent_streams", children).bulk(),
];

/// Exit handlers run in reverse order of registration: the program's before those of its libraries.
fn handler_writes() {
    for n in [10, 50_000] {
        let (mut end, mut peer) = link::client(V4);
        peer.send(100);
        peer.call("farewell", &[n]);
        assert_eq!(peer.leave("exit"), Ended::Exit(0));
        assert_eq!(end.rx.drain(), 100 + n);
        end.close();
    }
}

/// Sends from the destructor of a thread-local value.
struct Last(std::cell::RefCell<Option<crate::end::End>>);

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(mut end) = self.0.take() {
            end.send(777);
            end.close();
        }
    }
}

thread_local! {
    static LAST: Last = const { Last(std::cell::RefCell::new(None)) };
}

fn destructor_writes() {
    let (end, mut peer) = link::client(V4);
    std::thread::spawn(move || LAST.with(|last| last.0.replace(Some(end)))).join().expect("the thread");
    assert_eq!(peer.drain(), 777);
}

/// exit() does not wait for a thread that sleeps in read.
fn with_blocked_reader() {
    let (end, mut peer) = link::client(V4);
    let fd = end.fd();
    let child = in_child(|| {
        blocked(move || io::read(fd, &mut [0; 10]));
        std::process::exit(5)
    });
    end.close();
    assert_eq!(child.wait(), Ended::Exit(5));
    assert_eq!(peer.call("ending", &[]), 0);
}

/// The process exits while threads are inside calls: the peer gets a prefix of the stream, then its end.
fn while_streaming() {
    for round in 0..5 {
        let (mut a, mut b) = link::own_pair(V4);
        let (from_a, into_b) = (a.fd(), &mut b.rx);
        let child = in_child(|| {
            crate::sys::fds::close(into_b.fd).expect("close");
            std::thread::scope(|s| {
                s.spawn(|| {
                    loop {
                        a.tx.send(5000);
                    }
                });
                cpu::sleep_ms(5 + round);
                std::process::exit(0)
            })
        });
        crate::sys::fds::close(from_a).expect("close");
        println!("{} bytes before the end", b.rx.drain());
        assert_eq!(child.wait(), Ended::Exit(0));
        b.close();
    }
}

fn children() {
    let (mut end, mut peer) = link::client(V4);
    let n = 8 << 20;
    peer.start("mixed", &[n, n, 20_000, 1]);
    std::thread::scope(|s| {
        let stream = s.spawn(|| crate::traffic::both_ways(&mut end, n, n, 20_000, 2));
        let mut times = 0;
        while !stream.is_finished() || times < 3 {
            assert_eq!(in_child(|| std::process::exit(0)).wait(), Ended::Exit(0));
            times += 1;
        }
    });
    peer.finish();
}
