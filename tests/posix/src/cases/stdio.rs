//! C streams and formatted output on a socket: glibc reads and writes past its own exported functions.

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::peer::Peer;
use crate::sys::cpu::eventually;
use crate::sys::net::Family::V4;
use crate::sys::process::set_limit;
use crate::sys::stdio::{Stream, dprintf, dprintf_chk, read_standard_input};
use crate::sys::threads::state;
use crate::sys::{Fd, fds, io, net};
use libc::RLIMIT_NOFILE;

pub const CASES: &[Case] = &[
    case("stdio.printed_lines_are_read_as_lines", lines),
    case("stdio.dprintf_and_fprintf_in_turn", in_turn).reason("stdio"),
    case("stdio.buffered_bulk_both_ways", bulk).bulk(),
    case("stdio.fgets_waits_and_sees_the_end", waits),
    case("stdio.fclose_is_the_end", fclose),
    case("stdio.fclose_while_the_peer_is_stopped", fclose_while_stopped),
    case("stdio.fclose_of_a_copy_while_the_peer_is_stopped", fclose_of_a_copy_while_stopped),
    case("stdio.flush_at_exit", flush_at_exit),
    case("stdio.duplicated_to_standard_input", to_standard_input).reason("stdio"),
    case("stdio.opened_before_the_first_byte", opened_cold).never("stdio reads where nobody can intercept it"),
];

fn copy_of(fd: Fd) -> Fd {
    fds::dup(fd).expect("dup") as Fd
}

/// As old servers have it: dup(2) gives the number that has just been closed, and libc's stream of that number reads the connection.
fn to_standard_input() {
    let (end, mut peer) = link::client(V4);
    fds::close(0).expect("close");
    assert_eq!(copy_of(end.fd()), 0);
    peer.send(300);
    let mut end = end;
    end.rx.arrived(&read_standard_input(300));
    link::warm_up(&mut end, &mut peer);
}

/// One process sends lines to itself through two streams, as in an old text protocol.
fn lines() {
    let (a, b) = link::own_pair(V4);
    let mut out = Stream::open(copy_of(a.fd()), c"w");
    let mut into = Stream::open(copy_of(b.fd()), c"r");
    for number in 0..200 {
        assert!(out.print(c"line", number) > 0);
        if number % 7 == 0 {
            out.flush().expect("fflush");
        }
    }
    out.flush().expect("fflush");
    for number in 0..200 {
        assert_eq!(into.line(), Some(format!("line {number}\n")));
    }
}

fn in_turn() {
    let (a, b) = link::own_pair(V4);
    let mut out = Stream::open(copy_of(a.fd()), c"w");
    let mut into = Stream::open(copy_of(b.fd()), c"r");
    for number in 0..50 {
        assert!(out.print(c"fprintf", number) > 0);
        out.flush().expect("fflush");
        assert!(dprintf(a.fd(), c"dprintf", number).is_ok());
        assert!(dprintf_chk(a.fd(), c"__dprintf_chk", number).is_ok());
        assert_eq!(io::write(a.fd(), b"write\n"), Ok(6));
        let want = ["fprintf", "dprintf", "__dprintf_chk"].map(|w| format!("{w} {number}\n"));
        for line in want {
            assert_eq!(into.line(), Some(line));
        }
        assert_eq!(into.line(), Some("write\n".into()));
    }
}

/// Pattern bytes through fwrite and fread with their own buffers.
fn bulk() {
    const N: usize = 2 << 20;
    let (mut end, mut peer) = link::client(V4);
    let mut out = Stream::open(copy_of(end.fd()), c"w");
    peer.start("mixed", &[0, N as u64, 30_000, 1]);
    let mut rng = crate::rng::Rng::new(3);
    let mut left = N;
    while left > 0 {
        let n = rng.size(20_000).min(left);
        assert_eq!(out.write(&end.tx.upcoming(n)), n);
        end.tx.sent(n);
        left -= n;
    }
    out.close().expect("fclose");
    peer.finish();
    let mut into = Stream::open(copy_of(end.fd()), c"r");
    peer.start("mixed", &[N as u64, 0, 30_000, 1]);
    let mut buf = vec![0; 5000];
    for _ in 0..N / 5000 {
        assert_eq!(into.read(&mut buf), 5000);
        end.rx.arrived(&buf);
    }
    let rest = &mut buf[..N % 5000];
    assert_eq!(into.read(rest), rest.len());
    end.rx.arrived(rest);
    peer.finish();
}

fn waits() {
    let (a, b) = link::own_pair(V4);
    let fd = b.fd();
    let reader = crate::sys::threads::blocked(move || {
        let mut into = Stream::open(fd, c"r");
        [into.line(), into.line(), into.line()]
    });
    assert_eq!(io::write(a.fd(), b"half "), Ok(5));
    reader.until_asleep();
    assert_eq!(io::write(a.fd(), b"a line\nno line end"), Ok(18));
    net::shutdown(a.fd(), libc::SHUT_WR).expect("shutdown");
    assert_eq!(reader.join(), [Some("half a line\n".into()), Some("no line end".into()), None]);
}

fn fclose() {
    let (mut end, mut peer) = link::client(V4);
    let mut out = Stream::open(end.fd(), c"w");
    assert_eq!(out.write(&end.tx.upcoming(100)), 100);
    end.tx.sent(100);
    out.close().expect("fclose flushes and closes");
    assert!(!fds::is_open(end.fd()));
    assert_eq!(peer.drain(), 100);
}

/// The peer's process cannot give its unread bytes to the kernel meanwhile, and nobody can do it in its place, since there is no
/// descriptor for its socket. The stream's number is then that of an end of a pipe.
fn fclose_while_stopped() {
    let (mut end, mut peer) = link::client(V4);
    stopped_with_unread_bytes(&mut end, &mut peer);
    let mut out = opened_without_descriptors(end.fd());
    assert_eq!(out.write(&end.tx.upcoming(100)), 100);
    out.close().expect("fclose flushes and closes");
    is_a_pipes_number(end.fd());
    peer.signal(libc::SIGCONT);
    is_a_pipes_number(end.fd());
}

/// As [`fclose_while_stopped`], through a copy, after whose stream the program closes the number itself.
fn fclose_of_a_copy_while_stopped() {
    let (mut end, mut peer) = link::client(V4);
    stopped_with_unread_bytes(&mut end, &mut peer);
    let copy = copy_of(end.fd());
    let out = opened_without_descriptors(copy);
    fds::close(end.fd()).expect("close");
    is_a_pipes_number(end.fd());
    out.close().expect("fclose");
    is_a_pipes_number(copy);
    peer.signal(libc::SIGCONT);
    is_a_pipes_number(copy);
}

fn stopped_with_unread_bytes(end: &mut End, peer: &mut Peer) {
    peer.send(1000);
    end.rx.await_bytes(1000);
    peer.signal(libc::SIGSTOP);
    eventually("the peer is stopped", || state(peer.pid) == Some('T'));
}

fn opened_without_descriptors(fd: Fd) -> Stream {
    let before = set_limit(RLIMIT_NOFILE, 3);
    let stream = Stream::open(fd, c"w");
    set_limit(RLIMIT_NOFILE, before);
    stream
}

/// The number is free, and then that of an end of a pipe, which works.
fn is_a_pipes_number(number: Fd) {
    let (read, write) = fds::pipe(libc::O_CLOEXEC);
    assert!([read, write].contains(&number), "the lowest free numbers");
    assert_eq!(io::write(write, b"x"), Ok(1));
    assert_eq!(io::read(read, &mut [0; 10]), Ok(1));
    fds::close(read).expect("close");
    fds::close(write).expect("close");
}

/// exit's own flush sends what is still in a stream's buffer.
fn flush_at_exit() {
    let (mut end, mut peer) = link::client(V4);
    let bytes = end.tx.upcoming(3000);
    let child = crate::sys::process::in_child(|| {
        let mut out = Stream::open(end.fd(), c"w");
        // Nothing is sent before exit: the stream's buffer is larger.
        out.buffered(1 << 16);
        assert_eq!(out.write(&bytes), 3000);
        // SAFETY: ends the process with its exit handlers and stream flushing.
        unsafe { libc::exit(0) }
    });
    child.succeed();
    end.tx.sent(3000);
    peer.recv(3000);
    link::warm_up(&mut end, &mut peer);
}

fn opened_cold() {
    let (mut a, mut b) = link::cold_pair_ends(V4, 0);
    let mut out = Stream::open(copy_of(a.fd()), c"w");
    let mut into = Stream::open(copy_of(b.fd()), c"r");
    for _ in 0..100 {
        assert_eq!(out.write(&a.tx.upcoming(100)), 100);
        out.flush().expect("fflush");
        a.tx.sent(100);
        let mut buf = [0; 100];
        assert_eq!(into.read(&mut buf), 100);
        b.rx.arrived(&buf);
    }
    link::warm_up_pair(&mut a, &mut b);
}
