//! Invalid numbers: lengths that overflow, too many vectors, messages, events or descriptors. The kernel's answer is not an
//! error in each case.

use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_void, epoll_event, fd_set, iovec, mmsghdr, msghdr, timeval};

use crate::around::on_both;
use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::sys::epoll::{self, Epoll};
use crate::sys::errno::{EBADF, EEXIST, EFAULT, EINVAL, EMSGSIZE, EOPNOTSUPP, ESPIPE, Outcome, outcome};
use crate::sys::net::Family::V4;
use crate::sys::select::{Bits, Sets};
use crate::sys::threads::{Blocked, blocked};
use crate::sys::{Fd, bad, fds, io, net, poll, process, select};

pub const CASES: &[Case] = &[
    case("counts.of_vectors", || on_both(vectors)),
    case("counts.of_messages", || on_both(messages)),
    case("counts.lengths_that_overflow", || on_both(lengths)),
    case("counts.of_events", || on_both(events)),
    case("counts.of_polled_descriptors", || on_both(polled)),
    case("counts.list_as_long_as_the_limit", longest_list).reason("fd-limit"),
    case("counts.of_selected_descriptors", || on_both(selected)),
    case("counts.limit_as_the_number_of_selected", limit_of_descriptors),
    case("counts.ways_to_shut_down", || on_both(ways_to_shut_down)),
    case("counts.flags_that_do_not_exist", || on_both(flags)),
    case("counts.flags_that_only_the_kernel_serves", served_by_the_kernel).reason("kernel-feature"),
    case("counts.positions_of_a_socket", || on_both(positions)),
];

/// Vectors of one byte each, as many as bytes.
fn bytes_as_vectors(bytes: &mut [u8]) -> Vec<iovec> {
    bytes.iter_mut().map(|b| iovec { iov_base: std::ptr::from_mut(b).cast(), iov_len: 1 }).collect()
}

fn message(v: &mut [iovec]) -> msghdr {
    // SAFETY: integers and null pointers.
    let mut m: msghdr = unsafe { zeroed() };
    (m.msg_iov, m.msg_iovlen) = (v.as_mut_ptr(), v.len());
    m
}

fn vectors(client: &mut End, server: &mut End) {
    let fd = client.fd();
    let mut bytes = vec![0; 1025];
    let mut v = bytes_as_vectors(&mut bytes);
    server.send(1);
    client.rx.await_bytes(1);
    // SAFETY: the vectors and their bytes are alive; wrong counts are what is tested.
    unsafe {
        for n in [1025, -1, i32::MIN, i32::MAX] {
            assert_eq!(outcome(libc::writev(fd, v.as_ptr(), n)), Err(EINVAL));
            assert_eq!(outcome(libc::readv(fd, v.as_ptr(), n)), Err(EINVAL));
            assert_eq!(outcome(libc::preadv2(fd, v.as_ptr(), n, -1, 0)), Err(EINVAL));
            assert_eq!(outcome(libc::pwritev2(fd, v.as_ptr(), n, -1, 0)), Err(EINVAL));
        }
        assert_eq!(outcome(libc::writev(fd, null(), 0)), Ok(0));
        assert_eq!(outcome(libc::readv(fd, null(), 0)), Ok(0));
        let mut m = message(&mut v);
        assert_eq!(outcome(libc::sendmsg(fd, &m, 0)), Err(EMSGSIZE));
        assert_eq!(outcome(libc::recvmsg(fd, &mut m, libc::MSG_DONTWAIT)), Err(EMSGSIZE));
        m.msg_iovlen = usize::MAX;
        assert_eq!(outcome(libc::sendmsg(fd, &m, 0)), Err(EMSGSIZE));
        m.msg_iovlen = 0;
        assert_eq!(outcome(libc::sendmsg(fd, &m, 0)), Ok(0));
        m.msg_name = bytes.as_mut_ptr().cast();
        m.msg_namelen = u32::MAX;
        assert_eq!(outcome(libc::sendmsg(fd, &m, 0)), Err(EINVAL));
        assert_eq!(outcome(libc::recvmsg(fd, &mut m, libc::MSG_DONTWAIT)), Err(EINVAL));
    }
    client.recv(1);
    // As many as permitted.
    let mut bytes = client.tx.upcoming(1024);
    let v = bytes_as_vectors(&mut bytes);
    // SAFETY: as above.
    assert_eq!(outcome(unsafe { libc::writev(fd, v.as_ptr(), 1024) }), Ok(1024));
    client.tx.sent(1024);
    server.rx.await_bytes(1024);
    let mut room = vec![0; 1024];
    let v = bytes_as_vectors(&mut room);
    // SAFETY: as above.
    assert_eq!(outcome(unsafe { libc::readv(server.fd(), v.as_ptr(), 1024) }), Ok(1024));
    server.rx.arrived(&room);
}

fn messages(client: &mut End, server: &mut End) {
    const N: usize = 1500;
    let mut bytes = client.tx.upcoming(N);
    let mut v = bytes_as_vectors(&mut bytes);
    let entry = |v: &mut iovec| mmsghdr { msg_hdr: message(std::slice::from_mut(v)), msg_len: 0 };
    let mut all: Vec<mmsghdr> = v.iter_mut().map(entry).collect();
    // SAFETY: as many entries as are said, all alive.
    unsafe {
        assert_eq!(outcome(libc::sendmmsg(client.fd(), null_mut(), 0, 0)), Ok(0));
        assert_eq!(outcome(libc::sendmmsg(client.fd(), all.as_mut_ptr(), N as u32, 0)), Ok(1024), "as many as fit");
        client.tx.sent(1024);
        server.rx.await_bytes(1024);
        assert_eq!(outcome(libc::recvmmsg(server.fd(), null_mut(), 0, 0, null_mut())), Ok(0));
        let mut room = vec![0; N];
        let mut v = bytes_as_vectors(&mut room);
        let mut all: Vec<mmsghdr> = v.iter_mut().map(entry).collect();
        let got = outcome(libc::recvmmsg(server.fd(), all.as_mut_ptr(), N as u32, libc::MSG_DONTWAIT, null_mut()));
        assert_eq!(got, Ok(1024));
        server.rx.arrived(&room[..1024]);
    }
}

fn lengths(client: &mut End, server: &mut End) {
    let fd = client.fd();
    let mut byte = 0u8;
    let at = (&raw mut byte).cast::<c_void>();
    let vector = |len: usize| iovec { iov_base: at, iov_len: len };
    server.send(3);
    client.rx.await_bytes(3);
    // SAFETY: lengths that are no lengths, which the kernel looks at first.
    unsafe {
        for len in [usize::MAX, isize::MAX as usize + 1] {
            assert_eq!(outcome(libc::read(fd, at, len)), Err(EFAULT));
            assert_eq!(outcome(libc::write(fd, at, len)), Err(EFAULT));
            assert_eq!(outcome(libc::readv(fd, &vector(len), 1)), Err(EINVAL));
            assert_eq!(outcome(libc::writev(fd, &vector(len), 1)), Err(EINVAL));
            assert_eq!(outcome(libc::writev(fd, [vector(1), vector(len)].as_ptr(), 2)), Err(EINVAL));
            assert_eq!(outcome(libc::sendmsg(fd, &message(&mut [vector(len)]), 0)), Err(EINVAL));
        }
        assert_eq!(outcome(libc::writev(fd, [vector(isize::MAX as usize), vector(1)].as_ptr(), 2)), Err(EFAULT));
        // A length beyond what one call can move is no error by itself: the buffer is large enough for the bytes that are
        // there.
        let (_, room) = reserve(3 << 30);
        assert_eq!(outcome(libc::recv(fd, room, 3 << 30, 0)), Ok(3));
        client.rx.arrived(std::slice::from_raw_parts(room.cast(), 3));
        server.send(3);
        client.rx.await_bytes(3);
        assert_eq!(outcome(libc::read(fd, room, 3 << 30)), Ok(3));
        client.rx.arrived(std::slice::from_raw_parts(room.cast(), 3));
        assert_eq!(libc::munmap(room, 3 << 30), 0);
    }
}

/// Address space that uses memory only where it is touched.
fn reserve(len: usize) -> (usize, *mut c_void) {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let at = unsafe { libc::mmap(null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, kind, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED, "{:?}", crate::sys::errno::Errno::last());
    (len, at)
}

fn events(client: &mut End, _: &mut End) {
    let set = Epoll::new();
    set.add(client.fd(), epoll::OUT);
    let mut room = [epoll_event { events: 0, u64: 0 }; 2];
    for n in [0, -1, i32::MIN, i32::MAX, i32::MAX / 12 + 1] {
        // SAFETY: numbers of events that the kernel refuses before it looks at the room.
        assert_eq!(outcome(unsafe { libc::epoll_wait(set.fd, room.as_mut_ptr(), n, 10) }), Err(EINVAL), "{n} events");
    }
    assert_eq!(set.wait(1000), [(epoll::OUT, client.fd() as u64)]);
    // Registrations that were removed and added again with invalid combinations of flags.
    let (add, modify) = (libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_MOD);
    let exclusive = epoll::IN | epoll::EXCLUSIVE;
    assert_eq!(set.control(add, client.fd(), exclusive | epoll::ONESHOT, 1), Err(EINVAL), "before EEXIST");
    assert_eq!(set.control(add, client.fd(), exclusive, 1), Err(EEXIST));
    assert_eq!(set.control(modify, client.fd(), exclusive, 1), Err(EINVAL));
    set.delete(client.fd());
    for more in [epoll::ONESHOT, epoll::RDHUP, epoll::PRI] {
        assert_eq!(set.control(add, client.fd(), exclusive | more, 1), Err(EINVAL));
    }
    assert_eq!(set.control(modify, client.fd(), exclusive, 1), Err(EINVAL), "before ENOENT");
    assert_eq!(set.control(add, client.fd(), exclusive | epoll::OUT | epoll::ET, 1), Ok(0));
    assert_eq!(set.control(modify, client.fd(), epoll::IN, 1), Err(EINVAL), "exclusive ones are not changed");
    fds::close(set.fd).expect("close");
}

fn polled(client: &mut End, _: &mut End) {
    let one = poll::want(client.fd(), libc::POLLOUT);
    let limit = process::set_limit(libc::RLIMIT_NOFILE, 300);
    let mut all = vec![one; 301];
    assert_eq!(poll::poll(&mut all, 0), Err(EINVAL), "more than the process may have");
    for n in [u64::MAX, u64::from(u32::MAX), 1 << 20] {
        // SAFETY: so many entries are never read.
        let ret = unsafe { libc::poll(all.as_mut_ptr(), n, 0) };
        assert_eq!(outcome(ret), Err(EINVAL), "{n}");
    }
    assert_eq!(poll::poll(&mut all[..299], 0), Ok(299));
    process::set_limit(libc::RLIMIT_NOFILE, limit);
    // Entries to be skipped, and one for a descriptor that is not open.
    let mut list = [poll::want(-1, libc::POLLOUT), one, poll::want(-7, libc::POLLIN), poll::want(9_999, libc::POLLIN)];
    list[0].revents = 77;
    assert_eq!(poll::poll(&mut list, 0), Ok(2));
    let told: Vec<i16> = list.iter().map(|p| p.revents).collect();
    assert_eq!(told, [0, libc::POLLOUT, 0, libc::POLLNVAL]);
    assert_eq!(poll::poll(&mut [], 0), Ok(0));
}

/// A list that is as long as the kernel permits has no room for the doorbell.
fn longest_list() {
    let (mut client, mut server) = link::own_pair(V4);
    let limit = process::set_limit(libc::RLIMIT_NOFILE, 300);
    let mut all = vec![poll::want(client.fd(), libc::POLLIN); 300];
    assert_eq!(poll::poll(&mut all, 0), Ok(0));
    server.send(1);
    assert_eq!(poll::poll(&mut all, -1), Ok(300));
    process::set_limit(libc::RLIMIT_NOFILE, limit);
    client.recv(1);
    link::warm_up_pair(&mut client, &mut server);
}

fn selected(client: &mut End, server: &mut End) {
    let fd = client.fd();
    let read_of = |fds: &[Fd]| Sets { read: Bits::of(fds), ..Sets::default() };
    let ask = |limit, sets: &mut Sets| select::select(limit, sets, 0).0;
    assert_eq!(ask(-1, &mut read_of(&[fd])), Err(EINVAL));
    assert_eq!(ask(i32::MIN, &mut read_of(&[fd])), Err(EINVAL));
    assert_eq!(ask(0, &mut read_of(&[fd])), Ok(0));
    let mut beyond = read_of(&[fd]);
    assert_eq!(ask(fd, &mut beyond), Ok(0), "only descriptors below the limit count");
    server.send(1);
    client.rx.await_bytes(1);
    let mut sets = read_of(&[fd]);
    assert_eq!(ask(fd + 1, &mut sets), Ok(1));
    assert!(sets.read.has(fd));
    // A closed descriptor is an error; one beyond the descriptor table is ignored.
    assert_eq!(ask(fd + 20, &mut read_of(&[fd, fd + 15])), Err(EBADF));
    let mut far = read_of(&[fd, 4000]);
    let answer = ask(4001, &mut far);
    assert_eq!(answer, if table_has(4000) { Err(EBADF) } else { Ok(1) });
    client.recv(1);
}

/// Whether the kernel's descriptor table of this process has room for the number.
fn table_has(number: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let size = status.lines().find_map(|l| l.strip_prefix("FDSize:")).expect("FDSize");
    number < size.trim().parse::<i32>().expect("a number")
}

/// Many programs pass their limit of descriptors, and sets of the usual size: the kernel reads the sets only as far as its
/// descriptor table reaches.
fn limit_of_descriptors() {
    static WORDS: [AtomicU64; LIMIT / 64] = [const { AtomicU64::new(0) }; LIMIT / 64];
    let (mut end, mut peer) = link::client(V4);
    let (word, bit) = (end.fd() as usize / 64, 1u64 << (end.fd() % 64));
    // No memory behind the set.
    let set = bad::ends_after(size_of::<fd_set>()).cast::<u64>();
    // SAFETY: a word of the set.
    unsafe { set.add(word).write(bit) };
    let waits = select_up_to_the_limit(set as usize);
    peer.send(10);
    assert_eq!(waits.join(), Ok(1));
    // SAFETY: as above.
    assert_eq!(unsafe { set.add(word).read() }, bit);
    end.recv(10);
    // Memory of another thread behind the set.
    WORDS[word].store(bit, Ordering::Relaxed);
    let waits = select_up_to_the_limit(WORDS.as_ptr() as usize);
    let other = &WORDS[size_of::<fd_set>() / 8 + 5];
    other.store(77, Ordering::Relaxed);
    peer.send(10);
    assert_eq!(waits.join(), Ok(1));
    assert_eq!(other.load(Ordering::Relaxed), 77, "select wrote behind the set");
    end.recv(10);
}

const LIMIT: usize = 65_536;

/// A thread that waits up to five seconds for what is readable in the set at this address.
fn select_up_to_the_limit(set: usize) -> Blocked<Outcome> {
    blocked(move || {
        let mut time = timeval { tv_sec: 5, tv_usec: 0 };
        let set = set as *mut fd_set;
        // SAFETY: the set has room for each descriptor that this process can have.
        outcome(unsafe { libc::select(LIMIT as i32, set, null_mut(), null_mut(), &mut time) })
    })
}

fn ways_to_shut_down(client: &mut End, _: &mut End) {
    for how in [-1, 3, 7] {
        assert_eq!(net::shutdown(client.fd(), how), Err(EINVAL));
    }
}

fn flags(client: &mut End, server: &mut End) {
    let fd = client.fd();
    // Arguments that close nothing: flags that do not exist, and an invalid range.
    assert_eq!(fds::close_range(fd, fd, 1 << 10), Err(EINVAL));
    assert_eq!(fds::close_range(fd + 1, fd, 0), Err(EINVAL));
    assert!(fds::is_open(fd));
    // For 32-bit programs only.
    let compat = i32::MIN;
    let bytes = client.tx.upcoming(4);
    assert_eq!(io::sendmsg(fd, &bytes, compat), Err(EINVAL));
    assert_eq!(io::recvmsg(fd, &mut [0; 4], compat), Err(EINVAL));
    // Unknown flags have no effect.
    assert_eq!(client.tx.try_send(4, |fd, buf| io::send(fd, buf, 0x4000_0000)), Ok(4));
    server.recv(4);
    let bad = |flags| -> Outcome { io::pwritev2(fd, &bytes, flags) };
    assert_eq!(bad(1 << 20), Err(EOPNOTSUPP));
    server.send(3);
    client.rx.await_bytes(3);
    assert_eq!(io::preadv2(fd, &mut [0; 4], 1 << 20), Err(EOPNOTSUPP));
    client.recv(3);
}

/// Flags that the kernel accepts and the library does not know: the kernel moves the bytes itself.
fn served_by_the_kernel() {
    let (mut client, mut server) = link::own_pair(V4);
    for _ in 0..3 {
        assert_eq!(client.tx.try_send(100, |fd, buf| io::pwritev2(fd, buf, libc::RWF_APPEND)), Ok(100));
        server.rx.await_bytes(100);
        assert_eq!(server.rx.try_recv(100, |fd, buf| io::preadv2(fd, buf, libc::RWF_APPEND)), Ok(100));
        server.send(100);
        client.recv(100);
    }
}

fn positions(client: &mut End, _: &mut End) {
    let fd = client.fd();
    let mut byte = [0u8];
    let v = iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: one live byte.
    unsafe {
        assert_eq!(outcome(libc::pread(fd, v.iov_base, 1, 0)), Err(ESPIPE));
        assert_eq!(outcome(libc::pwrite(fd, v.iov_base, 1, 0)), Err(ESPIPE));
        assert_eq!(outcome(libc::preadv2(fd, &v, 1, 0, 0)), Err(ESPIPE));
        assert_eq!(outcome(libc::pwritev2(fd, &v, 1, 0, 0)), Err(ESPIPE));
        assert_eq!(outcome(libc::preadv2(fd, &v, 1, -2, 0)), Err(EINVAL));
        assert_eq!(outcome(libc::lseek(fd, 0, libc::SEEK_CUR)), Err(ESPIPE));
        // Neither end may be given an offset.
        let (out, into) = fds::pipe(0);
        let mut at = 0i64;
        assert!(outcome(libc::splice(out, null_mut(), fd, &mut at, 1, 0)).is_err());
        assert!(outcome(libc::splice(fd, &mut at, into, null_mut(), 1, 0)).is_err());
        fds::close(out).expect("close");
        fds::close(into).expect("close");
    }
}
