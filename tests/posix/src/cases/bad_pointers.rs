//! Bad pointers: every call fails with EFAULT, moves no byte, and leaves the connection as it was.

use std::mem::zeroed;
use std::ptr::{null, null_mut};

use libc::{c_void, epoll_event, fd_set, iovec, mmsghdr, msghdr, pollfd, sockaddr, socklen_t, timespec};

use crate::around::{goes_on, on_both};
use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::sys::errno::{EFAULT, EINVAL, outcome};
use crate::sys::net::{Addr, Family::V4};
use crate::sys::{bad, epoll, fds, glibc, io, net};

pub const CASES: &[Case] = &[
    case("bad_pointers.to_what_is_sent", || on_both(sending)),
    case("bad_pointers.to_room_for_what_comes", || on_both(receiving)),
    case("bad_pointers.of_waits", || on_both(waiting)),
    case("bad_pointers.of_options_and_addresses", || on_both(options)),
    case("bad_pointers.of_calls_on_others", || on_both(others)),
    case("bad_pointers.behind_a_good_beginning", || on_both(partly)),
    case("bad_pointers.of_a_truncated_file", || on_both(truncated)),
    case("bad_pointers.in_threads_that_block_signals", blocked),
];

#[track_caller]
fn faults(ret: impl TryInto<i64>) {
    assert_eq!(outcome(ret), Err(EFAULT));
}

fn iov(base: *mut c_void, len: usize) -> iovec {
    iovec { iov_base: base, iov_len: len }
}

fn message(vectors: *mut iovec, n: usize) -> msghdr {
    // SAFETY: integers and null pointers.
    let mut m: msghdr = unsafe { zeroed() };
    (m.msg_iov, m.msg_iovlen) = (vectors, n);
    m
}

fn sending(client: &mut End, server: &mut End) {
    let (fd, at) = (client.fd(), bad::nowhere::<c_void>());
    let mut byte = client.tx.upcoming(1);
    let mut good = [iov(byte.as_mut_ptr().cast(), 1), iov(at, 8)];
    let mut with_name = message(good.as_mut_ptr(), 1);
    (with_name.msg_name, with_name.msg_namelen) = (at, 16);
    let mut with_control = message(good.as_mut_ptr(), 1);
    (with_control.msg_control, with_control.msg_controllen) = (at, 64);
    // SAFETY: calls with bad pointers, which is what is tested; all others are alive.
    unsafe {
        faults(libc::write(fd, at, 8));
        faults(libc::send(fd, at, 8, 0));
        faults(libc::send(fd, null(), 8, 0));
        faults(libc::send(fd, usize::MAX as *const c_void, 8, 0));
        faults(libc::send(fd, (1usize << 63) as *const c_void, 8, 0));
        faults(libc::sendto(fd, at, 8, 0, null(), 0));
        faults(libc::sendto(fd, byte.as_ptr().cast(), 1, 0, at.cast(), 16));
        faults(libc::writev(fd, at.cast(), 1));
        faults(libc::writev(fd, at.cast(), 1024));
        faults(libc::writev(fd, good.as_ptr(), 2));
        faults(libc::pwritev2(fd, at.cast(), 1, -1, 0));
        faults(libc::sendmsg(fd, at.cast(), 0));
        faults(libc::sendmsg(fd, &message(at.cast(), 1), 0));
        faults(libc::sendmsg(fd, &message(good.as_mut_ptr(), 2), 0));
        faults(libc::sendmsg(fd, &with_name, 0));
        faults(libc::sendmsg(fd, &with_control, 0));
        faults(libc::sendmmsg(fd, at.cast(), 1, 0));
        let file = crate::sys::files::holding(b"something");
        faults(libc::sendfile(fd, file, at.cast(), 8));
        fds::close(file).expect("close");
        // The first message is sent, the second is not.
        let mut two = [mmsghdr { msg_hdr: message(good.as_mut_ptr(), 1), msg_len: 9 }; 2];
        two[1].msg_hdr = message(at.cast(), 1);
        assert_eq!(outcome(libc::sendmmsg(fd, two.as_mut_ptr(), 2, 0)), Ok(1));
        assert_eq!((two[0].msg_len, two[1].msg_len), (1, 9));
        client.tx.sent(1);
    }
    server.recv(1);
}

fn receiving(client: &mut End, server: &mut End) {
    let (fd, at) = (client.fd(), bad::nowhere::<c_void>());
    let mut byte = [0u8];
    let mut good = [iov(byte.as_mut_ptr().cast(), 1), iov(at, 8)];
    server.send(20);
    client.rx.await_bytes(20);
    // SAFETY: calls with bad pointers, which is what is tested; all others are alive.
    unsafe {
        faults(libc::read(fd, at, 8));
        faults(libc::recv(fd, at, 8, 0));
        faults(libc::recv(fd, at, 8, libc::MSG_PEEK));
        faults(libc::recv(fd, bad::read_only(), 8, 0));
        faults(libc::recvfrom(fd, at, 8, 0, null_mut(), null_mut()));
        faults(libc::readv(fd, at.cast(), 1));
        faults(libc::readv(fd, good.as_ptr(), 2));
        faults(libc::preadv2(fd, at.cast(), 1, -1, 0));
        faults(libc::recvmsg(fd, at.cast(), 0));
        faults(libc::recvmsg(fd, &mut message(at.cast(), 1), 0));
        faults(libc::recvmsg(fd, &mut message(good.as_mut_ptr(), 2), 0));
        faults(libc::recvmmsg(fd, at.cast(), 1, 0, null_mut()));
        faults(libc::recvmmsg(
            fd,
            &mut mmsghdr { msg_hdr: message(good.as_mut_ptr(), 1), msg_len: 0 },
            1,
            0,
            at.cast(),
        ));
        faults(libc::ioctl(fd, libc::FIONREAD, at));
    }
    // No byte of it was consumed.
    assert_eq!(fds::unread(fd), 20);
    client.recv(10);
    // If only the pointer for the address is bad, the bytes are consumed, as on the kernel.
    // SAFETY: as above.
    unsafe {
        faults(libc::recvfrom(fd, byte.as_mut_ptr().cast(), 1, 0, at.cast(), at.cast()));
        let mut minus: socklen_t = u32::MAX;
        let ret = libc::recvfrom(fd, byte.as_mut_ptr().cast(), 1, 0, at.cast(), &mut minus);
        assert_eq!(outcome(ret), Err(EINVAL));
        let mut len: socklen_t = 16;
        assert_eq!(outcome(libc::recvfrom(fd, byte.as_mut_ptr().cast(), 1, 0, at.cast(), &mut len)), Ok(1));
        assert_eq!(len, 0, "TCP gives no address, so its place is not touched");
    }
    client.rx.skipped(3);
    client.recv(7);
}

fn waiting(client: &mut End, server: &mut End) {
    let (fd, at) = (client.fd(), bad::nowhere::<c_void>());
    let soon = timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let mut entry = pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut bits = [0u64; 16];
    bits[fd as usize / 64] |= 1 << (fd % 64);
    let read_set = bits.as_mut_ptr().cast::<fd_set>();
    let set = epoll::Epoll::new();
    server.send(1);
    client.rx.await_bytes(1);
    // SAFETY: calls with bad pointers, which is what is tested; all others are alive.
    unsafe {
        faults(libc::poll(at.cast(), 1, 10));
        faults(libc::ppoll(at.cast(), 1, &soon, null()));
        faults(libc::ppoll(&mut entry, 1, &soon, at.cast()));
        faults(libc::select(
            fd + 1,
            at.cast(),
            null_mut(),
            null_mut(),
            &mut libc::timeval { tv_sec: 0, tv_usec: 1000 },
        ));
        faults(libc::pselect(fd + 1, at.cast(), null_mut(), null_mut(), &soon, null()));
        faults(libc::pselect(fd + 1, read_set, at.cast(), null_mut(), &soon, null()));
        faults(libc::pselect(fd + 1, read_set, null_mut(), null_mut(), &soon, at.cast()));
        assert_eq!(bits[fd as usize / 64], 1 << (fd % 64), "the sets of a call that fails are left alone");
        faults(libc::epoll_ctl(set.fd, libc::EPOLL_CTL_ADD, fd, at.cast()));
        set.add(fd, epoll::IN | epoll::ET);
        faults(libc::epoll_ctl(set.fd, libc::EPOLL_CTL_MOD, fd, at.cast()));
        let mut event = epoll_event { events: 0, u64: 0 };
        faults(glibc::epoll_pwait2(set.fd, &mut event, 1, at.cast(), null()));
        faults(libc::epoll_pwait(set.fd, &mut event, 1, 10, at.cast()));
        faults(libc::epoll_wait(set.fd, at.cast(), 1, 1000));
        faults(libc::epoll_wait(set.fd, null_mut(), 1, 1000));
    }
    // An event that could not be reported is not lost. It is reported once.
    assert_eq!(set.wait(1000), [(epoll::IN, fd as u64)]);
    // A change of carrier may report it again; that happens only in flip mode here.
    assert!(set.wait(0).is_empty() || std::env::var_os("SIDESTEP_FLIP").is_some());
    client.recv(1);
    fds::close(set.fd).expect("close");
}

fn options(client: &mut End, _: &mut End) {
    let (fd, at) = (client.fd(), bad::nowhere::<c_void>());
    let mut len: socklen_t = 4;
    let mut value = 0i32;
    // SAFETY: calls with bad pointers, which is what is tested; all others are alive.
    unsafe {
        for (level, name, size) in [
            (libc::SOL_SOCKET, libc::SO_RCVLOWAT, 4),
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO, 16),
            (libc::SOL_SOCKET, libc::SO_LINGER, 8),
            (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, 16),
            (libc::IPPROTO_TCP, libc::TCP_ULP, 4),
        ] {
            faults(libc::setsockopt(fd, level, name, at, size));
        }
        faults(libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, at, &mut len));
        faults(libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut value).cast(), at.cast()));
        faults(libc::ioctl(fd, libc::FIONBIO, at));
        faults(libc::ioctl(fd, libc::FIOASYNC, at));
        // Dissolving a connection takes an address as well.
        faults(libc::connect(fd, at.cast(), 16));
        faults(libc::getpeername(fd, at.cast(), &mut len));
    }
}

/// Descriptors that the library does not follow: it must not access their memory either.
fn others(_: &mut End, _: &mut End) {
    let at = bad::nowhere::<c_void>();
    let (out, into) = fds::pipe(0);
    let (near, far) = fds::unix_pair();
    let mut byte = [0u8];
    let mut one = iov(byte.as_mut_ptr().cast(), 1);
    let mut with_control = message(&mut one, 1);
    (with_control.msg_control, with_control.msg_controllen) = (at, 64);
    let set = epoll::Epoll::new();
    // SAFETY: calls with bad pointers, which is what is tested; all others are alive.
    unsafe {
        let unconnected = net::socket(V4, libc::SOCK_CLOEXEC);
        faults(libc::connect(unconnected, at.cast(), 16));
        faults(libc::connect(unconnected, usize::MAX as *const sockaddr, 16));
        faults(libc::bind(unconnected, at.cast(), 16));
        fds::close(unconnected).expect("close");
        faults(libc::write(into, at, 8));
        faults(libc::writev(into, at.cast(), 1));
        faults(libc::sendmsg(near, at.cast(), 0));
        faults(libc::sendmsg(near, &with_control, 0));
        faults(libc::sendmmsg(near, at.cast(), 1, 0));
        faults(libc::recvmsg(near, at.cast(), libc::MSG_DONTWAIT));
        faults(libc::poll(at.cast(), 1, 0));
        faults(libc::epoll_ctl(set.fd, libc::EPOLL_CTL_ADD, out, at.cast()));
        let mut event = epoll_event { events: epoll::OUT, u64: 5 };
        assert_eq!(outcome(libc::epoll_ctl(set.fd, libc::EPOLL_CTL_ADD, into, &mut event)), Ok(0));
        faults(libc::epoll_wait(set.fd, at.cast(), 4, 10));
    }
    let listener = link::Listener::new(V4);
    let third = link::connect(&Addr::server(V4, listener.port()), V4);
    // SAFETY: as above.
    faults(unsafe { libc::accept(listener.fd, at.cast(), at.cast()) });
    for fd in [out, into, near, far, set.fd, third] {
        fds::close(fd).expect("close");
    }
}

/// A buffer that ends too early: no byte of a small message moves.
fn partly(client: &mut End, server: &mut End) {
    let fd = client.fd();
    let at = bad::ends_after(10);
    // SAFETY: a buffer that is shorter than is said, which is what is tested.
    let send = |n: usize| outcome(unsafe { libc::send(fd, at.cast(), n, 0) });
    // SAFETY: as above.
    let receive = |n: usize| outcome(unsafe { libc::recv(fd, at.cast(), n, 0) });
    assert_eq!(send(11), Err(EFAULT));
    server.send(300);
    client.rx.await_bytes(300);
    assert_eq!(receive(11), Err(EFAULT));
    assert_eq!(fds::unread(fd), 300);
    client.recv(290);
    // If no more bytes are there than fit, they are received.
    assert_eq!(receive(11), Ok(10));
    // SAFETY: ten bytes that have just been written.
    client.rx.arrived(unsafe { std::slice::from_raw_parts(at, 10) });
    // Of a large send, at most the bytes before the buffer's end are sent.
    let (good, at) = (200_000, bad::ends_after(200_000));
    // SAFETY: so many bytes that can be written.
    unsafe { at.copy_from_nonoverlapping(client.tx.upcoming(good).as_ptr(), good) };
    // SAFETY: a buffer that is shorter than is said.
    let sent = outcome(unsafe { libc::send(fd, at.cast(), good + 100_000, libc::MSG_DONTWAIT) }).expect("send");
    assert!((1..=good).contains(&sent), "{sent} bytes of {good}");
    client.tx.sent(sent);
    server.recv(sent);
}

/// Pages of a mapping whose file was truncated: a program that touches them gets SIGBUS, one that sends them gets EFAULT.
fn truncated(client: &mut End, server: &mut End) {
    let (fd, at) = (client.fd(), bad::truncated());
    server.send(1);
    client.rx.await_bytes(1);
    // SAFETY: calls with bad pointers, which is what is tested.
    unsafe {
        faults(libc::send(fd, at.wrapping_add(4096).cast(), 8, 0));
        faults(libc::send(fd, at.wrapping_add(4090).cast(), 8, 0));
        faults(libc::recv(fd, at.wrapping_add(4096).cast(), 8, 0));
    }
    client.recv(1);
}

/// A thread with all signals blocked, including those of faults: a fault in it would end the process.
fn blocked() {
    let (mut client, mut server) = link::own_pair(V4);
    let fd = client.fd();
    let worker = std::thread::spawn(move || {
        let all: Vec<i32> = (1..=31).collect();
        crate::sys::signal::block(&all);
        let at = bad::nowhere::<c_void>();
        for _ in 0..100 {
            // SAFETY: a call with a bad pointer.
            faults(unsafe { libc::send(fd, at, 8, 0) });
            // SAFETY: as above.
            faults(unsafe { libc::poll(at.cast(), 1, 0) });
            assert_eq!(io::send(fd, b"", 0), Ok(0));
        }
    });
    worker.join().expect("the thread");
    goes_on(&mut client, &mut server);
}
