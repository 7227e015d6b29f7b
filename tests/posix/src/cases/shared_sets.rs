//! Epoll sets that parent and child both use: each event is reported to one of the two, and none is lost.

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::sys::cpu::eventually;
use crate::sys::epoll::{ET, EXCLUSIVE, Epoll, IN, ONESHOT, OUT, RDHUP};
use crate::sys::net::Family::V4;
use crate::sys::process::{Child, in_child};
use crate::sys::{Fd, fds, io, net, poll};
use std::os::unix::process::CommandExt;
use std::process::Command;

pub const CASES: &[Case] = &[
    case("shared_sets.child_hears_what_its_parent_adds", || filled_by_parent(IN)),
    case("shared_sets.child_hears_what_its_parent_adds_by_edge", || filled_by_parent(IN | ET)),
    case("shared_sets.parent_hears_what_its_child_adds", filled_by_child),
    case("shared_sets.both_sleep_there", both_sleep),
    case("shared_sets.parent_sleeps_there_before_its_child", parent_first),
    case("shared_sets.idle_child_changes_nothing", idle_child),
    case("shared_sets.a_set_without_the_child_uses_rings_again", after_the_child),
    case("shared_sets.child_closes_the_set_first", || child_closes(|set, end| [set.fd, end.fd()])),
    case("shared_sets.child_closes_the_connection_first", || child_closes(|set, end| [end.fd(), set.fd])),
    case("shared_sets.end_after_a_child_is_told", end_after_a_child),
    case("shared_sets.space_after_a_child_is_told", space_after_a_child),
    case("shared_sets.edge_of_a_listener_after_a_child_is_told", listener_after_a_child),
    case("shared_sets.one_shot_after_a_child_has_used_the_set", one_shot_after_a_child),
    case("shared_sets.children_that_die_at_once_leave_the_set", after_dead_children),
    case("shared_sets.a_program_that_a_child_becomes_has_no_set", || child_becomes(|_| sleep())),
    case("shared_sets.a_program_that_a_child_becomes_closes_the_set", || child_becomes(closes)),
];

/// Result of a wait of `ms`, as a byte: the event's data, or 0.
fn tells(set: Epoll, ms: i32) -> u8 {
    set.wait(ms).first().map_or(0, |e| e.1 as u8)
}

fn add(set: Epoll, end: &End, mask: u32, data: u64) {
    set.control(libc::EPOLL_CTL_ADD, end.fd(), mask, data).expect("EPOLL_CTL_ADD");
}

/// A pipe that both processes hold.
struct Line(Fd, Fd);

impl Line {
    fn new() -> Line {
        let (read, write) = fds::pipe(libc::O_CLOEXEC);
        Line(read, write)
    }

    fn tell(&self, byte: u8) {
        assert_eq!(io::write(self.1, &[byte]), Ok(1));
    }

    /// The next byte; 0: none came within five seconds.
    fn hear(&self) -> u8 {
        let mut byte = [0];
        if poll::events_of(self.0, libc::POLLIN, 5000) != 0 {
            assert_eq!(io::read(self.0, &mut byte), Ok(1));
        }
        byte[0]
    }
}

/// A child that waits for the set on command, and reports the wait's result.
fn waiting_child(set: Epoll, ms: i32) -> (Child, Line, Line) {
    let (go, told) = (Line::new(), Line::new());
    let child = in_child(|| {
        while go.hear() == b'w' {
            told.tell(tells(set, ms));
        }
    });
    (child, go, told)
}

/// A set with a connection of ours in it, for which a wait has been made.
fn used_set() -> (Epoll, End, End) {
    let (end, other) = link::own_pair(V4);
    let set = Epoll::new();
    add(set, &end, IN, 1);
    assert_eq!(tells(set, 0), 0);
    (set, end, other)
}

/// A connection that has data 7 in the set, and its peer.
fn new_in(set: Epoll, mask: u32) -> (End, End) {
    let (new, peer) = link::numbered_pair(V4, 1);
    add(set, &new, mask, 7);
    (new, peer)
}

fn told_of(set: Epoll, new: &mut End, peer: &mut End) {
    peer.send(100);
    assert_eq!(tells(set, 5000), 7);
    new.recv(100);
}

/// Only this process has the set. The connection has time to change to rings; the later bytes must go there.
fn goes_by_ring(set: Epoll, new: &mut End, peer: &mut End) {
    for _ in 0..50 {
        told_of(set, new, peer);
        crate::sys::cpu::sleep_ms(1);
    }
    for _ in 0..30 {
        peer.send(10_000);
        new.recv(10_000);
    }
}

/// The child has no descriptor for the connection; it gets the event all the same, as the set is shared.
fn filled_by_parent(mask: u32) {
    let (set, _end, _other) = used_set();
    let (child, go, told) = waiting_child(set, 5000);
    let (mut new, mut peer) = new_in(set, mask);
    for round in 0..5 {
        peer.send(10);
        go.tell(b'w');
        assert_eq!(told.hear(), 7, "round {round}: the child");
        if mask & ET == 0 {
            assert_eq!(tells(set, 5000), 7, "round {round}: the parent");
        }
        new.recv(10);
    }
    go.tell(b'q');
    child.succeed();
}

fn filled_by_child() {
    let (set, _end, _other) = used_set();
    let (go, told) = (Line::new(), Line::new());
    let child = in_child(|| {
        let (mut new, mut peer) = new_in(set, IN);
        assert_eq!(tells(set, 0), 0);
        while go.hear() == b's' {
            peer.send(10);
            told.tell(1);
            assert_eq!(go.hear(), b'r');
            new.recv(10);
            told.tell(1);
        }
    });
    for round in 0..5 {
        for (order, ms, expected) in [(b's', 5000, 7), (b'r', 0, 0)] {
            go.tell(order);
            assert_eq!(told.hear(), 1);
            assert_eq!(tells(set, ms), expected, "round {round}");
        }
    }
    go.tell(b'q');
    child.succeed();
}

/// Threads of both processes sleep in the edge-triggered set; each arrival is reported to one of them.
fn both_sleep() {
    const ROUNDS: usize = 30;
    let (set, _end, _other) = used_set();
    let told = Line::new();
    let wait = || loop {
        match tells(set, 20_000) {
            7 => told.tell(7),
            quit => return assert_eq!(quit, 9),
        }
    };
    let child = in_child(wait);
    let (mut new, mut peer) = new_in(set, IN | ET);
    std::thread::scope(|s| {
        s.spawn(wait);
        for round in 0..ROUNDS {
            peer.send(10);
            assert_eq!(told.hear(), 7, "round {round}: nobody was told");
            new.recv(10);
        }
        let quit = Line::new();
        quit.tell(1);
        set.control(libc::EPOLL_CTL_ADD, quit.0, IN, 9).expect("EPOLL_CTL_ADD");
        child.succeed();
    });
}

/// The parent sleeps in its set, with a connection that the child does not know, when the child begins to wait there.
fn parent_first() {
    let (set, _end, _other) = used_set();
    let (child, go, told) = waiting_child(set, 5000);
    let (mut new, mut peer) = new_in(set, IN);
    peer.send(10);
    assert_eq!(tells(set, 5000), 7);
    new.recv(10);
    std::thread::scope(|s| {
        let sleeper = s.spawn(|| tells(set, 10_000));
        crate::sys::cpu::sleep_ms(50);
        go.tell(b'w');
        crate::sys::cpu::sleep_ms(50);
        peer.send(10);
        assert_eq!(told.hear(), 7, "the child");
        assert_eq!(sleeper.join().expect("the sleeper"), 7, "the parent");
    });
    new.recv(10);
    go.tell(b'q');
    child.succeed();
}

/// A child that inherits the set and does not use it, as most children do.
fn idle_child() {
    let (set, mut end, mut other) = used_set();
    let (child, go, _told) = waiting_child(set, 0);
    let (mut new, mut peer) = new_in(set, IN);
    for _ in 0..50 {
        peer.send(100);
        assert_eq!(tells(set, 5000), 7);
        new.recv(100);
        other.send(100);
        assert_eq!(tells(set, 5000), 1);
        end.recv(100);
    }
    go.tell(b'q');
    child.succeed();
}

/// While a child has the set, new members stay on the kernel. They change to rings once the child has closed the set.
fn after_the_child() {
    let (set, _end, _other) = used_set();
    let (child, go, _told) = waiting_child(set, 0);
    let (mut new, mut peer) = new_in(set, IN);
    told_of(set, &mut new, &mut peer);
    go.tell(b'q');
    child.succeed();
    goes_by_ring(set, &mut new, &mut peer);
}

/// A child closes what it has inherited, as before it becomes another program. Its parent has no event of that, and goes on to hear of
/// its connection.
fn child_closes(order: fn(Epoll, &End) -> [Fd; 2]) {
    let (mut end, mut other) = link::own_pair(V4);
    let set = Epoll::new();
    add(set, &end, IN | OUT | ET, 1);
    for _ in 0..3 {
        while !set.wait(0).is_empty() {}
        in_child(|| {
            for fd in order(set, &end) {
                fds::close(fd).expect("close");
            }
        })
        .succeed();
        assert_eq!(set.wait(0), [], "nothing has happened to the connection");
        for _ in 0..5 {
            other.send(100);
            assert!(set.wait(5000).iter().any(|event| event.0 & IN != 0), "the parent hears of each arrival");
            end.recv(100);
        }
    }
}

/// More children than the family has places; most die before libc has run any handler of theirs.
fn after_dead_children() {
    let (set, mut end, mut other) = used_set();
    for _ in 0..100 {
        let child = in_child(|| {
            loop {
                crate::sys::cpu::sleep_ms(1000);
            }
        });
        crate::sys::signal::send_to(child.pid, libc::SIGKILL);
        assert_eq!(child.wait(), crate::sys::process::Ended::Signal(libc::SIGKILL));
    }
    let (mut new, mut peer) = new_in(set, IN);
    goes_by_ring(set, &mut new, &mut peer);
    in_child(|| ()).succeed();
    other.send(100);
    assert_eq!(tells(set, 5000), 1);
    end.recv(100);
}

/// A child executes another program, which does not have the set, or closes it as soon as it begins.
fn child_becomes(program: fn(Epoll) -> Command) {
    let (set, _end, _other) = used_set();
    let child = in_child(|| {
        let mut command = program(set);
        let error = command.exec();
        panic!("{command:?}: {error}");
    });
    eventually("the child is another program", || {
        std::fs::read_to_string(format!("/proc/{}/comm", child.pid)).is_ok_and(|name| name.trim() == "sleep")
    });
    let (mut new, mut peer) = new_in(set, IN);
    goes_by_ring(set, &mut new, &mut peer);
    crate::sys::signal::send_to(child.pid, libc::SIGKILL);
    assert_eq!(child.wait(), crate::sys::process::Ended::Signal(libc::SIGKILL));
}

fn sleep() -> Command {
    let mut command = Command::new("sleep");
    command.arg("20");
    command
}

/// As Erlang's machine does: the set is not close-on-exec, and a program that its child becomes closes all that it has inherited.
fn closes(set: Epoll) -> Command {
    fds::set_cloexec(set.fd, false);
    let mut command = Command::new("bash");
    command.args(["-c", &format!("exec {}>&-; exec sleep 20", set.fd)]);
    command
}

/// TCP state of net/tcp_states.h.
const TCP_CLOSE_WAIT: u8 = 8;

/// The first wait after a child has ended reports events of the time before.
fn end_after_a_child() {
    let (set, end, other) = used_set();
    set.control(libc::EPOLL_CTL_MOD, end.fd(), IN | RDHUP, 1).expect("EPOLL_CTL_MOD");
    in_child(|| ()).succeed();
    net::shutdown(other.fd(), libc::SHUT_WR).expect("shutdown");
    // No wait of this process has looked at it since.
    eventually("the end has come", || net::tcp_info(end.fd()).tcpi_state == TCP_CLOSE_WAIT);
    for _ in 0..2 {
        assert_eq!(set.wait(1000), [(IN | RDHUP, 1)]);
    }
}

fn space_after_a_child() {
    let (set, mut end, mut other) = used_set();
    fds::set_nonblocking(end.fd(), true);
    let filled = end.tx.fill();
    set.control(libc::EPOLL_CTL_MOD, end.fd(), OUT | ET, 1).expect("EPOLL_CTL_MOD");
    assert_eq!(set.wait(0), []);
    in_child(|| ()).succeed();
    other.recv(filled);
    eventually("there is space", || poll::events_of(end.fd(), libc::POLLOUT, 0) != 0);
    assert_eq!(set.wait(1000), [(OUT, 1)]);
}

fn listener_after_a_child() {
    let (set, _end, _other) = used_set();
    let listener = link::Listener::new(V4);
    set.control(libc::EPOLL_CTL_ADD, listener.fd, IN | ET | EXCLUSIVE, 9).expect("EPOLL_CTL_ADD");
    assert_eq!(tells(set, 0), 0);
    in_child(|| ()).succeed();
    let client = link::connect(&listener.addr(), V4);
    assert_eq!(tells(set, 1000), 9);
    assert_eq!(tells(set, 0), 0, "by edge: once");
    fds::close(client).expect("close");
}

fn one_shot_after_a_child() {
    let (set, _end, _other) = used_set();
    let child = in_child(|| assert_eq!(tells(set, 0), 0));
    child.succeed();
    assert_eq!(tells(set, 0), 0);
    let (mut new, mut peer) = new_in(set, IN | ONESHOT);
    for _ in 0..5 {
        told_of(set, &mut new, &mut peer);
        assert_eq!(tells(set, 0), 0);
        set.control(libc::EPOLL_CTL_MOD, new.fd(), IN | ONESHOT, 7).expect("EPOLL_CTL_MOD");
    }
}
