//! Which threads an arrival wakes, and how often it is reported: level and edge triggers, nested sets, one thread or two. Each
//! thread waits in the set itself, or polls the set's descriptor first. Linux's own self-test of epoll wake-ups tries the same
//! shapes with socket pairs; here they are tried over TCP.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libc::POLLIN;

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::sys::cpu::{eventually, sleep_ms};
use crate::sys::epoll::{ET, Epoll, IN};
use crate::sys::net::Family::V4;
use crate::sys::poll::events_of;
use crate::sys::threads::{Blocked, blocked};
use crate::sys::{Fd, fds, io};

pub const CASES: &[Case] = &[
    case("epoll_wakeups.one_thread_looks_twice", looks_twice),
    case("epoll_wakeups.every_arrival_is_a_new_edge_outside", new_edge_outside),
    case("epoll_wakeups.two_threads_wait", two_threads),
    case("epoll_wakeups.one_thread_inside_and_one_outside", inside_and_outside),
    case("epoll_wakeups.armed_again_by_another_thread", armed_again),
    case("epoll_wakeups.ten_threads_and_ten_edges", ten_threads),
    case("epoll_wakeups.arrival_beside_an_ending_wait", beside_timeout),
];

/// Longest wait for a wake-up that must come, on a busy machine.
const COMES_MS: i32 = 5000;
/// How long a thread is watched that must not be woken.
const IN_VAIN_MS: u64 = 60;

/// How a set watches: level- or edge-triggered.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Trigger {
    Level,
    Edge,
}

use Trigger::{Edge, Level};

impl Trigger {
    fn mask(self) -> u32 {
        IN | if self == Edge { ET } else { 0 }
    }
}

/// One set that holds the sockets, or an outer set that holds a set for each socket.
#[derive(Clone, Copy, Debug)]
struct Shape {
    outer: Option<Trigger>,
    sockets: usize,
    /// Trigger of the set that holds the sockets.
    socket: Trigger,
}

impl Shape {
    fn all() -> impl Iterator<Item = Shape> {
        let outers = [None, Some(Level), Some(Edge)];
        let sockets = [(1, Level), (1, Edge), (2, Level), (2, Edge)];
        outers.into_iter().flat_map(move |outer| sockets.map(|(sockets, socket)| Shape { outer, sockets, socket }))
    }

    /// Trigger of the set in which the program waits.
    fn top(self) -> Trigger {
        self.outer.unwrap_or(self.socket)
    }
}

/// The sets of a shape, closed in the end.
struct Sets {
    top: Epoll,
    inner: Vec<Epoll>,
}

impl Sets {
    fn new(shape: Shape, pairs: &Pairs) -> Sets {
        let top = Epoll::new();
        let mut inner = vec![];
        for (_, end) in &pairs[..shape.sockets] {
            if let Some(trigger) = shape.outer {
                let set = Epoll::new();
                set.add(end.fd(), shape.socket.mask());
                top.add(set.fd, trigger.mask());
                inner.push(set);
            } else {
                top.add(end.fd(), shape.socket.mask());
            }
        }
        Sets { top, inner }
    }
}

impl Drop for Sets {
    fn drop(&mut self) {
        for set in self.inner.iter().chain([&self.top]) {
            fds::close(set.fd).expect("close a set");
        }
    }
}

/// Two warm connections, as (writing end, watched end).
type Pairs = [(End, End); 2];

fn pairs() -> Pairs {
    [0, 1].map(|number| link::numbered_pair(V4, number))
}

fn arrive(pairs: &mut Pairs, shape: Shape) {
    for (a, b) in &mut pairs[..shape.sockets] {
        a.send(1);
        b.rx.await_bytes(1);
    }
}

fn drain(pairs: &mut Pairs, shape: Shape) {
    pairs[..shape.sockets].iter_mut().for_each(|(_, b)| b.recv(1));
}

/// How a thread waits.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// In epoll_wait.
    Wait,
    /// In poll on the set's descriptor; then it takes the set's events.
    Poll,
}

const WAYS: [(Way, Way); 3] = [(Way::Wait, Way::Wait), (Way::Wait, Way::Poll), (Way::Poll, Way::Poll)];

impl Way {
    /// Number of events that the set reports within the time, at most one.
    fn one_event(self, set: Epoll, ms: i32) -> usize {
        let look = |ms| set.try_wait(1, ms).expect("epoll_wait").len();
        match self {
            Way::Wait => look(ms),
            Way::Poll => {
                let deadline = Instant::now() + Duration::from_millis(ms as u64);
                loop {
                    let left = deadline.saturating_duration_since(Instant::now()).as_millis() as i32;
                    let readable = events_of(set.fd, POLLIN, left) == POLLIN;
                    // Another thread may have taken the event: then poll again.
                    if readable && look(0) == 1 {
                        return 1;
                    }
                    if left == 0 {
                        return 0;
                    }
                }
            }
        }
    }
}

/// Unread bytes are reported again if the asked set is level-triggered, and once if it is edge-triggered.
fn looks_twice() {
    let mut pairs = pairs();
    for shape in Shape::all() {
        for polls in [false, true] {
            let sets = Sets::new(shape, &pairs);
            arrive(&mut pairs, shape);
            let later = if shape.top() == Level { shape.sockets } else { 0 };
            for (look, expected) in [(1, shape.sockets), (2, later), (3, later)] {
                if polls {
                    let readable = events_of(sets.top.fd, POLLIN, 0) == POLLIN;
                    assert_eq!(readable, expected > 0, "{shape:?}: poll, look {look}");
                }
                assert_eq!(sets.top.wait(0).len(), expected, "{shape:?}, polls {polls}: look {look}");
            }
            drain(&mut pairs, shape);
        }
    }
}

/// An edge-triggered outer set reports each arrival in the inner set, even if nobody looks into the inner set.
fn new_edge_outside() {
    let mut pairs = pairs();
    for socket in [Level, Edge] {
        let shape = Shape { outer: Some(Edge), sockets: 1, socket };
        let sets = Sets::new(shape, &pairs);
        for round in 1..=5 {
            pairs[0].0.send(1);
            assert_eq!(sets.top.wait(COMES_MS).len(), 1, "{shape:?}: arrival {round}");
            assert_eq!(sets.top.wait(10), [], "{shape:?}: once for arrival {round}");
        }
        pairs[0].1.recv(5);
    }
}

fn sleeper(way: Way, set: Epoll, ms: i32) -> Blocked<usize> {
    blocked(move || way.one_event(set, ms))
}

/// Level-triggered, both threads are told, since nobody reads; edge-triggered, each arrival is reported to one of them.
fn two_threads() {
    let mut pairs = pairs();
    for shape in Shape::all() {
        for (one, other) in WAYS {
            let sets = Sets::new(shape, &pairs);
            let expected = if shape.top() == Level { 2 } else { shape.sockets };
            let threads = [sleeper(one, sets.top, COMES_MS), sleeper(other, sets.top, COMES_MS)];
            let awake = || threads.iter().filter(|t| t.is_finished()).count();
            arrive(&mut pairs, shape);
            eventually("the threads are woken", || awake() >= expected);
            if expected == 1 {
                sleep_ms(IN_VAIN_MS);
                assert_eq!(awake(), 1, "{shape:?}, {one:?} and {other:?}: one edge is for one thread");
                drain(&mut pairs, shape);
                arrive(&mut pairs, shape);
            }
            let told = threads.map(Blocked::join);
            assert_eq!(told, [1, 1], "{shape:?}, {one:?} and {other:?}");
            drain(&mut pairs, shape);
        }
    }
}

/// One thread waits in the set, another one in a set around it. The first one always gets the event. The other one also gets it
/// if the socket is watched by level; if by edge, the first one may have taken it.
fn inside_and_outside() {
    let mut pairs = pairs();
    for (outer, socket) in [(Level, Level), (Level, Edge), (Edge, Level), (Edge, Edge)] {
        let shape = Shape { outer: Some(outer), sockets: 1, socket };
        for (inside, outside) in [WAYS[0], WAYS[1], (Way::Poll, Way::Wait), WAYS[2]] {
            let sets = Sets::new(shape, &pairs);
            let direct = sleeper(inside, sets.inner[0], COMES_MS);
            let around = sleeper(outside, sets.top, if socket == Level { COMES_MS } else { IN_VAIN_MS as i32 });
            arrive(&mut pairs, shape);
            assert_eq!(direct.join(), 1, "{shape:?}, {inside:?} inside, {outside:?} outside");
            let told = around.join();
            assert!(socket == Edge || told == 1, "{shape:?}, {inside:?} inside, {outside:?} outside: {told}");
            drain(&mut pairs, shape);
        }
    }
}

/// Each EPOLL_CTL_MOD of a readable socket is one more edge, also for a thread that is about to sleep.
fn armed_again() {
    const ROUNDS: usize = 3000;
    let (mut a, mut b) = link::own_pair(V4);
    let set = Epoll::new();
    set.add(b.fd(), IN | ET);
    a.send(1);
    b.rx.await_bytes(1);
    let (armed, told) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|s| {
        s.spawn(|| {
            for round in 1..=ROUNDS {
                // At least: if the connection changes its carrier at that moment, the edge may be reported twice.
                until("the edge was told", || told.load(Ordering::SeqCst) >= round);
                set.modify(b.fd(), IN | ET);
                armed.store(round, Ordering::SeqCst);
            }
        });
        for round in 1..=ROUNDS {
            assert_eq!(set.mask_of(b.fd(), COMES_MS), IN, "edge {round}");
            told.store(round, Ordering::SeqCst);
            // Every second time the wait begins before the socket is rearmed.
            if round % 2 == 0 {
                until("armed", || armed.load(Ordering::SeqCst) >= round);
            }
        }
    });
    b.recv(1);
}

/// Looks without pauses: the condition holds within microseconds.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "not within ten seconds: {what}");
        std::thread::yield_now();
    }
}

/// Ten threads sleep in one set with ten edge-triggered sockets, and take one event each: all ten are woken.
fn ten_threads() {
    const THREADS: usize = 10;
    let mut pairs: Vec<(End, End)> = (0..THREADS as u64).map(|i| link::numbered_pair(V4, i)).collect();
    let set = Epoll::new();
    pairs.iter().for_each(|(_, b)| set.add(b.fd(), IN | ET));
    for round in 0..60 {
        let sleepers: Vec<_> =
            (0..THREADS).map(|_| std::thread::spawn(move || set.try_wait(1, COMES_MS).expect("epoll_wait"))).collect();
        // In some rounds the threads are asleep, in others on their way to sleep.
        std::thread::sleep(Duration::from_micros(round * 50));
        pairs.iter_mut().for_each(|(a, _)| a.send(1));
        let told: Vec<Fd> =
            sleepers.into_iter().flat_map(|t| t.join().expect("the thread")).map(|(_, fd)| fd as Fd).collect();
        assert_eq!(told.len(), THREADS, "round {round}: every thread was woken");
        // A connection that changes its carrier at that moment may be reported twice; then another one is still to be reported.
        let left = set.wait(0);
        let lost = |fd: Fd| !told.contains(&fd) && left.iter().all(|event| event.1 != fd as u64);
        assert!(!pairs.iter().any(|(_, b)| lost(b.fd())), "round {round}: told {told:?}, left {left:?}");
        pairs.iter_mut().for_each(|(_, b)| b.recv(1));
    }
}

/// Several threads wait with timeouts that pass all the time: no arrival is lost in a wait that has just ended.
fn beside_timeout() {
    const ROUNDS: usize = 400;
    let (mut a, b) = link::own_pair(V4);
    fds::set_nonblocking(b.fd(), true);
    let set = Epoll::new();
    set.add(b.fd(), IN | ET);
    let got = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for ms in [1, 0, 2] {
            let (got, fd) = (&got, b.fd());
            s.spawn(move || {
                while got.load(Ordering::SeqCst) < ROUNDS {
                    for _ in set.wait(ms) {
                        while let Ok(n) = io::read(fd, &mut [0; 4]) {
                            got.fetch_add(n, Ordering::SeqCst);
                        }
                    }
                    std::thread::yield_now();
                }
            });
        }
        for round in 1..=ROUNDS {
            a.send(1);
            eventually("the arrival is told", || got.load(Ordering::SeqCst) == round);
        }
    });
}
