//! Scarcity: of descriptors, memory, stack, permissions.

use libc::{RLIMIT_NOFILE, SYS_epoll_create1, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_eventfd2, SYS_getrandom};
use libc::{SYS_memfd_create, SYS_mmap, SYS_rt_sigaction, c_long};

use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::link::{self, Listener};
use crate::peer::Preload;
use crate::seccomp::forbid;
use crate::sys::epoll::{Epoll, IN, OUT};
use crate::sys::errno::{EAGAIN, EMFILE, EPERM, outcome};
use crate::sys::net::{self, Family::V4};
use crate::sys::process::{require_root, set_limit};
use crate::sys::{Fd, fds, files, io, poll};

const FEW: &str = "of so few descriptors none can be the library's";
const SANDBOX: &str = "the sandbox may forbid what a ring needs";

pub const CASES: &[Case] = &[
    case("limits.last_two_descriptors", last_two).never(FEW),
    case("limits.descriptors_run_out_in_mid_stream", run_out).reason("fd-limit"),
    case("limits.limit_lowered_before_connecting", lowered).never(FEW).reason("fd-limit"),
    case("limits.limit_lowered_in_mid_stream", lowered_later).reason("fd-limit"),
    case("limits.every_descriptor_is_the_program_s", all_of_few).never(FEW).reason("fd-limit"),
    case("limits.seccomp_forbids_eventfd", || sandboxed(&[SYS_eventfd2])).may(SANDBOX),
    case("limits.seccomp_forbids_memfd", || sandboxed(&[SYS_memfd_create])).may(SANDBOX),
    case("limits.seccomp_forbids_passing_descriptors", || sandboxed(&[libc::SYS_sendmsg, libc::SYS_recvmsg]))
        .may(SANDBOX),
    case("limits.seccomp_forbids_unix_sockets_and_pidfd", || {
        sandboxed(&[libc::SYS_socketpair, libc::SYS_pidfd_open, libc::SYS_pidfd_getfd])
    })
    .may(SANDBOX),
    case("limits.seccomp_forbids_futex_wait_and_more", || sandboxed(&ODD_CALLS)).may(SANDBOX),
    case("limits.seccomp_in_mid_stream", seccomp_later).reason("sandbox"),
    case("limits.seccomp_with_an_epoll_set", seccomp_with_a_set).reason("sandbox"),
    case("limits.file_size_zero", file_size_zero),
    case("limits.little_address_space", little_address_space).may("no room to map a ring"),
    case("limits.no_address_space_for_another_link", no_room_for_a_link).reason("memory"),
    case("limits.small_thread_stack", small_stack),
    case("limits.dropped_privileges", dropped_privileges),
];

/// System calls that a user-space library might make besides the program's own.
const ODD_CALLS: [c_long; 8] = [
    SYS_eventfd2,
    SYS_memfd_create,
    SYS_epoll_create1,
    libc::SYS_timerfd_create,
    libc::SYS_process_vm_readv,
    libc::SYS_membarrier,
    libc::SYS_madvise,
    libc::SYS_getsockname,
];

/// Takes all descriptors that are left; the next call that needs one gets EMFILE.
fn take_all() -> Vec<Fd> {
    let null = files::dev_null();
    let mut taken = vec![null];
    loop {
        match fds::dup(null) {
            Ok(fd) => taken.push(fd as Fd),
            Err(e) => break assert_eq!(e, EMFILE),
        }
    }
    taken
}

/// Exactly two numbers are left, for the client's and the server's socket.
fn last_two() {
    let listener = Listener::new(V4);
    set_limit(RLIMIT_NOFILE, 64);
    let mut taken = take_all();
    for fd in taken.split_off(taken.len() - 2) {
        fds::close(fd).expect("close");
    }
    let client = link::connect(&listener.addr(), V4);
    let server = listener.accept();
    assert_eq!(fds::dup(client), Err(EMFILE));
    let (mut a, mut b) = (End::new(client, Side::Client), End::new(server, Side::Server));
    link::warm_up_pair(&mut a, &mut b);
    a.send(50_000);
    b.recv(50_000);
    // With descriptors free again, everything works as before.
    taken.into_iter().for_each(|fd| assert_eq!(fds::close(fd), Ok(0)));
    link::warm_up_pair(&mut a, &mut b);
}

fn run_out() {
    let (mut end, mut peer) = link::client(V4);
    let listener = Listener::with(V4, libc::SOCK_NONBLOCK, 8);
    set_limit(RLIMIT_NOFILE, 64);
    let late = net::socket(V4, 0);
    let taken = take_all();
    net::connect(late, &listener.addr()).expect("connect");
    assert_eq!(net::accept4(listener.fd, 0), Err(EMFILE));
    peer.start("mixed", &[500_000, 500_000, 10_000, 1]);
    crate::traffic::both_ways(&mut end, 500_000, 500_000, 10_000, 2);
    peer.finish();
    fds::close(taken[0]).expect("close");
    let server = net::accept4(listener.fd, 0).expect("the connection was not lost") as Fd;
    let mut a = End::numbered(late, Side::Client, 1);
    let mut b = End::numbered(server, Side::Server, 1);
    link::warm_up_pair(&mut a, &mut b);
}

/// Connections by ring go back to the kernel, and no descriptor of the library takes a number that the program could have.
fn lowered_later() {
    let (mut a, mut b) = link::own_pair(V4);
    let (mut c, mut d) = link::cold_pair_ends(V4, 1);
    set_limit(RLIMIT_NOFILE, 20);
    let taken = take_all();
    for n in [1, 100, 100_000] {
        for (from, to) in [(&mut a, &mut b), (&mut c, &mut d)] {
            std::thread::scope(|s| {
                s.spawn(|| from.send(n));
                to.recv(n);
            });
        }
    }
    link::warm_up_pair(&mut c, &mut d);
    taken.into_iter().for_each(|fd| assert_eq!(fds::close(fd), Ok(0)));
}

/// A program that relies on each number below its limit: it has opened all of them itself.
fn all_of_few() {
    const LIMIT: Fd = 20;
    set_limit(RLIMIT_NOFILE, LIMIT as u64);
    let mut mine: Vec<Fd> = (0..LIMIT).filter(|fd| fds::is_open(*fd)).collect();
    let (mut a, mut b) = link::own_pair(V4);
    let taken = take_all();
    mine.extend([a.fd(), b.fd()]);
    mine.extend(&taken);
    mine.sort_unstable();
    assert_eq!(mine, (0..LIMIT).collect::<Vec<_>>());
    taken.into_iter().for_each(|fd| assert_eq!(fds::close(fd), Ok(0)));
    a.send(10_000);
    b.recv(10_000);
}

fn lowered() {
    set_limit(RLIMIT_NOFILE, 12);
    let (mut a, mut b) = link::own_pair(V4);
    a.send(10_000);
    b.recv(10_000);
    a.close();
    b.rx.expect_eof();
}

/// The filter is installed before the first connection. Both ends are in this process, which uses none of the forbidden calls.
fn sandboxed(calls: &[c_long]) {
    let listener = Listener::new(V4);
    let addr = listener.addr();
    forbid(calls);
    if calls.contains(&SYS_eventfd2) {
        // SAFETY: numbers only.
        assert_eq!(outcome(unsafe { libc::eventfd(0, 0) }), Err(EPERM), "the filter works");
    }
    let mut a = End::new(link::connect(&addr, V4), Side::Client);
    let mut b = End::new(listener.accept(), Side::Server);
    link::warm_up_pair(&mut a, &mut b);
    for (from, to) in [(&mut a.tx, &mut b.rx), (&mut b.tx, &mut a.rx)] {
        std::thread::scope(|s| {
            s.spawn(|| from.send(1 << 20));
            to.recv(1 << 20);
        });
    }
    fds::set_nonblocking(a.fd(), true);
    assert_eq!(io::read(a.fd(), &mut [0]), Err(EAGAIN));
    assert_eq!(poll::events_of(a.fd(), libc::POLLIN, 20), 0);
    b.close();
    assert_eq!(poll::events_of(a.fd(), libc::POLLIN, 2000), libc::POLLIN);
    a.rx.expect_eof();
}

/// A connection that is in use goes on when the filter is installed.
fn seccomp_later() {
    let (mut end, mut peer) = link::client(V4);
    forbid(&ODD_CALLS);
    peer.start("mixed", &[1 << 20, 1 << 20, 10_000, 1]);
    crate::traffic::both_ways(&mut end, 1 << 20, 1 << 20, 10_000, 2);
    peer.finish();
    peer.close();
    end.rx.expect_eof();
}

/// Calls that nobody makes for a program which changes a set, and waits in it without a mask.
const NEVER_CALLED: [c_long; 4] = [SYS_epoll_pwait, SYS_epoll_pwait2, SYS_getrandom, SYS_rt_sigaction];

/// From the filter on, the program's calls on epoll sets are those that it makes itself.
fn seccomp_with_a_set() {
    let (mut end, mut peer) = link::client(V4);
    let (set, data) = (Epoll::new(), end.fd() as u64);
    set.add(end.fd(), IN);
    peer.send(100);
    assert_eq!(set.wait(5000), [(IN, data)]);
    end.recv(100);
    forbid(&NEVER_CALLED);
    assert_eq!(set.wait(0), []);
    peer.send(100);
    assert_eq!(set.wait(5000), [(IN, data)]);
    end.recv(100);
    set.modify(end.fd(), OUT);
    assert_eq!(set.wait(5000), [(OUT, data)]);
    let later = Epoll::new();
    later.add(end.fd(), OUT);
    assert_eq!(later.wait(5000), [(OUT, data)]);
    set.delete(end.fd());
    assert_eq!(set.wait(0), []);
    peer.close();
    end.rx.expect_eof();
}

/// No file may grow, and a process that tries gets SIGXFSZ.
fn file_size_zero() {
    let before = set_limit(libc::RLIMIT_FSIZE, 0);
    let (mut a, mut b) = link::own_pair(V4);
    link::warm_up_pair(&mut a, &mut b);
    // The report at exit is a file.
    set_limit(libc::RLIMIT_FSIZE, before);
}

fn little_address_space() {
    let before = leave_address_space(3 << 20);
    // SAFETY: a mapping that is not used.
    let large = unsafe {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::syscall(SYS_mmap, 0usize, 8usize << 20, protection, flags, -1, 0usize)
    };
    assert_eq!(large, -1, "the limit works");
    let (mut a, mut b) = link::own_pair(V4);
    a.send(30_000);
    b.recv(30_000);
    link::warm_up_pair(&mut a, &mut b);
    set_limit(libc::RLIMIT_AS, before);
}

/// One connection has a ring. There is no address space for the memory of another link.
fn no_room_for_a_link() {
    let (mut a, mut b) = link::own_pair(V4);
    let (mut end, mut peer) = link::cold_client(V4, Preload::Kept);
    let before = leave_address_space(200 << 10);
    link::warm_up(&mut end, &mut peer);
    link::warm_up_pair(&mut a, &mut b);
    set_limit(libc::RLIMIT_AS, before);
}

/// Leaves this many bytes that can still be mapped. Returns the former limit.
fn leave_address_space(bytes: u64) -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: u64 = pages.split(' ').next().and_then(|p| p.parse().ok()).expect("a number");
    set_limit(libc::RLIMIT_AS, pages * 4096 + bytes)
}

/// A thread with the smallest permitted stack does all its I/O on it.
fn small_stack() {
    let (mut a, b) = link::own_pair(V4);
    let fd = b.fd();
    let thread = std::thread::Builder::new().stack_size(16 << 10).spawn(move || {
        let mut total = 0;
        let mut buf = [0; 256];
        while total < 100_000 {
            poll::events_of(fd, libc::POLLIN, -1);
            let n = io::read(fd, &mut buf).expect("read");
            assert_eq!(io::write(fd, &buf[..n]), Ok(n));
            total += n;
        }
    });
    // The echo is this side's own stream.
    let back = a.tx.upcoming(100_000);
    a.send(100_000);
    let mut got = vec![0; 100_000];
    assert_eq!(io::recv(a.fd(), &mut got, libc::MSG_WAITALL), Ok(100_000));
    assert!(got == back, "the echo differs");
    thread.expect("a thread").join().expect("the thread");
}

/// As servers do after binding: the process changes its user while connections live, and new ones are made.
fn dropped_privileges() {
    require_root();
    let (mut end, mut peer) = link::client(V4);
    // SAFETY: numbers only.
    unsafe {
        outcome(libc::setresgid(65534, 65534, 65534)).expect("setresgid");
        outcome(libc::setresuid(65534, 65534, 65534)).expect("setresuid");
    }
    link::warm_up(&mut end, &mut peer);
    peer.start("mixed", &[1 << 20, 1 << 20, 10_000, 1]);
    crate::traffic::both_ways(&mut end, 1 << 20, 1 << 20, 10_000, 2);
    peer.finish();
    let (mut a, mut b) = link::numbered_pair(V4, 1);
    link::warm_up_pair(&mut a, &mut b);
}
