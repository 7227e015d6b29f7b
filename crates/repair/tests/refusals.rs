//! Each reason for which a connection is left to the kernel, and that a refusal changes nothing.

use crate::common::*;
use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET};
use rustix::net::{AddressFamily, SendFlags, SocketType, bind, connect, ipproto, listen, send, socket};
use sidestep_repair::{NotTaken, Queues, TakeError, examine, give_back, take};
use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;

/// A connection whose near end the closure prepares; `take` must refuse it, and it goes on.
fn refused(shape: Shape, reason: NotTaken, prepare: impl FnOnce(&TcpStream, &TcpStream)) {
    let wire = Wire::shaped(&shape);
    let (near, far) = wire.connect(&shape);
    assert_eq!(examine(&near), Ok(()));
    prepare(&near, &far);
    assert_eq!(take(&near), Err(TakeError::NotTaken(reason)));
    assert_eq!(raw::get_int(&near, IPPROTO_TCP, libc::TCP_REPAIR), 0);
    finish(near, far, &mut Expected::new(1), &mut Expected::new(2), 1000);
}

fn refused_for_option(level: i32, option: i32, value: &[u8], reason: NotTaken) {
    refused(USUAL, reason, |near, _| raw::set(near, level, option, value).expect("the option"));
}

const ONE: [u8; 4] = 1i32.to_ne_bytes();

#[test]
fn options_that_only_the_kernel_can_serve() {
    refused_for_option(SOL_SOCKET, libc::SO_ZEROCOPY, &ONE, NotTaken::ZeroCopy);
    refused_for_option(SOL_SOCKET, libc::SO_OOBINLINE, &ONE, NotTaken::UrgentInline);
    refused_for_option(SOL_SOCKET, libc::SO_TIMESTAMPING, &16i32.to_ne_bytes(), NotTaken::Timestamping);
    refused_for_option(SOL_SOCKET, libc::SO_TXTIME, &[ONE, ONE].concat(), NotTaken::Delayed);
    refused_for_option(IPPROTO_TCP, 37, &ONE, NotTaken::Delayed); // TCP_TX_DELAY
    refused_for_option(IPPROTO_IP, libc::IP_MINTTL, &10i32.to_ne_bytes(), NotTaken::MinimumTtl);
    // A route that is recorded in four places (RFC 791).
    let record_route = [7, 19, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    refused_for_option(IPPROTO_IP, libc::IP_OPTIONS, &record_route, NotTaken::IpOptions);
}

#[test]
fn ipv6_options_that_only_the_kernel_can_serve() {
    let shape = Shape { family: Family::V6, ..USUAL };
    refused(shape, NotTaken::MinimumTtl, |near, _| raw::set_int(near, IPPROTO_IPV6, 73, 10));
    // Destination options: padding only.
    let padding = [0, 0, 1, 4, 0, 0, 0, 0];
    refused(shape, NotTaken::IpOptions, |near, _| {
        raw::set(near, IPPROTO_IPV6, libc::IPV6_DSTOPTS, &padding).expect("IPV6_DSTOPTS");
    });
}

#[test]
fn filters() {
    // One instruction: accept the whole segment.
    let accept = libc::sock_filter { code: 6, jt: 0, jf: 0, k: u32::MAX };
    let program = libc::sock_fprog { len: 1, filter: (&raw const accept).cast_mut() };
    // SAFETY: `program` has no padding that is read, and its bytes are read only.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const program).cast::<u8>(), size_of_val(&program)) };
    refused_for_option(SOL_SOCKET, libc::SO_ATTACH_FILTER, bytes, NotTaken::Filter);
    refused_for_option(SOL_SOCKET, libc::SO_LOCK_FILTER, &ONE, NotTaken::Filter);
}

#[test]
fn a_peek_offset() {
    refused(USUAL, NotTaken::PeekOffset, |near, _| {
        // Kernels before 6.9 have none for TCP.
        raw::set_int(near, SOL_SOCKET, libc::SO_PEEK_OFF, 0);
    });
}

#[test]
fn signals() {
    refused(USUAL, NotTaken::Signals, |near, _| {
        let flags = rustix::fs::fcntl_getfl(near).expect("F_GETFL");
        rustix::fs::fcntl_setfl(near, flags | rustix::fs::OFlags::from_bits_retain(libc::O_ASYNC as _))
            .expect("F_SETFL");
    });
}

#[test]
fn fast_open() {
    let wire = Wire::new(1500);
    let listener = wire.far.run(|| TcpListener::bind((far(Family::V4), 0)).expect("a listener"));
    let address = listener.local_addr().expect("its address");
    let near = wire.near.run(|| {
        let near = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        raw::set_int(&near, IPPROTO_TCP, 30, 1);
        connect(&near, &address).expect("a connection");
        near
    });
    send(&near, b"x", SendFlags::empty()).expect("the first byte");
    let (_far, _) = listener.accept().expect("a connection");
    until("the handshake is over", || raw::unacknowledged(&near) == 0);
    assert_eq!(take(&near), Err(TakeError::NotTaken(NotTaken::FastOpen)));
}

#[test]
fn urgent_data() {
    refused(USUAL, NotTaken::Urgent, |near, far| {
        send(far, b"u", SendFlags::OOB).expect("an urgent byte");
        until("the urgent byte arrives", || examine(near).is_err());
        assert_eq!(examine(near), Err(NotTaken::Urgent));
        assert_eq!(take(near), Err(TakeError::NotTaken(NotTaken::Urgent)));
        // After it, so that the mark is behind the reader again, and before it.
        send(far, b"abc", SendFlags::empty()).expect("three bytes");
        send(far, b"v", SendFlags::OOB).expect("an urgent byte");
        send(far, b"def", SendFlags::empty()).expect("three bytes");
        until("all bytes arrive", || raw::unacknowledged(far) == 0);
        let mut byte = [0];
        let (_, read) = rustix::net::recv(near, &mut byte, rustix::net::RecvFlags::OOB).expect("the urgent byte");
        assert_eq!((read, byte), (1, *b"v"));
        // It has been read, and bytes before it have not.
        assert_eq!(take(near), Err(TakeError::NotTaken(NotTaken::Urgent)));
        // So that what `refused` sends is all there is: everything before the mark, and nothing after it.
        let mut rest = [0; 16];
        // The kernel drops an urgent byte that nobody has read when the next one comes.
        assert_eq!((&mut &*near).read(&mut rest).expect("read"), 3);
        assert_eq!(&rest[..3], b"abc");
        assert_eq!(take(near), Err(TakeError::NotTaken(NotTaken::Urgent)), "at the mark");
        assert_eq!((&mut &*near).read(&mut rest).expect("read"), 3);
        assert_eq!(&rest[..3], b"def");
        assert_eq!(examine(near), Ok(()));
        send(far, b"w", SendFlags::OOB).expect("an urgent byte");
        until("the urgent byte arrives", || examine(near).is_err());
        assert_eq!(take(near), Err(TakeError::NotTaken(NotTaken::Urgent)));
        rustix::net::recv(near, &mut byte, rustix::net::RecvFlags::OOB).expect("the urgent byte");
    });
}

#[test]
fn a_reading_side_that_is_shut() {
    let wire = Wire::new(1500);
    let (near, _far) = wire.connect(&USUAL);
    near.shutdown(Shutdown::Read).expect("shutdown");
    assert_eq!(examine(&near), Err(NotTaken::Shut));
    assert_eq!(take(&near), Err(TakeError::NotTaken(NotTaken::Shut)));
}

#[test]
fn other_states() {
    let wire = Wire::new(1500);
    let (near, far) = wire.connect(&USUAL);
    far.shutdown(Shutdown::Write).expect("shutdown");
    until("the FIN arrives", || examine(&near).is_err());
    assert_eq!(take(&near), Err(TakeError::NotTaken(NotTaken::NotEstablished { state: 8 })), "CLOSE_WAIT");
    let (near, _far) = wire.connect(&USUAL);
    near.shutdown(Shutdown::Write).expect("shutdown");
    assert!(matches!(take(&near), Err(TakeError::NotTaken(NotTaken::NotEstablished { state: 4 | 5 }))), "FIN_WAIT");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    assert_eq!(take(&listener), Err(TakeError::NotTaken(NotTaken::NotEstablished { state: 10 })), "LISTEN");
    let fresh = socket(AddressFamily::INET6, SocketType::STREAM, None).expect("a socket");
    assert_eq!(take(&fresh), Err(TakeError::NotTaken(NotTaken::NotEstablished { state: 7 })), "CLOSE");
}

#[test]
fn taken_twice() {
    let wire = Wire::new(1500);
    let (near, _far) = wire.connect(&USUAL);
    take(&near).expect("take");
    assert_eq!(take(&near), Err(TakeError::NotTaken(NotTaken::InRepair)));
}

#[test]
fn not_tcp() {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    assert_eq!(take(&udp), Err(TakeError::NotTaken(NotTaken::NotTcp)));
    let (unix, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    assert_eq!(take(&unix), Err(TakeError::NotTaken(NotTaken::NotTcp)));
    let file = std::fs::File::open("/dev/null").expect("a file");
    assert_eq!(take(&file), Err(TakeError::NotTaken(NotTaken::NotTcp)));
}

fn mptcp() -> OwnedFd {
    socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::MPTCP)).expect("an MPTCP socket")
}

#[test]
fn mptcp_is_not_tcp() {
    let wire = Wire::new(1500);
    let address: SocketAddr = (far(Family::V4), 4000).into();
    let listener = wire.far.run(|| {
        let listener = mptcp();
        bind(&listener, &address).expect("bind");
        listen(&listener, 1).expect("listen");
        listener
    });
    let near = wire.near.run(|| {
        let near = mptcp();
        connect(&near, &address).expect("a connection");
        near
    });
    assert_eq!(take(&near), Err(TakeError::NotTaken(NotTaken::NotTcp)));
    drop(listener);
}

/// `struct tcp_md5sig` of linux/tcp.h with a key for this peer.
fn md5_key(peer: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(peer) = peer else { panic!("IPv4 only") };
    let mut key = vec![0; 216];
    key[0..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    key[4..8].copy_from_slice(&peer.ip().octets());
    key[130..132].copy_from_slice(&6u16.to_ne_bytes());
    key[136..142].copy_from_slice(b"secret");
    key
}

#[test]
fn a_signature_shows_as_memory_and_goes_on() {
    const TCP_MD5SIG: i32 = 14;
    for timestamps in [true, false] {
        let wire = Wire::shaped(&Shape { timestamps, ..USUAL });
        let listener = wire.far.run(|| TcpListener::bind((far(Family::V4), 0)).expect("a listener"));
        let address = listener.local_addr().expect("its address");
        raw::set(&listener, IPPROTO_TCP, TCP_MD5SIG, &md5_key((near(Family::V4), 0).into())).expect("TCP_MD5SIG");
        let near = wire.near.run(|| {
            let near = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
            raw::set(&near, IPPROTO_TCP, TCP_MD5SIG, &md5_key(address)).expect("TCP_MD5SIG");
            connect(&near, &address).expect("a connection");
            TcpStream::from(near)
        });
        let (far, _) = listener.accept().expect("a connection");
        for end in [&near, &far] {
            let taken = take(end).expect("take");
            assert_ne!(taken.profile.option_memory, 0);
            give_back(end, &taken.state, &Queues::new(&taken.unread, &taken.unacknowledged)).expect("give back");
        }
        finish(near, far, &mut Expected::new(1), &mut Expected::new(2), 1000);
    }
}

/// A peer announces any MSS that it likes. What cannot be given back is not taken.
#[test]
fn any_mss_of_the_peer() {
    for (mss, announced) in [(48, 48), (87, 87), (88, 88), (100, 100), (32768, 32768), (65000, 65000)] {
        let wire = Wire::new(1500);
        wire.far.ip(&format!("route change 192.0.2.0/24 dev {DEVICE} advmss {mss}"));
        let (near, far) = wire.connect(&USUAL);
        match take(&near) {
            Err(TakeError::NotTaken(NotTaken::TinySegments { mss })) => assert!(mss == announced && mss < 88, "{mss}"),
            taken => {
                let taken = taken.expect("take");
                assert!(taken.state.mss == announced && announced >= 88, "{}", taken.state.mss);
                give_back(&near, &taken.state, &Queues::new(b"", b"")).expect("give back");
                let again = take(&near).expect("take again");
                assert_eq!((again.state.mss, again.path.mss), (announced, taken.path.mss));
                give_back(&near, &again.state, &Queues::new(b"", b"")).expect("give back again");
            }
        }
        finish(near, far, &mut Expected::new(1), &mut Expected::new(2), 10_000);
    }
}

#[test]
fn without_the_capability() {
    let wire = Wire::new(1500);
    let (near, _far) = wire.connect(&USUAL);
    std::thread::scope(|scope| {
        let unprivileged = scope.spawn(|| {
            sidestep_testkit::greeter::become_owner((65534, 65534));
            take(&near)
        });
        let refused = unprivileged.join().expect("a result");
        assert!(
            matches!(refused, Err(TakeError::Call(error)) if error.source == rustix::io::Errno::PERM),
            "{refused:?}"
        );
    });
    assert_eq!(examine(&near), Ok(()));
}
