//! Questions about a connection: queued bytes, the peer's address, options, state.

use libc::{IPPROTO_TCP, SOL_SOCKET, c_int};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::case::{Case, case};
use crate::link;
use crate::peer::Preload;
use crate::sys::cpu::{eventually, sleep_ms};
use crate::sys::errno::ENOTCONN;
use crate::sys::net::Family::{self, V4, V6};
use crate::sys::{fds, net};

pub const CASES: &[Case] = &[
    case("looking.fionread_counts_exactly", fionread),
    case("looking.fionread_in_mid_stream", fionread_in_stream).bulk(),
    case("looking.siocoutq_falls_to_zero", outq),
    case("looking.siocoutq_and_fionread_add_up", add_up).bulk(),
    case("looking.names_are_the_real_ones_v4", || names(V4)),
    case("looking.names_are_the_real_ones_v6", || names(V6)),
    case("looking.names_stay_while_bytes_stream", names_in_stream).bulk(),
    case("looking.options_read_back", options),
    case("looking.options_set_in_mid_stream", options_in_stream).reason("socket-option"),
    case("looking.tcp_info_says_established", tcp_info),
    case("looking.tcp_info_follows_the_end", tcp_info_end),
    case("looking.fstat_says_socket", fstat),
];

fn fionread() {
    let (mut end, mut peer) = link::client(V4);
    assert_eq!(fds::unread(end.fd()), 0);
    let mut queued = 0;
    for n in [1, 10, 3000, 50_000] {
        peer.send(n);
        queued += n as c_int;
        end.rx.await_bytes(queued as usize);
        assert_eq!(fds::unread(end.fd()), queued);
    }
    for n in [1, 999, 20_000] {
        end.recv(n);
        queued -= n as c_int;
        assert_eq!(fds::unread(end.fd()), queued);
    }
    end.recv(queued as usize);
    assert_eq!(fds::unread(end.fd()), 0);
}

/// As in nginx: as many bytes as FIONREAD reports can be read without waiting, and none is left out.
fn fionread_in_stream() {
    let (mut end, mut peer) = link::client(V4);
    fds::set_nonblocking(end.fd(), true);
    peer.start("mixed", &[1 << 20, 0, 9000, 2]);
    let goal = end.rx.at + (1 << 20);
    while end.rx.at < goal {
        crate::sys::poll::events_of(end.fd(), libc::POLLIN, -1);
        let n = fds::unread(end.fd()) as usize;
        assert!(n > 0, "readable, but FIONREAD says 0");
        assert_eq!(end.rx.try_recv(n, crate::sys::io::read), Ok(n));
    }
    peer.finish();
}

fn outq() {
    let (mut end, mut peer) = link::client(V4);
    for n in [1, 1000, 60_000] {
        end.send(n);
        peer.recv(n);
        eventually("what the peer has read is acknowledged", || fds::unsent(end.fd()) == 0);
    }
}

/// Nothing is read: each byte is with the sender or with the receiver.
fn add_up() {
    let (mut a, mut b) = link::own_pair(V4);
    let filled = a.tx.fill();
    eventually("the two queues hold what was written", || {
        fds::unsent(a.fd()) as usize + fds::unread(b.fd()) as usize == filled
    });
    b.recv(filled / 2);
    eventually("and so after half was read", || {
        fds::unsent(a.fd()) as usize + fds::unread(b.fd()) as usize == filled - filled / 2
    });
    b.recv(filled - filled / 2);
}

fn names(family: Family) {
    let (mut a, mut b) = link::own_pair(family);
    for _ in 0..2 {
        let (name_a, name_b) = (net::getsockname(a.fd()), net::getsockname(b.fd()));
        assert_eq!(net::getpeername(a.fd()).expect("peer").bytes(), name_b.bytes());
        assert_eq!(net::getpeername(b.fd()).expect("peer").bytes(), name_a.bytes());
        assert_ne!(name_a.port(), name_b.port());
        link::warm_up_pair(&mut a, &mut b);
    }
    b.close();
    a.rx.expect_eof();
    assert!(net::getpeername(a.fd()).is_ok(), "half closed is still connected");
    let fresh = net::socket(family, 0);
    assert_eq!(net::getpeername(fresh).err(), Some(ENOTCONN));
}

/// Whatever carries the bytes meanwhile, and however often that changes.
fn names_in_stream() {
    let (mut end, mut peer) = link::client(V4);
    let fd = end.fd();
    let both = move || (net::getsockname(fd).bytes().to_vec(), net::getpeername(fd).map(|addr| addr.bytes().to_vec()));
    let (first, is_over) = (both(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                assert_eq!(both(), first);
            }
        });
        peer.start("mixed", &[1 << 20, 0, 9000, 2]);
        end.recv(1 << 20);
        is_over.store(true, Relaxed);
    });
    peer.finish();
}

fn options() {
    let (end, _peer) = link::client(V4);
    let fd = end.fd();
    assert_eq!(net::int_option(fd, SOL_SOCKET, libc::SO_TYPE), libc::SOCK_STREAM);
    assert_eq!(net::int_option(fd, SOL_SOCKET, libc::SO_DOMAIN), libc::AF_INET);
    assert_eq!(net::int_option(fd, SOL_SOCKET, libc::SO_PROTOCOL), IPPROTO_TCP);
    assert_eq!(net::int_option(fd, SOL_SOCKET, libc::SO_ACCEPTCONN), 0);
    assert_eq!(net::int_option(fd, SOL_SOCKET, libc::SO_ERROR), 0);
    let settable = [
        (SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (SOL_SOCKET, libc::SO_RCVLOWAT, 1),
        (SOL_SOCKET, libc::SO_PRIORITY, 3),
        (IPPROTO_TCP, libc::TCP_NODELAY, 0),
        (IPPROTO_TCP, libc::TCP_NODELAY, 1),
        (IPPROTO_TCP, libc::TCP_KEEPIDLE, 17),
        (IPPROTO_TCP, libc::TCP_KEEPINTVL, 5),
        (IPPROTO_TCP, libc::TCP_KEEPCNT, 3),
        (IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 12_345),
        (IPPROTO_TCP, libc::TCP_QUICKACK, 0),
        (IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 20_000),
    ];
    for (level, name, value) in settable {
        net::set_option(fd, level, name, &value).expect("setsockopt");
        assert_eq!(net::int_option(fd, level, name), value, "option {level}/{name}");
    }
    // The kernel doubles the requested size, to have room for its own bookkeeping.
    for name in [libc::SO_SNDBUF, libc::SO_RCVBUF] {
        net::set_option(fd, SOL_SOCKET, name, &100_000).expect("setsockopt");
        assert_eq!(net::int_option(fd, SOL_SOCKET, name), 200_000);
    }
}

/// What is set while the connection is in use, and by then carried by a stack, is set when the kernel has the connection again.
fn options_in_stream() {
    let (mut end, mut peer) = link::cold_client(V4, Preload::Kept);
    let fd = end.fd();
    net::set_option(fd, SOL_SOCKET, libc::SO_KEEPALIVE, &1).expect("setsockopt");
    link::warm_up(&mut end, &mut peer);
    let began = Instant::now();
    while began.elapsed() < IN_USE {
        link::warm_up(&mut end, &mut peer);
        sleep_ms(20);
    }
    assert_eq!(net::int_option(fd, SOL_SOCKET, libc::SO_KEEPALIVE), 1);
    net::set_option(fd, SOL_SOCKET, libc::SO_KEEPALIVE, &0).expect("setsockopt");
    net::set_option(fd, SOL_SOCKET, libc::SO_RCVLOWAT, &1).expect("setsockopt"); // only the kernel can serve it
    assert_eq!(net::int_option(fd, SOL_SOCKET, libc::SO_KEEPALIVE), 0);
    link::warm_up(&mut end, &mut peer);
}

/// A stack has taken the connection by then.
const IN_USE: Duration = Duration::from_millis(400);

/// The kernel's numbers of TCP states.
const ESTABLISHED: u8 = 1;
const CLOSE_WAIT: u8 = 8;

fn tcp_info() {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..2 {
        let info = net::tcp_info(end.fd());
        assert_eq!(info.tcpi_state, ESTABLISHED);
        assert!(info.tcpi_snd_mss > 0 && info.tcpi_rcv_mss > 0);
        link::warm_up(&mut end, &mut peer);
    }
}

fn tcp_info_end() {
    let (mut end, mut peer) = link::client(V4);
    peer.close();
    end.rx.expect_eof();
    assert_eq!(net::tcp_info(end.fd()).tcpi_state, CLOSE_WAIT);
}

fn fstat() {
    let (end, _peer) = link::client(V4);
    // SAFETY: all-zero is a valid stat, which the call fills in.
    let stat = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        assert_eq!(libc::fstat(end.fd(), &mut stat), 0);
        stat
    };
    assert_eq!(stat.st_mode & libc::S_IFMT, libc::S_IFSOCK);
    assert!(fds::target(end.fd()).is_some_and(|t| t.starts_with("socket:")));
    // SAFETY: no pointers.
    let moved = crate::sys::errno::outcome(unsafe { libc::lseek(end.fd(), 0, libc::SEEK_CUR) });
    assert_eq!(moved, Err(crate::sys::errno::ESPIPE));
}
