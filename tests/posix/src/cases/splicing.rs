//! Moving bytes between sockets, pipes and files without the program seeing them.

use libc::{SPLICE_F_MORE, SPLICE_F_NONBLOCK};

use crate::case::{Case, case};
use crate::link;
use crate::sys::errno::{EAGAIN, EINVAL};
use crate::sys::net::Family::V4;
use crate::sys::{Fd, fds, files, io, net};

pub const CASES: &[Case] = &[
    case("splicing.proxy_by_splice", proxy).reason("splice").bulk(),
    case("splicing.splice_from_an_empty_socket", empty),
    case("splicing.splice_sees_the_end", end),
    case("splicing.splice_wakes_for_data", wakes),
    case("splicing.socket_to_file", to_file).bulk(),
    case("splicing.sendfile_of_a_large_file", large_file).bulk(),
    case("splicing.sendfile_without_blocking", sendfile_nonblocking).bulk(),
    case("splicing.sendfile_from_a_socket_is_refused", from_socket),
    case("splicing.sendfile_from_a_socket_into_a_pipe", into_pipe).reason("splice"),
    case("splicing.sendfile_past_the_end", past_end),
    case("splicing.sendfile_between_writes", between_writes),
    case("splicing.socket_to_socket_is_refused", socket_to_socket),
];

/// As HAProxy forwards: socket, pipe, socket, with reads in between.
fn proxy() {
    const N: u64 = 4 << 20;
    let (mut from, mut sender) = link::client(V4);
    let (to, mut receiver) = link::client(V4);
    let pipe = fds::pipe(libc::O_CLOEXEC);
    sender.start("mixed", &[N, 0, 40_000, 1]);
    let relayed = N - 1000;
    let fd = to.fd();
    let out = std::thread::spawn(move || {
        let mut left = relayed;
        while left > 0 {
            left -= io::splice(pipe.0, fd, left as usize, SPLICE_F_MORE).expect("splice out") as u64;
        }
    });
    // The receiver knows its client's stream, not the sender's: it only counts.
    receiver.start("count", &[relayed]);
    from.recv(1000);
    let mut left = relayed;
    while left > 0 {
        let n = io::splice(from.fd(), pipe.1, left.min(65_536) as usize, 0).expect("splice in");
        assert!(n > 0, "the stream ended early");
        left -= n as u64;
    }
    out.join().expect("the writer");
    sender.finish();
    assert_eq!(receiver.finish(), checksum_of_server_stream(&from, relayed));
}

/// The checksum that the receiver should compute over the bytes that the sender sent last.
fn checksum_of_server_stream(from: &crate::end::End, n: u64) -> u64 {
    let pattern = crate::pattern::Pattern::new(2);
    crate::traffic::checksum(0, &pattern.bytes(from.rx.at, n as usize))
}

fn empty() {
    let (mut end, mut peer) = link::client(V4);
    let pipe = fds::pipe(libc::O_CLOEXEC);
    // SPLICE_F_NONBLOCK concerns the pipe; the socket's own flag concerns the socket.
    fds::set_nonblocking(end.fd(), true);
    assert_eq!(io::splice(end.fd(), pipe.1, 100, SPLICE_F_NONBLOCK), Err(EAGAIN));
    assert_eq!(io::splice(end.fd(), pipe.1, 100, 0), Err(EAGAIN));
    peer.send(60);
    end.rx.await_bytes(60);
    assert_eq!(io::splice(end.fd(), pipe.1, 100, SPLICE_F_NONBLOCK), Ok(60));
    from_pipe(&mut end, pipe.0, 60);
}

fn from_pipe(end: &mut crate::end::End, pipe: Fd, n: usize) {
    let mut buf = vec![0; n];
    assert_eq!(io::read(pipe, &mut buf), Ok(n));
    end.rx.arrived(&buf);
}

fn end() {
    let (mut end, mut peer) = link::client(V4);
    let pipe = fds::pipe(libc::O_CLOEXEC);
    peer.send(500);
    peer.shutdown(libc::SHUT_WR);
    end.rx.await_bytes(500);
    let mut got = 0;
    while got < 500 {
        let n = io::splice(end.fd(), pipe.1, 1000, 0).expect("splice");
        assert!(n > 0, "the end came after {got} bytes");
        from_pipe(&mut end, pipe.0, n);
        got += n;
    }
    assert_eq!(io::splice(end.fd(), pipe.1, 1000, 0), Ok(0));
}

fn wakes() {
    let (mut end, mut peer) = link::client(V4);
    let pipe = fds::pipe(libc::O_CLOEXEC);
    for _ in 0..5 {
        let (fd, out) = (end.fd(), pipe.1);
        let waiter = crate::sys::threads::blocked(move || io::splice(fd, out, 1000, 0));
        peer.send(70);
        assert_eq!(waiter.join(), Ok(70));
        from_pipe(&mut end, pipe.0, 70);
        peer.start("echo", &[1, 100]);
        end.send(100);
        end.recv(100);
        peer.finish();
    }
}

fn to_file() {
    const N: usize = 1 << 20;
    let (mut end, mut peer) = link::client(V4);
    let pipe = fds::pipe(libc::O_CLOEXEC);
    let file = files::holding(b"");
    peer.start("mixed", &[N as u64, 0, 30_000, 1]);
    let mut left = N;
    while left > 0 {
        let n = io::splice(end.fd(), pipe.1, left.min(65_536), 0).expect("splice in");
        let mut inside = n;
        while inside > 0 {
            inside -= io::splice(pipe.0, file, inside, 0).expect("splice out");
        }
        left -= n;
    }
    peer.finish();
    end.rx.arrived(&files::contents(file));
}

fn large_file() {
    const N: usize = 5 << 20;
    let (mut end, mut peer) = link::client(V4);
    let file = files::holding(&end.tx.upcoming(N));
    peer.start("sip", &[20, N as u64 / 20, 1]);
    let mut left = N;
    while left > 0 {
        left -= io::sendfile(end.fd(), file, None, left).expect("sendfile");
    }
    end.tx.sent(N);
    assert_eq!(io::sendfile(end.fd(), file, None, 100), Ok(0), "the file's end");
    peer.finish();
    link::warm_up(&mut end, &mut peer);
}

fn sendfile_nonblocking() {
    const N: usize = 12 << 20;
    let (mut end, mut peer) = link::client(V4);
    fds::set_nonblocking(end.fd(), true);
    let file = files::holding(&end.tx.upcoming(N));
    let (mut offset, mut full) = (0i64, 0);
    while (offset as usize) < N {
        match io::sendfile64(end.fd(), file, Some(&mut offset), N) {
            Ok(n) => assert!(n > 0),
            Err(EAGAIN) => {
                if full == 0 {
                    peer.start("recv", &[N as u64]);
                }
                full += 1;
                crate::sys::poll::events_of(end.fd(), libc::POLLOUT, -1);
            }
            Err(e) => panic!("sendfile at {offset}: {e:?}"),
        }
    }
    assert!(full > 0, "the socket was never full: the case tested nothing");
    end.tx.sent(N);
    peer.finish();
}

/// Linux's sendfile reads from files only; no byte is taken from the socket.
fn from_socket() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(300);
    end.rx.await_bytes(300);
    let file = files::holding(b"");
    assert_eq!(io::sendfile(file, end.fd(), None, 100), Err(EINVAL));
    assert_eq!(io::sendfile64(file, end.fd(), None, 100), Err(EINVAL));
    end.recv(300);
}

/// Into a pipe sendfile(2) is splice(2).
fn into_pipe() {
    let (mut end, mut peer) = link::client(V4);
    let pipe = fds::pipe(libc::O_CLOEXEC);
    for _ in 0..3 {
        peer.send(300);
        end.rx.await_bytes(300);
        let mut moved = 0;
        while moved < 300 {
            let n = io::sendfile(pipe.1, end.fd(), None, 300 - moved).expect("sendfile");
            from_pipe(&mut end, pipe.0, n);
            moved += n;
        }
        peer.start("echo", &[1, 100]);
        end.send(100);
        end.recv(100);
        peer.finish();
    }
}

fn past_end() {
    let (mut end, mut peer) = link::client(V4);
    let file = files::holding(&end.tx.upcoming(100));
    let mut offset = 60;
    assert_eq!(io::sendfile(end.fd(), file, Some(&mut 100), 10), Ok(0));
    end.tx.sent(60);
    assert_eq!(io::sendfile(end.fd(), file, Some(&mut offset), 1000), Ok(40));
    assert_eq!(offset, 100);
    end.tx.sent(40);
    // The end of the count would be no position, however far the file's end is before it.
    assert_eq!(io::sendfile(end.fd(), file, Some(&mut (i64::MAX - (1 << 30))), isize::MAX as usize), Err(EINVAL));
    assert_eq!(io::sendfile(end.fd(), file, Some(&mut 1), isize::MAX as usize), Err(EINVAL));
    peer.call("skip", &[60]);
    peer.recv(40);
}

/// Header by write, body by sendfile, trailer by writev: the order must be kept.
fn between_writes() {
    let (mut end, mut peer) = link::client(V4);
    for round in 0..50 {
        let body = 1 + round * 977;
        peer.start("recv", &[(body + 300) as u64]);
        end.tx.send_by(200, |fd, buf| io::send(fd, buf, libc::MSG_MORE));
        end.tx.send_by(body, crate::ways::send_way("sendfile"));
        end.tx.send_by(100, io::writev);
        peer.finish();
    }
}

/// splice needs a pipe on one side.
fn socket_to_socket() {
    let (mut a, mut b) = link::own_pair(V4);
    b.send(100);
    a.rx.await_bytes(100);
    assert_eq!(io::splice(a.fd(), a.fd(), 100, 0), Err(EINVAL));
    let pipe = fds::pipe(libc::O_CLOEXEC);
    assert_eq!(io::tee(a.fd(), pipe.1, 100, 0), Err(EINVAL));
    a.recv(100);
    assert_eq!(net::take_error(a.fd()), 0);
}
