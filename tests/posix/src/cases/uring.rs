//! io_uring through the libc function `syscall`: a connection that an entry touches goes to the kernel, all others stay.

use std::sync::atomic::{AtomicBool, Ordering};

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::sys::cpu::sleep_ms;
use crate::sys::epoll::{self, Epoll, IN, OUT};
use crate::sys::errno::{EBADF, EEXIST, EINVAL, ENOENT};
use crate::sys::net::Family::V4;
use crate::sys::uring::{self, Entry, Ring};
use crate::sys::{Fd, fds, io, net, passing};

/// Bytes that another connection of the process carries meanwhile.
const BESIDES: usize = 50_000;
pub const CASES: &[Case] = &[
    case("uring.reads_and_writes", || beside_another(reads_and_writes)).reason("kernel-feature"),
    case("uring.poll_and_close", || beside_another(poll_and_close)).reason("kernel-feature"),
    case("uring.ring_without_an_array", || beside_another(without_array)).reason("kernel-feature"),
    case("uring.what_was_unread_before", || beside_another(unread_before)).reason("kernel-feature"),
    case("uring.epoll_ctl_keeps_the_ring", epoll_ctl),
    case("uring.errors_of_epoll_ctl", errors_of_epoll_ctl),
    case("uring.epoll_ctl_in_a_chain", || beside_another(in_a_chain)).reason("kernel-feature"),
    case("uring.epoll_ctl_of_a_set_out_of_sight", || beside_another(unknown_set)).reason("foreign"),
    case("uring.polls_a_set", || beside_another(polls_a_set)).reason("kernel-feature"),
    case("uring.polls_a_set_with_a_fired_one_shot", || beside_another(polls_fired)).reason("kernel-feature"),
    case("uring.polls_a_set_in_which_a_thread_waits", polls_beside_a_wait).reason("kernel-feature"),
    case("uring.passes_a_descriptor", || beside_another(passes)).reason("passed"),
    case("uring.nothing_but_other_files", other_files),
    case("uring.closed_and_copied_rings", closed_rings),
    case("uring.many_rings", many_rings),
    case("uring.kernel_that_polls", polling_kernel).reason("kernel-feature"),
    case("uring.in_a_forked_child", in_a_child),
];

/// With a second connection that no entry touches: it stays in its ring.
pub(super) fn beside_another(calls: fn(&mut End, &mut End)) {
    let (mut client, mut server) = link::own_pair(V4);
    let (mut third, mut fourth) = link::numbered_pair(V4, 1);
    calls(&mut client, &mut server);
    goes_on(&mut third, &mut fourth);
}

pub(super) fn goes_on(client: &mut End, server: &mut End) {
    for _ in 0..BESIDES / 500 {
        client.send(500);
        server.recv(500);
        server.send(500);
        client.recv(500);
    }
}

pub(super) fn write(ring: &mut Ring, end: &mut End, n: usize) {
    let bytes = end.tx.upcoming(n);
    assert_eq!(ring.write(end.fd(), &bytes), Ok(n));
    end.tx.sent(n);
}

fn read(ring: &mut Ring, end: &mut End, n: usize) {
    let mut left = n;
    while left > 0 {
        let mut buf = vec![0; left];
        let got = ring.read(end.fd(), &mut buf).expect("read");
        assert!(got > 0);
        end.rx.arrived(&buf[..got]);
        left -= got;
    }
}

/// Calls and entries alternate, in both directions.
fn reads_and_writes(client: &mut End, server: &mut End) {
    let mut ring = Ring::new();
    for _ in 0..20 {
        write(&mut ring, client, 700);
        server.recv(700);
        server.send(900);
        read(&mut ring, client, 900);
        client.send(10);
        server.recv(10);
        server.send(10);
        client.recv(10);
    }
}

fn poll_and_close(client: &mut End, server: &mut End) {
    let mut ring = Ring::new();
    for _ in 0..5 {
        server.send(50);
        assert_eq!(ring.poll(client.fd(), libc::POLLIN), Ok(libc::POLLIN as usize));
        client.recv(50);
    }
    client.send(10);
    assert_eq!(ring.close(client.fd()), Ok(0));
    assert!(!fds::is_open(client.fd()));
    server.recv(10);
    server.rx.expect_eof();
    // The number belongs to another file now.
    let (out, into) = fds::pipe(0);
    assert!([out, into].contains(&client.fd()));
    assert_eq!(io::write(into, b"pipe"), Ok(4));
    assert_eq!(io::read(out, &mut [0; 8]), Ok(4));
}

/// As libuv makes its rings (IORING_SETUP_NO_SQARRAY): the position of an entry is its index.
fn without_array(client: &mut End, server: &mut End) {
    let mut ring = match Ring::with(uring::NO_SQARRAY) {
        Err(EINVAL) => Ring::new(), // before Linux 6.6
        ring => ring.expect("io_uring_setup"),
    };
    for _ in 0..20 {
        write(&mut ring, client, 100);
        server.recv(100);
    }
}

/// Bytes were in a ring when the kernel was asked to read.
fn unread_before(client: &mut End, server: &mut End) {
    let mut ring = Ring::new();
    server.send(3000);
    client.rx.await_bytes(3000);
    read(&mut ring, client, 3000);
    client.send(20_000);
    write(&mut ring, client, 1000);
    server.recv(21_000);
}

fn event(events: u32, data: u64) -> epoll_event {
    epoll_event { events, u64: data }
}

/// As in libuv: an event loop that changes its set by entries, several at once, and waits by epoll_wait.
fn epoll_ctl() {
    let (mut client, mut server) = link::own_pair(V4);
    let (mut third, mut fourth) = link::numbered_pair(V4, 1);
    let (out, into) = fds::pipe(0);
    let (mut ring, set) = (Ring::new(), Epoll::new());
    let events = [event(IN, 1), event(IN | OUT, 2), event(IN, 3)];
    let added = ring.run_all(&[
        Ring::interest(set.fd, EPOLL_CTL_ADD, client.fd(), &events[0]),
        Ring::interest(set.fd, EPOLL_CTL_ADD, third.fd(), &events[1]),
        Ring::interest(set.fd, EPOLL_CTL_ADD, out, &events[2]),
    ]);
    assert_eq!(added, [Ok(0); 3]);
    assert_eq!(set.wait(1000), [(OUT, 2)]);
    let changed = event(IN, 4);
    let modified = ring.run_all(&[
        Ring::interest(set.fd, EPOLL_CTL_MOD, third.fd(), &changed),
        Entry { opcode: uring::OP_NOP, ..Entry::default() },
    ]);
    assert_eq!(modified, [Ok(0); 2]);
    assert_eq!(set.wait(0), []);
    for _ in 0..BESIDES / 500 {
        server.send(500);
        assert_eq!(set.wait(5000), [(IN, 1)]);
        client.recv(500);
        fourth.send(100);
        assert_eq!(set.wait(5000), [(IN, 4)]);
        third.recv(100);
        client.send(500);
        server.recv(500);
    }
    assert_eq!(io::write(into, b"x"), Ok(1));
    assert_eq!(set.wait(5000), [(IN, 3)]);
    let deleted = ring.run_all(&[
        Ring::interest(set.fd, EPOLL_CTL_DEL, client.fd(), &changed),
        Ring::interest(set.fd, EPOLL_CTL_DEL, out, &changed),
    ]);
    assert_eq!(deleted, [Ok(0); 2]);
    server.send(10);
    assert_eq!(set.wait(50), []);
    client.recv(10);
}

/// The same errors as from epoll_ctl(2), also for a connection that was removed from a set and may be added again.
fn errors_of_epoll_ctl() {
    let (mut client, mut server) = link::own_pair(V4);
    let (mut ring, set) = (Ring::new(), Epoll::new());
    let (fd, wanted) = (client.fd(), event(IN, 7));
    let mut ask = |op, fd: Fd| ring.run(Ring::interest(set.fd, op, fd, &wanted));
    assert_eq!(ask(EPOLL_CTL_MOD, fd), Err(ENOENT));
    assert_eq!(ask(EPOLL_CTL_DEL, fd), Err(ENOENT));
    assert_eq!(ask(EPOLL_CTL_ADD, fd), Ok(0));
    assert_eq!(ask(EPOLL_CTL_ADD, fd), Err(EEXIST));
    assert_eq!(ask(EPOLL_CTL_DEL, fd), Ok(0));
    assert_eq!(ask(EPOLL_CTL_MOD, fd), Err(ENOENT));
    assert_eq!(ask(EPOLL_CTL_DEL, fd), Err(ENOENT));
    assert_eq!(ask(EPOLL_CTL_ADD, 9999), Err(EBADF));
    assert_eq!(ask(EPOLL_CTL_ADD, set.fd), Err(EINVAL));
    assert_eq!(ask(99, fd), Err(EINVAL));
    assert_eq!(ask(EPOLL_CTL_ADD, fd), Ok(0));
    server.send(1);
    assert_eq!(set.wait(5000), [(IN, 7)]);
    client.recv(1);
    goes_on(&mut client, &mut server);
}

/// The kernel decides when a linked entry runs, and whether it does.
fn in_a_chain(client: &mut End, server: &mut End) {
    let (mut ring, set) = (Ring::new(), Epoll::new());
    let wanted = event(IN, 7);
    let answers = ring.run_all(&[
        Entry { opcode: uring::OP_NOP, flags: uring::LINK, ..Entry::default() },
        Ring::interest(set.fd, EPOLL_CTL_ADD, client.fd(), &wanted),
    ]);
    assert_eq!(answers, [Ok(0); 2]);
    server.send(1);
    assert_eq!(set.wait(5000), [(IN, 7)]);
    client.recv(1);
    assert_eq!(set.wait(0), []);
}

fn unknown_set(client: &mut End, server: &mut End) {
    let (mut ring, set) = (Ring::new(), Epoll { fd: crate::sys::bare::epoll_create() });
    let wanted = event(IN, 7);
    assert_eq!(ring.run(Ring::interest(set.fd, EPOLL_CTL_ADD, client.fd(), &wanted)), Ok(0));
    server.send(1);
    assert_eq!(set.wait(5000), [(IN, 7)]);
    client.recv(1);
}

/// The kernel itself waits for a set, so all members must be on the kernel.
fn polls_a_set(client: &mut End, server: &mut End) {
    let (mut ring, set) = (Ring::new(), Epoll::new());
    set.add(client.fd(), IN);
    assert_eq!(set.wait(0), []);
    server.send(1);
    assert_eq!(ring.poll(set.fd, libc::POLLIN), Ok(libc::POLLIN as usize));
    assert_eq!(set.wait(0), [(IN, client.fd() as u64)]);
    client.recv(1);
    assert_eq!(set.wait(0), []);
    client.send(1);
    server.recv(1);
    set.modify(client.fd(), OUT | epoll::ET);
    assert_eq!(set.wait(1000), [(OUT, client.fd() as u64)]);
}

/// A one-shot registration that has fired stays silent, and can be armed again.
fn polls_fired(client: &mut End, server: &mut End) {
    let (mut ring, set) = (Ring::new(), Epoll::new());
    let (out, into) = fds::pipe(0);
    set.add(client.fd(), IN | epoll::ONESHOT);
    assert_eq!(set.wait(0), []);
    server.send(1);
    assert_eq!(set.wait(5000), [(IN, client.fd() as u64)]);
    set.add(out, IN);
    assert_eq!(io::write(into, b"x"), Ok(1));
    assert_eq!(ring.poll(set.fd, libc::POLLIN), Ok(libc::POLLIN as usize));
    assert_eq!(io::read(out, &mut [0]), Ok(1));
    server.send(1);
    client.rx.await_bytes(2);
    assert_eq!(set.wait(0), []);
    set.modify(client.fd(), IN | epoll::ONESHOT);
    assert_eq!(set.wait(5000), [(IN, client.fd() as u64)]);
    client.recv(2);
}

/// Another thread waits in the set while its connection goes to the kernel, which takes long, since the kernel has no room for
/// all unread bytes: that thread gets the program's own events only.
fn polls_beside_a_wait() {
    let (mut end, mut peer) = link::client(V4);
    net::set_option(end.fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &16_384).expect("SO_RCVBUF");
    peer.set_option(libc::SOL_SOCKET, libc::SO_SNDBUF, 16_384);
    let (mut ring, set) = (Ring::new(), Epoll::new());
    set.add(end.fd(), IN);
    assert_eq!(set.wait(0), []);
    let filled = peer.call("fill", &[]);
    peer.start("recv", &[1]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(set.wait(5000), [(IN, end.fd() as u64)]);
                sleep_ms(1);
            }
        });
        assert_eq!(ring.poll(set.fd, libc::POLLIN), Ok(libc::POLLIN as usize));
        is_over.store(true, Ordering::Relaxed);
    });
    end.recv(filled as usize);
    end.send(1);
    peer.finish();
    assert_eq!(set.wait(0), []);
}

/// A message that passes the connection to another process; here it comes back at once.
fn passes(client: &mut End, server: &mut End) {
    let (near, far) = fds::unix_pair();
    let mut ring = Ring::new();
    passing::with_message(client.fd(), |message| {
        let address = std::ptr::from_ref(message) as u64;
        let entry = Entry { opcode: uring::OP_SENDMSG, fd: near, address, len: 1, ..Entry::default() };
        assert_eq!(ring.run(entry), Ok(1));
    });
    let mut copy = End::numbered(passing::receive_fd(far), crate::end::Side::Client, 0);
    (copy.tx.at, copy.rx.at) = (client.tx.at, client.rx.at);
    copy.send(100);
    server.recv(100);
    server.send(100);
    copy.recv(100);
    copy.close();
}

/// Entries that concern no connection, although some of their numbers look like descriptors.
fn other_files() {
    let (mut client, mut server) = link::own_pair(V4);
    let mut ring = Ring::new();
    let file = crate::sys::files::holding(b"some text");
    let mut buf = [0; 4];
    assert_eq!(ring.run(Entry { offset: 0, ..Ring::reading(file, &mut buf) }), Ok(4));
    assert_eq!(&buf, b"some");
    assert_eq!(ring.run(Entry { opcode: uring::OP_NOP, fd: client.fd(), ..Entry::default() }), Ok(0));
    assert_eq!(ring.close(file), Ok(0));
    goes_on(&mut client, &mut server);
}

/// Rings are closed, duplicated, and made again under the same numbers.
fn closed_rings() {
    let (mut client, mut server) = link::own_pair(V4);
    for _ in 0..300 {
        let mut ring = Ring::new();
        let other = fds::dup(ring.fd).expect("dup") as Fd;
        fds::close(ring.fd).expect("close");
        ring.fd = other;
        assert_eq!(ring.run(Entry { opcode: uring::OP_NOP, ..Entry::default() }), Ok(0));
        fds::close(other).expect("close");
        ring.unmap();
    }
    goes_on(&mut client, &mut server);
}

/// More rings than the library follows: everything still works.
fn many_rings() {
    let (mut client, mut server) = link::own_pair(V4);
    let mut rings: Vec<Ring> = (0..300).map(|_| Ring::new()).collect();
    for ring in rings.iter_mut().rev().take(3) {
        write(ring, &mut client, 10);
        server.recv(10);
    }
    goes_on(&mut client, &mut server);
}

/// A kernel thread takes entries at any time: no connection of the process can stay in a ring.
fn polling_kernel() {
    let (mut client, mut server) = link::own_pair(V4);
    server.send(100);
    client.rx.await_bytes(100);
    let ring = Ring::with(uring::SQPOLL).expect("a ring with a thread of the kernel");
    client.recv(100);
    goes_on(&mut client, &mut server);
    fds::close(ring.fd).expect("close");
}

/// A child uses the ring and the connection of its parent.
fn in_a_child() {
    let (mut client, mut server) = link::own_pair(V4);
    let mut ring = Ring::new();
    let child = crate::sys::process::in_child(|| write(&mut ring, &mut client, 500));
    server.recv(500);
    child.succeed();
    client.tx.sent(500);
    client.send(100);
    server.recv(100);
}
