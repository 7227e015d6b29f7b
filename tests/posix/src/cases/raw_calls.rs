//! Calls through the libc function `syscall`: the same connection, by the kernel's rules where libc's rules differ.

use libc::{c_long, c_void, epoll_event, iovec, pollfd, timespec, timeval};

use crate::around::{goes_on, on_both};
use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::link;
use crate::sys::errno::{EAGAIN, EFAULT, EINVAL, Outcome, outcome};
use crate::sys::net::Family::V4;
use crate::sys::process::{self, Ended};
use crate::sys::{Fd, bad, bare, epoll, fds, files, io};

pub const CASES: &[Case] = &[
    case("raw.vectors_with_positions", || on_both(vectors)),
    case("raw.polls_tell_the_time_that_is_left", || on_both(polls)),
    case("raw.selects", || on_both(selects)),
    case("raw.sizes_of_masks", || on_both(masks)),
    case("raw.set_of_the_oldest_call", || on_both(old_set)),
    case("raw.sockets", sockets),
    case("raw.files_and_pipes", || on_both(from_files)),
    case("raw.forks_are_followed", forks).reason("shared"),
    case("raw.fork_out_of_sight", unseen_fork),
    case("raw.vfork_child_that_exits", vfork_exit),
    case("raw.thread_that_exits", thread_exits),
    case("raw.last_thread_that_exits", last_thread),
    case("raw.native_aio", native_aio).reason("kernel-feature"),
];

/// A system call with up to six words.
fn call(number: c_long, words: [usize; 6]) -> Outcome {
    let [a, b, c, d, e, f] = words;
    // SAFETY: every use below hands over live memory, or pointers that are bad on purpose.
    outcome(unsafe { libc::syscall(number, a, b, c, d, e, f) })
}

fn address<T>(of: &mut T) -> usize {
    std::ptr::from_mut(of) as usize
}

const NO_POSITION: usize = usize::MAX;
const RWF_NOWAIT: usize = 8;

fn vectors(client: &mut End, server: &mut End) {
    let mut bytes = client.tx.upcoming(100);
    let mut v = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: 100 };
    for flags in [0, RWF_NOWAIT] {
        let sent =
            call(libc::SYS_pwritev2, [client.fd() as usize, address(&mut v), 1, NO_POSITION, NO_POSITION, flags]);
        assert_eq!(sent, Ok(100));
        client.tx.sent(100);
        server.recv(100);
        bytes.copy_from_slice(&client.tx.upcoming(100));
    }
    let mut room = vec![0; 100];
    v.iov_base = room.as_mut_ptr().cast();
    let ask = |v: &mut iovec, flags| {
        call(libc::SYS_preadv2, [client.fd() as usize, address(v), 1, NO_POSITION, NO_POSITION, flags])
    };
    assert_eq!(ask(&mut v, RWF_NOWAIT), Err(EAGAIN));
    server.send(100);
    client.rx.await_bytes(100);
    assert_eq!(ask(&mut v, RWF_NOWAIT), Ok(100));
    client.rx.arrived(&room);
    let many = call(libc::SYS_readv, [client.fd() as usize, address(&mut v), 1 << 32, 0, 0, 0]);
    assert_eq!(many, Ok(0), "of a number of vectors the lower half counts");
}

fn polls(client: &mut End, server: &mut End) {
    let mut entry = pollfd { fd: client.fd(), events: libc::POLLIN, revents: 0 };
    let mut time = timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    let ask =
        |entry: &mut pollfd, time: &mut timespec| call(libc::SYS_ppoll, [address(entry), 1, address(time), 0, 8, 0]);
    assert_eq!(ask(&mut entry, &mut time), Ok(0));
    assert_eq!((time.tv_sec, time.tv_nsec), (0, 0), "nothing is left");
    time.tv_sec = 100;
    server.send(1);
    client.rx.await_bytes(1);
    assert_eq!(ask(&mut entry, &mut time), Ok(1));
    assert!(time.tv_sec == 99, "{} s are left", time.tv_sec);
    assert_eq!(call(libc::SYS_poll, [address(&mut entry), 1, 1000, 0, 0, 0]), Ok(1));
    client.recv(1);
}

fn selects(client: &mut End, server: &mut End) {
    let fd = client.fd();
    let bits = || {
        let mut bits = [0u64; 16];
        bits[fd as usize / 64] |= 1 << (fd % 64);
        bits
    };
    let has = |bits: &[u64; 16]| bits[fd as usize / 64] >> (fd % 64) & 1 == 1;
    let (mut set, mut time) = (bits(), timeval { tv_sec: 0, tv_usec: 2000 });
    let ask = |set: &mut [u64; 16], time: &mut timeval| {
        call(libc::SYS_select, [fd as usize + 1, address(set), 0, 0, address(time), 0])
    };
    assert_eq!(ask(&mut set, &mut time), Ok(0));
    assert!(!has(&set) && (time.tv_sec, time.tv_usec) == (0, 0));
    server.send(1);
    client.rx.await_bytes(1);
    (set, time) = (bits(), timeval { tv_sec: 100, tv_usec: 0 });
    assert_eq!(ask(&mut set, &mut time), Ok(1));
    assert!(has(&set) && time.tv_sec == 99);
    // The kernel accepts a negative field if the sum is not negative.
    (set, time) = (bits(), timeval { tv_sec: 1, tv_usec: -1_000_000 });
    assert_eq!(ask(&mut set, &mut time), Ok(1));
    (set, time) = (bits(), timeval { tv_sec: 0, tv_usec: -5 });
    assert_eq!(ask(&mut set, &mut time), Err(EINVAL));

    let (mut set, mut spec) = (bits(), timespec { tv_sec: 100, tv_nsec: 0 });
    let mut mask = 0u64;
    let mut packed = [address(&mut mask), 8];
    let ask = |set: &mut [u64; 16], spec: &mut timespec, packed: usize| {
        call(libc::SYS_pselect6, [fd as usize + 1, address(set), 0, 0, address(spec), packed])
    };
    assert_eq!(ask(&mut set, &mut spec, address(&mut packed)), Ok(1));
    assert!(has(&set) && spec.tv_sec == 99);
    assert_eq!(ask(&mut set, &mut spec, 0), Ok(1));
    assert_eq!(ask(&mut set, &mut spec, address(&mut [0usize, 0])), Ok(1), "no mask, of no size");
    packed[1] = 16;
    assert_eq!(ask(&mut set, &mut spec, address(&mut packed)), Err(EINVAL));
    assert_eq!(ask(&mut set, &mut spec, bad::nowhere::<c_void>() as usize), Err(EFAULT));
    packed = [bad::nowhere::<c_void>() as usize, 8];
    assert_eq!(ask(&mut set, &mut spec, address(&mut packed)), Err(EFAULT));
    client.recv(1);
}

fn masks(client: &mut End, _: &mut End) {
    let mut entry = pollfd { fd: client.fd(), events: libc::POLLOUT, revents: 0 };
    let mut time = timespec { tv_sec: 1, tv_nsec: 0 };
    let mut event = epoll_event { events: 0, u64: 0 };
    let mut mask = [0u64; 16];
    let set = epoll::Epoll::new();
    set.add(client.fd(), epoll::OUT);
    for (size, answer) in [(8, Ok(1)), (128, Err(EINVAL)), (4, Err(EINVAL)), (0, Err(EINVAL))] {
        let mask = address(&mut mask);
        let polled = call(libc::SYS_ppoll, [address(&mut entry), 1, address(&mut time), mask, size, 0]);
        assert_eq!(polled, answer, "ppoll, {size} bytes");
        let set = set.fd as usize;
        let waited = call(libc::SYS_epoll_pwait, [set, address(&mut event), 1, 100, mask, size]);
        assert_eq!(waited, answer, "epoll_pwait, {size} bytes");
        let waited = call(libc::SYS_epoll_pwait2, [set, address(&mut event), 1, address(&mut time), mask, size]);
        assert_eq!(waited, answer, "epoll_pwait2, {size} bytes");
        // Without a mask its size does not count.
        assert_eq!(call(libc::SYS_epoll_pwait, [set, address(&mut event), 1, 100, 0, size]), Ok(1));
    }
    fds::close(set.fd).expect("close");
}

fn old_set(client: &mut End, server: &mut End) {
    let set = epoll::Epoll { fd: call(libc::SYS_epoll_create, [5, 0, 0, 0, 0, 0]).expect("epoll_create") as Fd };
    assert_eq!(call(libc::SYS_epoll_create, [0; 6]), Err(EINVAL));
    set.add(client.fd(), epoll::IN);
    assert_eq!(set.wait(0), []);
    server.send(1);
    let mut event = epoll_event { events: 0, u64: 0 };
    assert_eq!(call(libc::SYS_epoll_wait, [set.fd as usize, address(&mut event), 1, 5000, 0, 0]), Ok(1));
    client.recv(1);
    fds::close(set.fd).expect("close");
}

/// A connection that is made, examined and ended by system calls only.
fn sockets() {
    let listener = link::Listener::new(V4);
    let (kind, stream) = (libc::AF_INET as usize, libc::SOCK_STREAM as usize | libc::SOCK_CLOEXEC as usize);
    let fd = call(libc::SYS_socket, [kind, stream, 0, 0, 0, 0]).expect("socket");
    let to = listener.addr();
    assert_eq!(call(libc::SYS_listen, [listener.fd as usize, 16, 0, 0, 0, 0]), Ok(0));
    assert_eq!(call(libc::SYS_connect, [fd, to.as_ptr() as usize, to.size() as usize, 0, 0, 0]), Ok(0));
    let other = call(libc::SYS_accept4, [listener.fd as usize, 0, 0, libc::SOCK_CLOEXEC as usize, 0, 0]);
    let (mut client, mut server) =
        (End::new(fd as Fd, Side::Client), End::new(other.expect("accept4") as Fd, Side::Server));
    link::warm_up_pair(&mut client, &mut server);
    let (mut error, mut len) = (7i32, 4u32);
    let words = [fd, libc::SOL_SOCKET as usize, libc::SO_ERROR as usize, address(&mut error), address(&mut len), 0];
    assert_eq!(call(libc::SYS_getsockopt, words), Ok(0));
    assert_eq!((error, len), (0, 4));
    goes_on(&mut client, &mut server);
    assert_eq!(call(libc::SYS_shutdown, [fd, 7, 0, 0, 0, 0]), Err(EINVAL));
    assert_eq!(call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]), Ok(0));
    server.rx.expect_eof();
}

fn from_files(client: &mut End, server: &mut End) {
    let bytes = client.tx.upcoming(300);
    let file = files::holding(&bytes);
    let mut at = 100i64;
    let sent = call(libc::SYS_sendfile, [client.fd() as usize, file as usize, address(&mut at), 1000, 0, 0]);
    assert_eq!(sent, Ok(200), "from the given position to the end");
    assert_eq!(at, 300);
    let mut room = vec![0; 200];
    server.rx.await_bytes(200);
    assert_eq!(io::recv(server.fd(), &mut room, 0), Ok(200));
    assert_eq!(room, bytes[100..]);
    // Bytes of another part of the pattern: both ends count on from the bytes that were sent in order.
    assert_eq!(call(libc::SYS_sendfile, [client.fd() as usize, 9999, 0, 10, 0, 0]), Err(crate::sys::errno::EBADF));
    assert_eq!(call(libc::SYS_tee, [client.fd() as usize, client.fd() as usize, 1, 0, 0, 0]), Err(EINVAL));
    fds::close(file).expect("close");
}

/// Children made by fork and clone past libc: both processes use the connection, in turns.
fn forks() {
    for raw in 0..3 {
        let (mut client, mut server) = link::own_pair(V4);
        let clone = [libc::SIGCHLD as usize, 0, 0, 0, 0, 0];
        let mut args = [0u64; 11];
        args[4] = libc::SIGCHLD as u64;
        let pid = match raw {
            0 => call(libc::SYS_fork, [0; 6]),
            1 => call(libc::SYS_clone, clone),
            _ => call(libc::SYS_clone3, [address(&mut args), size_of_val(&args), 0, 0, 0, 0]),
        };
        if pid == Ok(0) {
            client.send(1000);
            process::exit_now(0);
        }
        let child = pid.expect("a child") as i32;
        server.recv(1000);
        assert_eq!(process::wait_for(child), Ended::Exit(0));
        client.tx.sent(1000);
        client.send(1000);
        server.recv(1000);
        server.send(1000);
        client.recv(1000);
    }
}

/// A child made past syscall() as well: connections that it makes are its own, and its parent goes on undisturbed.
fn unseen_fork() {
    let (mut client, mut server) = link::own_pair(V4);
    let child = bare::fork();
    if child == 0 {
        let (mut third, mut fourth) = link::numbered_pair(V4, 1);
        goes_on(&mut third, &mut fourth);
        process::exit_now(0);
    }
    goes_on(&mut client, &mut server);
    assert_eq!(process::wait_for(child), Ended::Exit(0));
    link::warm_up_pair(&mut client, &mut server);
}

/// A child that shares our memory ends itself; it must not end our connections.
fn vfork_exit() {
    let (mut client, mut server) = link::own_pair(V4);
    assert_eq!(process::wait_for(crate::sys::only_c::vfork_and_exit()), Ended::Exit(7));
    goes_on(&mut client, &mut server);
}

fn thread_exits() {
    let (mut client, mut server) = link::own_pair(V4);
    crate::sys::only_c::thread_that_exits();
    goes_on(&mut client, &mut server);
}

/// The main thread ends itself, and with it the process: its connections end regularly.
fn last_thread() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(100);
    end.recv(100);
    let child = process::in_child(move || {
        let (mut client, _server) = link::own_pair(V4);
        client.send(10);
        let _ = call(libc::SYS_exit, [0; 6]);
        unreachable!("exit(2) has returned");
    });
    child.succeed();
    link::warm_up(&mut end, &mut peer);
}

/// io_submit(2): the kernel does the I/O, so it must have the bytes.
fn native_aio() {
    let (mut client, mut server) = link::own_pair(V4);
    server.send(100);
    client.rx.await_bytes(100);
    let mut context = 0usize;
    call(libc::SYS_io_setup, [4, address(&mut context), 0, 0, 0, 0]).expect("io_setup");
    let mut room = vec![0u8; 100];
    // struct iocb: data, key and flags, opcode and priority, descriptor, buffer, length, offset, ...
    const READ: u64 = 0;
    let mut request = [0, 0, READ | (client.fd() as u64) << 32, room.as_mut_ptr() as u64, 100, 0, 0, 0];
    let mut list = [address(&mut request)];
    assert_eq!(call(libc::SYS_io_submit, [context, 1, address(&mut list), 0, 0, 0]), Ok(1));
    let mut event = [0u64; 4];
    assert_eq!(call(libc::SYS_io_getevents, [context, 1, 1, address(&mut event), 0, 0]), Ok(1));
    assert_eq!(event[2], 100);
    client.rx.arrived(&room);
    call(libc::SYS_io_destroy, [context, 0, 0, 0, 0, 0]).expect("io_destroy");
    client.send(100);
    server.recv(100);
}
