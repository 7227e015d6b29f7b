//! Non-blocking sockets: EAGAIN where a blocking one would sleep, back-pressure, connecting.

use libc::{MSG_DONTWAIT, POLLIN, POLLOUT, SOCK_CLOEXEC, SOCK_NONBLOCK, c_int};

use crate::case::{Case, case};
use crate::end::{End, Tx};
use crate::link::{self, Listener};
use crate::peer::{Peer, Preload};
use crate::rng::{Rng, run_seed};
use crate::sys::epoll::{self, Epoll};
use crate::sys::errno::{EAGAIN, EALREADY, ECONNREFUSED, EINPROGRESS, EISCONN, ENOTCONN, EPIPE};
use crate::sys::net::Addr;
use crate::sys::net::Family::{self, V4, V6};
use crate::sys::select::{self, Bits, Sets};
use crate::sys::{Fd, bare, fds, io, net, poll};
use crate::ways::{receiving, sending};

pub const CASES: &[Case] = &[
    case("nonblocking.every_receive_says_eagain", receives_say_eagain),
    case("nonblocking.every_send_says_eagain", sends_say_eagain).bulk(),
    case("nonblocking.dontwait_on_a_blocking_socket", dontwait),
    case("nonblocking.rwf_nowait", rwf_nowait),
    case("nonblocking.both_write_1_mib_before_either_reads", both_write_first).bulk(),
    case("nonblocking.takes_what_the_kernel_takes_v4", || capacity(V4)).bulk(),
    case("nonblocking.takes_what_the_kernel_takes_v6", || capacity(V6)).bulk(),
    case("nonblocking.takes_what_large_buffers_promise", large_buffers).bulk(),
    case("nonblocking.no_pollout_while_full", no_out_while_full).bulk(),
    case("nonblocking.partial_writes_go_on_exactly", partial_writes).bulk(),
    case("nonblocking.filled_then_waits_only_for_the_answer", waits_for_answer).bulk(),
    case("nonblocking.set_by_fionbio", by_fionbio),
    case("nonblocking.set_by_an_instruction", by_instruction).bulk(),
    case("nonblocking.set_by_socket_and_accept4", by_creation).may("no wait ever sees the socket"),
    case("nonblocking.accept_does_not_inherit", accept_does_not_inherit),
    case("nonblocking.toggled_in_mid_stream", toggled),
    case("nonblocking.connect_in_progress", connect_in_progress),
    case("nonblocking.connect_refused", connect_refused).no_connection(),
];

fn receives_say_eagain() {
    let (mut end, mut peer) = link::client(V4);
    fds::set_nonblocking(end.fd(), true);
    for (name, call) in receiving::ALL.iter().filter(|way| way.0 != "fread") {
        assert_eq!(end.rx.try_recv(10, *call), Err(EAGAIN), "{name}, nothing there");
        peer.send(10);
        end.rx.await_bytes(10);
        assert_eq!(end.rx.try_recv(100, *call), Ok(10), "{name}, ten bytes there");
    }
}

fn sends_say_eagain() {
    let (mut end, mut peer) = link::client(V4);
    fds::set_nonblocking(end.fd(), true);
    let filled = end.tx.fill();
    for (name, call) in sending::ALL.iter().filter(|way| !["fwrite", "aio_write"].contains(&way.0)) {
        assert_eq!(end.tx.try_send(10, *call), Err(EAGAIN), "{name}");
    }
    peer.recv(filled);
    link::warm_up(&mut end, &mut peer);
}

/// A program that has filled its buffers and then waits without POLLOUT must still have its bytes delivered.
fn waits_for_answer() {
    let (mut end, mut peer) = link::client(V4);
    let epoll = Epoll::new();
    epoll.add(end.fd(), epoll::IN);
    let waits: [(&str, &dyn Fn(Fd)); 4] = [
        ("poll", &|fd| assert_eq!(poll::events_of(fd, POLLIN, 10_000), POLLIN)),
        ("select", &|fd| {
            let mut sets = Sets { read: Bits::of(&[fd]), ..Sets::default() };
            assert_eq!(select::select(fd + 1, &mut sets, 10_000).0, Ok(1));
        }),
        ("epoll_wait", &|fd| assert_eq!(epoll.mask_of(fd, 10_000), epoll::IN)),
        ("recv", &|fd| {
            fds::set_nonblocking(fd, false);
            assert_eq!(io::recv(fd, &mut [0], libc::MSG_PEEK), Ok(1));
        }),
    ];
    net::set_option(end.fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &4096).expect("SO_SNDBUF");
    peer.set_option(libc::SOL_SOCKET, libc::SO_RCVBUF, 4096);
    let mut rng = Rng::new(run_seed());
    for round in 0..200 {
        let (name, wait) = waits[round % waits.len()];
        println!("round {round}: {name}");
        fds::set_nonblocking(end.fd(), true);
        assert_eq!(poll::events_of(end.fd(), POLLOUT, 5000), POLLOUT, "the peer has read everything");
        let mut unread = take_what_goes(&mut end.tx, &mut rng);
        // A part of the bytes is read, so that the carrier changes with buffers that are nearly full.
        for _ in 0..4 {
            if unread == 0 {
                break; // between two hosts the window opens a moment later
            }
            let part = rng.size(unread as u64);
            peer.recv(part);
            unread = unread - part + take_what_goes(&mut end.tx, &mut rng);
        }
        peer.start("recv", &[unread as u64]);
        peer.start("send", &[10]);
        wait(end.fd());
        end.rx.recv(10);
        peer.finish();
        peer.finish();
    }
}

/// Writes until the first EAGAIN.
fn take_what_goes(tx: &mut Tx, rng: &mut Rng) -> usize {
    let mut n = 0;
    loop {
        match tx.try_send(1 + rng.size(1000), |fd, buf| io::send(fd, buf, libc::MSG_NOSIGNAL)) {
            Ok(done) => n += done,
            Err(EAGAIN) => return n,
            Err(e) => panic!("send: {e:?}"),
        }
    }
}

fn dontwait() {
    let (mut end, mut peer) = link::client(V4);
    let calls: [(&str, crate::end::Recv); 4] = [
        ("recv", |fd, buf| io::recv(fd, buf, MSG_DONTWAIT)),
        ("recvfrom", |fd, buf| io::recvfrom(fd, buf, MSG_DONTWAIT)),
        ("recvmsg", |fd, buf| io::recvmsg(fd, buf, MSG_DONTWAIT)),
        ("recvmmsg", |fd, buf| io::recvmmsg(fd, buf, MSG_DONTWAIT)),
    ];
    for (name, call) in calls {
        assert_eq!(end.rx.try_recv(10, call), Err(EAGAIN), "{name}");
        peer.send(3);
        end.rx.await_bytes(3);
        assert_eq!(end.rx.try_recv(10, call), Ok(3), "{name}");
    }
    assert!(!fds::is_nonblocking(end.fd()), "MSG_DONTWAIT is for one call");
}

fn rwf_nowait() {
    let (mut end, mut peer) = link::client(V4);
    let nowait: crate::end::Recv = |fd, buf| io::preadv2(fd, buf, libc::RWF_NOWAIT);
    assert_eq!(end.rx.try_recv(10, nowait), Err(EAGAIN));
    peer.send(7);
    end.rx.await_bytes(7);
    assert_eq!(end.rx.try_recv(10, nowait), Ok(7));
}

/// One thread has both ends, so nothing is read while it writes.
fn both_write_first() {
    const N: usize = 1 << 20;
    let (mut a, mut b) = link::own_pair(V4);
    for tx in [&mut a.tx, &mut b.tx] {
        fds::set_nonblocking(tx.fd, true);
        write_within(tx, N);
    }
    a.recv(N);
    b.recv(N);
}

/// Writes `n` bytes although nobody reads: EAGAIN may come, but space must come, too.
fn write_within(tx: &mut Tx, n: usize) {
    let goal = tx.at + n as u64;
    while tx.at < goal {
        match tx.try_send(((goal - tx.at) as usize).min(10_000), io::write) {
            Ok(_) => {}
            Err(EAGAIN) => {
                assert_eq!(poll::events_of(tx.fd, POLLOUT, 3000), POLLOUT, "stuck at byte {}", tx.at);
            }
            Err(e) => panic!("{e:?}"),
        }
    }
}

/// The same measurement in a process without preload shows what the kernel takes.
fn capacity(family: Family) {
    let kernel = Peer::spawn(Preload::Stripped).call("capacity", &[family as u64]) as usize;
    let (mut a, mut b) = link::own_pair(family);
    let (there, back) = (a.tx.fill(), b.tx.fill());
    println!("kernel {kernel}, there {there}, back {back}");
    // The kernel's capacity differs from run to run, depending on how the bytes are packed.
    assert!(there * 10 >= kernel * 9, "took {there} bytes where the kernel takes {kernel}");
    assert!(back * 10 >= kernel * 9, "took {back} bytes on the way back where the kernel takes {kernel}");
    b.recv(there);
    a.recv(back);
}

/// With fixed buffers as large as the data, nobody needs to read.
fn large_buffers() {
    const N: usize = 3 << 20;
    let (mut a, mut b) = link::own_pair(V4);
    for fd in [a.fd(), b.fd()] {
        net::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &(N as c_int)).expect("SO_SNDBUF");
        fds::set_nonblocking(fd, true);
    }
    let room = net::int_option(a.fd(), libc::SOL_SOCKET, libc::SO_SNDBUF) as usize / 4;
    write_within(&mut a.tx, room);
    write_within(&mut b.tx, room);
    b.recv(room);
    a.recv(room);
}

fn no_out_while_full() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.add(end.fd(), epoll::OUT);
    for _ in 0..3 {
        assert_eq!(set.mask_of(end.fd(), 1000), epoll::OUT);
        let filled = end.tx.fill();
        assert_eq!(poll::events_of(end.fd(), POLLOUT, 20), 0, "POLLOUT while full");
        assert_eq!(set.mask_of(end.fd(), 20), 0, "EPOLLOUT while full");
        peer.start("recv", &[filled as u64]);
        assert_eq!(poll::events_of(end.fd(), POLLOUT, 5000), POLLOUT, "the peer reads");
        peer.finish();
    }
}

/// Large non-blocking writes to a slow reader: each continues where the last one stopped.
fn partial_writes() {
    const N: u64 = 8 << 20;
    let (mut end, mut peer) = link::client(V4);
    fds::set_nonblocking(end.fd(), true);
    peer.start("sip", &[64, N / 64, 1]);
    let (goal, mut partial) = (end.tx.at + N, 0);
    while end.tx.at < goal {
        let n = ((goal - end.tx.at) as usize).min(1 << 20);
        match end.tx.try_send(n, io::write) {
            Ok(done) => partial += usize::from(done < n),
            Err(EAGAIN) => drop(poll::events_of(end.fd(), POLLOUT, -1)),
            Err(e) => panic!("{e:?}"),
        }
    }
    peer.finish();
    assert!(partial > 0, "no write was partial: the case tested nothing");
}

fn by_instruction() {
    let (mut end, mut peer) = link::client(V4);
    bare::set_nonblocking(end.fd());
    assert_eq!(end.rx.try_recv(10, io::read), Err(EAGAIN));
    let set = bare::epoll_create();
    bare::epoll_add(set, end.fd());
    peer.send(10);
    assert_eq!(bare::epoll_wait(set, 5000).len(), 1, "a wait that the library does not see");
    end.recv(10);
    let (mut end, mut peer) = link::client(V6);
    bare::set_nonblocking(end.fd());
    let filled = end.tx.fill();
    peer.recv(filled);
}

fn by_fionbio() {
    let (mut end, mut peer) = link::client(V4);
    for on in [1, 0] {
        fds::ioctl_int(end.fd(), libc::FIONBIO, on).expect("FIONBIO");
        assert_eq!(fds::is_nonblocking(end.fd()), on == 1);
        if on == 1 {
            assert_eq!(end.rx.try_recv(10, io::read), Err(EAGAIN));
        }
    }
    peer.after(20).start("send", &[10]);
    assert_eq!(end.rx.try_recv(10, io::read), Ok(10), "blocking again");
    peer.finish();
}

/// Warm up a connection whose two ends this thread holds, both non-blocking.
fn warm_nonblocking(client: crate::sys::Fd, server: crate::sys::Fd) -> (End, End) {
    let mut a = End::new(client, crate::end::Side::Client);
    let mut b = End::new(server, crate::end::Side::Server);
    // As every event loop does: waits for a non-blocking socket.
    for fd in [client, server] {
        assert_eq!(poll::events_of(fd, POLLOUT, 2000), POLLOUT);
    }
    link::warm_up_pair(&mut a, &mut b);
    (a, b)
}

fn by_creation() {
    let listener = Listener::with(V4, SOCK_NONBLOCK, 8);
    assert_eq!(net::accept4(listener.fd, 0), Err(EAGAIN));
    let client = net::socket(V4, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_eq!(net::connect(client, &listener.addr()), Err(EINPROGRESS));
    assert_eq!(poll::events_of(listener.fd, libc::POLLIN, 2000), libc::POLLIN);
    let server = net::accept4(listener.fd, SOCK_NONBLOCK | SOCK_CLOEXEC).expect("accept4") as c_int;
    assert!(fds::is_nonblocking(client) && fds::is_nonblocking(server));
    assert_eq!(fds::fcntl(server, libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC as usize));
    let (mut a, mut b) = warm_nonblocking(client, server);
    for end in [&mut a, &mut b] {
        assert_eq!(end.rx.try_recv(1, io::read), Err(EAGAIN));
    }
}

fn accept_does_not_inherit() {
    let listener = Listener::with(V4, SOCK_NONBLOCK, 8);
    let client = link::connect(&listener.addr(), V4);
    let (server, from) = net::accept(listener.fd);
    let server = server.expect("accept") as c_int;
    assert!(!fds::is_nonblocking(server));
    assert_eq!(fds::fcntl(server, libc::F_GETFD, 0), Ok(0));
    assert_eq!(from.bytes(), net::getsockname(client).bytes(), "accept reports who connected");
    warm_nonblocking(client, server);
}

fn toggled() {
    let (mut end, mut peer) = link::client(V4);
    for round in 0..20 {
        fds::set_nonblocking(end.fd(), round % 2 == 0);
        if round % 2 == 0 {
            assert_eq!(end.rx.try_recv(10, io::read), Err(EAGAIN));
        }
        peer.start("echo", &[1, 1000]);
        end.send(1000);
        end.recv(1000);
        peer.finish();
    }
}

fn connect_in_progress() {
    let listener = Listener::with(V4, 0, 0);
    let fd = net::socket(V4, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_eq!(net::connect(fd, &listener.addr()), Err(EINPROGRESS));
    assert_eq!(poll::events_of(fd, POLLOUT, 2000), POLLOUT);
    assert_eq!(net::take_error(fd), 0);
    assert_eq!(net::connect(fd, &listener.addr()), Ok(0), "the first connect after it is done says so");
    assert_eq!(net::connect(fd, &listener.addr()), Err(EISCONN));
    let (mut a, mut b) = warm_nonblocking(fd, listener.accept());
    assert_eq!(net::connect(a.fd(), &listener.addr()), Err(EISCONN));
    a.send(100);
    b.recv(100);
    // The backlog of 0 takes one connection; the next but one stays in progress.
    let waiting: Vec<_> = (0..3).map(|_| net::socket(V4, SOCK_NONBLOCK | SOCK_CLOEXEC)).collect();
    let results: Vec<_> = waiting.iter().map(|&fd| net::connect(fd, &listener.addr())).collect();
    assert_eq!(results, [Err(EINPROGRESS); 3]);
    assert_eq!(net::connect(waiting[2], &listener.addr()), Err(EALREADY));
    assert_eq!(io::write(waiting[2], b"x"), Err(EAGAIN), "a write to a connecting socket");
}

fn connect_refused() {
    let port = Listener::new(V4).port();
    let fd = net::socket(V4, SOCK_NONBLOCK);
    assert_eq!(io::read(fd, &mut [0; 4]), Err(ENOTCONN));
    assert_eq!(io::send(fd, b"x", libc::MSG_NOSIGNAL), Err(EPIPE));
    assert_eq!(net::connect(fd, &Addr::server(V4, port)), Err(EINPROGRESS));
    let all = libc::POLLIN | POLLOUT | libc::POLLRDHUP;
    assert_eq!(poll::events_of(fd, all, 2000), all | libc::POLLERR | libc::POLLHUP);
    assert_eq!(net::take_error(fd), libc::ECONNREFUSED);
    assert_eq!(net::take_error(fd), 0, "reading the error clears it");
    let blocking = net::socket(V4, 0);
    assert_eq!(net::connect(blocking, &Addr::server(V4, port)), Err(ECONNREFUSED));
    assert_eq!(net::getpeername(blocking).err(), Some(ENOTCONN));
}
