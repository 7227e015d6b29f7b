//! Further ways to reach a socket: asynchronous signals, filters, upper-layer protocols, cancelled threads.

use libc::{F_SETFL, F_SETOWN, IPPROTO_TCP, O_ASYNC, SIGIO, SOL_SOCKET};

use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::sys::cpu::eventually;
use crate::sys::errno::{ENOENT, outcome};
use crate::sys::net::{Addr, Family::V4};
use crate::sys::only_c::{self, Blocking};
use crate::sys::{Fd, bare, fds, io, net, signal};
use crate::{hosts, link};

pub const CASES: &[Case] = &[
    case("other.o_async_raises_sigio", o_async).reason("async"),
    case("other.fioasync_raises_sigio", fioasync),
    case("other.upper_layer_protocol", upper_layer),
    case("other.attached_filter", filter),
    case("other.filter_from_before", filtered_before).never("the kernel filters the bytes").reason("socket-option"),
    case("other.thread_cancelled_in_recv", || cancelled(Blocking::Recv)),
    case("other.thread_cancelled_in_read", || cancelled(Blocking::Read)),
    case("other.thread_cancelled_in_poll", || cancelled(Blocking::Poll)),
    case("other.thread_cancelled_in_epoll_wait", || cancelled(Blocking::EpollWait)),
    case("other.thread_cancelled_in_select", || cancelled(Blocking::Select)),
    case("other.thread_cancelled_before_its_call", cancelled_before),
    case("other.jump_out_of_recv", || jumped_out(Blocking::Recv)),
    case("other.jump_out_of_poll", || jumped_out(Blocking::Poll)),
    case("other.jump_out_of_epoll_wait", || jumped_out(Blocking::EpollWait)),
    case("other.aio_reads_and_writes_in_turn", aio),
    case("other.undumpable_process", renamed),
    case("other.multipath_tcp", multipath).never("its connections are not followed"),
    case("other.bytes_moved_by_bare_system_calls", by_bare_calls)
        .never("the library cannot know how many bytes have passed")
        .reason("count-mismatch"),
];

/// The first bytes of each direction bypass libc, and so the library. No later byte may get lost.
fn by_bare_calls() {
    let (mut client, mut server) = link::cold_pair_ends(V4, 0);
    pass_bare(&mut client, &mut server);
    pass_bare(&mut server, &mut client);
    link::warm_up_pair(&mut client, &mut server);
}

fn pass_bare(from: &mut End, to: &mut End) {
    let mut bytes = from.tx.upcoming(100);
    assert_eq!(bare::write(from.fd(), &bytes), 100);
    from.tx.sent(100);
    bytes.fill(0);
    assert_eq!(bare::read(to.fd(), &mut bytes), 100);
    to.rx.arrived(&bytes);
}

/// A stream that is carried by TCP, but is no plain TCP socket (MPTCP).
fn multipath() {
    let make = || {
        // SAFETY: plain numbers.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::IPPROTO_MPTCP) };
        outcome(fd as isize).expect("a socket of multipath TCP (CONFIG_MPTCP)") as Fd
    };
    let listener = hosts::on_servers(make);
    net::bind(listener, &Addr::server(V4, 0)).expect("bind");
    net::listen(listener, 1).expect("listen");
    let client = make();
    net::connect(client, &net::getsockname(listener)).expect("connect");
    let server = net::accept4(listener, libc::SOCK_CLOEXEC).expect("accept4") as Fd;
    let (mut client, mut server) = (End::new(client, Side::Client), End::new(server, Side::Server));
    link::warm_up_pair(&mut client, &mut server);
    client.send(30_000);
    server.recv(30_000);
    client.close();
    server.rx.expect_eof();
    fds::close(listener).expect("close");
}

fn own(fd: Fd) {
    signal::count_signal(SIGIO, libc::SA_RESTART);
    // SAFETY: no arguments.
    fds::fcntl(fd, F_SETOWN, unsafe { libc::getpid() }).expect("F_SETOWN");
}

fn raised_for_each_arrival(end: &mut crate::end::End, peer: &mut crate::peer::Peer) {
    for round in 0..5 {
        let before = signal::count(SIGIO);
        peer.send(100);
        eventually("SIGIO comes", || signal::count(SIGIO) > before);
        println!("round {round}: {} signals", signal::count(SIGIO));
        end.recv(100);
    }
}

fn o_async() {
    let (mut end, mut peer) = link::client(V4);
    own(end.fd());
    let flags = fds::status_flags(end.fd());
    fds::fcntl(end.fd(), F_SETFL, flags | O_ASYNC).expect("O_ASYNC");
    raised_for_each_arrival(&mut end, &mut peer);
    fds::fcntl(end.fd(), F_SETFL, flags).expect("F_SETFL");
    link::warm_up(&mut end, &mut peer);
}

fn fioasync() {
    let (mut end, mut peer) = link::client(V4);
    own(end.fd());
    fds::ioctl_int(end.fd(), libc::FIOASYNC, 1).expect("FIOASYNC");
    raised_for_each_arrival(&mut end, &mut peer);
}

/// Kernel TLS, if the module is available; without keys it passes bytes unchanged.
fn upper_layer() {
    let (mut end, mut peer) = link::client(V4);
    let ret = net::set_option(end.fd(), IPPROTO_TCP, libc::TCP_ULP, b"tls");
    println!("TCP_ULP tls: {ret:?}");
    assert!(ret == Ok(0) || ret == Err(ENOENT), "{ret:?}");
    link::warm_up(&mut end, &mut peer);
    peer.send(20_000);
    end.recv(20_000);
}

/// Attaches a filter that passes everything.
fn attach_filter(fd: Fd) {
    let mut code = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: u32::MAX }];
    let program = libc::sock_fprog { len: 1, filter: code.as_mut_ptr() };
    net::set_option(fd, SOL_SOCKET, libc::SO_ATTACH_FILTER, &program).expect("SO_ATTACH_FILTER");
}

/// A connection has the filter of its listener.
fn filtered_before() {
    let listener = link::Listener::new(V4);
    attach_filter(listener.fd);
    let client = link::connect(&listener.addr(), V4);
    attach_filter(client);
    let (mut client, mut server) = (End::new(client, Side::Client), End::new(listener.accept(), Side::Server));
    link::warm_up_pair(&mut client, &mut server);
}

/// A socket filter that passes everything, and one that is removed again.
fn filter() {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..2 {
        attach_filter(end.fd());
        link::warm_up(&mut end, &mut peer);
        peer.send(3000);
        end.recv(3000);
        net::set_option(end.fd(), SOL_SOCKET, libc::SO_DETACH_FILTER, &0).expect("SO_DETACH_FILTER");
    }
    link::warm_up(&mut end, &mut peer);
}

/// The thread is cancelled in its call and leaves nothing locked; the connection goes on.
fn cancelled(how: Blocking) {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..5 {
        only_c::cancel_thread_in(how, end.fd());
        peer.send(300);
        end.recv(300);
        link::warm_up(&mut end, &mut peer);
    }
}

/// The thread ends before the call moves a byte, though nothing makes the call wait.
fn cancelled_before() {
    for how in [Blocking::Recv, Blocking::Read, Blocking::Poll, Blocking::EpollWait, Blocking::Select, Blocking::Send] {
        let (mut end, mut peer) = link::client(V4);
        peer.send(300);
        end.rx.await_bytes(300);
        only_c::cancel_thread_before(how, end.fd());
        end.recv(300);
        link::warm_up(&mut end, &mut peer);
    }
}

/// The call never returns: what it held must not stay held.
fn jumped_out(how: Blocking) {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..5 {
        only_c::jump_out_of(how, end.fd());
        peer.send(300);
        end.recv(300);
        link::warm_up(&mut end, &mut peer);
    }
}

/// Asynchronous operations alternate with plain ones, so the positions must agree.
fn aio() {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..20 {
        peer.start("echo", &[1, 600]);
        end.tx.send_by(300, io::write);
        end.tx.send_by(300, crate::ways::send_way("aio_write"));
        end.rx.recv_by(300, crate::ways::recv_way("aio_read"));
        end.rx.recv_by(300, io::read);
        peer.finish();
    }
}

/// A process that renames itself and is not dumpable any more keeps its connections.
fn renamed() {
    let (mut end, mut peer) = link::client(V4);
    // SAFETY: a name with NUL, and a number.
    unsafe {
        outcome(libc::prctl(libc::PR_SET_NAME, c"renamed".as_ptr())).expect("PR_SET_NAME");
        outcome(libc::prctl(libc::PR_SET_DUMPABLE, 0)).expect("PR_SET_DUMPABLE");
    }
    link::warm_up(&mut end, &mut peer);
    let (mut a, mut b) = link::numbered_pair(V4, 1);
    link::warm_up_pair(&mut a, &mut b);
}
