//! Programs that close every descriptor, or start without standard descriptors.

use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::link::{self, Listener};
use crate::sys::errno::outcome;
use crate::sys::net::{self, Addr, Family::V4};
use crate::sys::process::in_child;
use crate::sys::{Fd, cpu, fds, glibc, io};

pub const CASES: &[Case] = &[
    case("daemon.closes_0_to_1023_then_serves", || closes_then_serves(close_each)),
    case("daemon.closes_by_syscall_then_serves", || closes_then_serves(close_each_by_syscall)),
    case("daemon.closefrom_then_serves", || closes_then_serves(|| fds::closefrom(0))),
    case("daemon.close_range_then_serves", || closes_then_serves(close_range)),
    case("daemon.closes_all_but_its_connection", closes_all_but_one),
    case("daemon.libc_daemon_serves", libc_daemon),
    case("daemon.started_without_standard_descriptors", without_standard),
    case("daemon.own_descriptors_stay_off_0_to_2", off_standard),
];

fn close_each() {
    for fd in 0..1024 {
        let _ = fds::close(fd);
    }
}

fn close_each_by_syscall() {
    for fd in 0..1024 {
        let _ = fds::syscall_close(fd);
    }
}

fn close_range() {
    fds::close_range(0, Fd::MAX, 0).expect("close_range");
}

/// Opens /dev/null until the standard descriptors are taken.
fn standard_to_null() {
    while fds::fcntl(2, libc::F_GETFD, 0).is_err() {
        crate::sys::files::dev_null();
    }
}

fn free_port() -> u16 {
    Listener::new(V4).port()
}

/// Connects as soon as a listener is there.
fn connect_when_up(port: u16) -> End {
    let mut fd = -1;
    cpu::eventually("the daemon listens", || {
        fd = net::socket(V4, libc::SOCK_CLOEXEC);
        let up = net::connect(fd, &Addr::server(V4, port)).is_ok();
        if !up {
            fds::close(fd).expect("close");
        }
        up
    });
    End::new(fd, Side::Client)
}

fn listen_at(port: u16) -> Listener {
    let fd = net::server_socket(V4, libc::SOCK_CLOEXEC);
    net::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1).expect("SO_REUSEADDR");
    net::bind(fd, &Addr::server(V4, port)).expect("bind");
    net::listen(fd, 8).expect("listen");
    Listener { fd, family: V4 }
}

fn serve(fd: Fd) {
    let mut end = End::new(fd, Side::Server);
    link::warm_answering(&mut end);
    end.rx.expect_eof();
    end.close();
}

fn ask(mut end: End) {
    link::warm_asking(&mut end);
    end.close();
}

/// The process had connections before. It closes all descriptors, including the library's, and starts anew.
fn closes_then_serves(close_all: fn()) {
    let (mut end, mut peer) = link::client(V4);
    let port = free_port();
    let daemon = in_child(|| {
        close_all();
        standard_to_null();
        let listener = listen_at(port);
        for _ in 0..2 {
            serve(listener.accept());
        }
    });
    ask(connect_when_up(port));
    link::warm_up(&mut end, &mut peer);
    ask(connect_when_up(port));
    daemon.succeed();
    link::warm_up(&mut end, &mut peer);
}

/// One connection stays open while all other descriptors are closed.
fn closes_all_but_one() {
    let (mut a, mut b) = link::own_pair(V4);
    let child = in_child(|| {
        for fd in (0..1024).filter(|&fd| fd != b.fd()) {
            let _ = fds::close(fd);
        }
        standard_to_null();
        for _ in 0..100 {
            b.recv(100);
            b.send(100);
        }
    });
    b.close();
    for _ in 0..100 {
        a.send(100);
        a.recv(100);
    }
    child.succeed();
    a.rx.expect_eof();
}

/// Two forks, a new session, the standard descriptors on /dev/null.
fn libc_daemon() {
    let port = free_port();
    in_child(|| {
        // SAFETY: numbers only.
        outcome(unsafe { glibc::daemon(0, 0) }).expect("daemon");
        // In its own session the daemon is beyond the runner's reach, so it sets a time limit itself.
        // SAFETY: numbers only.
        unsafe { libc::alarm(15) };
        serve(listen_at(port).accept());
    })
    .succeed();
    ask(connect_when_up(port));
}

/// The socket becomes descriptor 0, and no other file gets 1 or 2.
fn without_standard() {
    let listener = Listener::new(V4);
    let port = std::ffi::CString::new(listener.port().to_string()).expect("a number");
    let program = crate::spawn::program();
    let child = in_child(|| {
        (0..3).for_each(|fd| assert_eq!(fds::close(fd), Ok(0)));
        // SAFETY: path and arguments are valid and end with null.
        unsafe {
            libc::execl(
                program.as_ptr(),
                c"posix-cases".as_ptr(),
                c"bare".as_ptr(),
                port.as_ptr(),
                std::ptr::null::<libc::c_char>(),
            )
        };
        panic!("execl: {:?}", crate::sys::errno::Errno::last());
    });
    serve(listener.accept());
    child.succeed();
}

/// The standard descriptors are closed after the start: later descriptors of the library must not get these numbers either.
fn off_standard() {
    let child = in_child(|| {
        (0..3).for_each(|fd| assert_eq!(fds::close(fd), Ok(0)));
        let (client, server) = (100, 101);
        {
            let pair = link::cold_pair(V4);
            fds::dup2(pair.0, client).expect("dup2");
            fds::dup2(pair.1, server).expect("dup2");
            fds::close(pair.0).expect("close");
            fds::close(pair.1).expect("close");
        }
        let mut a = End::new(client, Side::Client);
        let mut b = End::new(server, Side::Server);
        for _ in 0..5 {
            link::warm_up_pair(&mut a, &mut b);
            for fd in 0..3 {
                assert_eq!(fds::target(fd), None, "something is on descriptor {fd}");
            }
        }
        assert_eq!(io::write(1, b"lost"), Err(crate::sys::errno::EBADF));
    });
    child.succeed();
    let (mut a, mut b) = link::own_pair(V4);
    link::warm_up_pair(&mut a, &mut b);
}
