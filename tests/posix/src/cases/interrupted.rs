//! Signals that arrive during a wait, and handlers that do I/O.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use libc::{SA_RESTART, SIGALRM, SIGUSR1, c_int};

use crate::case::{Case, case};
use crate::end::{End, Recv};
use crate::link;
use crate::sys::cpu::{measure, sleep_ms};
use crate::sys::epoll::{self, Epoll};
use crate::sys::errno::{EINTR, Outcome};
use crate::sys::net::Family::V4;
use crate::sys::process::{Ended, exit_now, wait_for};
use crate::sys::select::{Bits, Sets};
use crate::sys::{Fd, fds, io, poll, select, signal};
use crate::ways::{receiving, sending};

pub const CASES: &[Case] = &[
    case("interrupted.receives_say_eintr", receives),
    case("interrupted.sends_say_eintr", sends).bulk(),
    case("interrupted.waits_say_eintr", || waits(0)),
    case("interrupted.waits_say_eintr_even_with_sa_restart", || waits(SA_RESTART)),
    case("interrupted.receives_restart", receives_restart),
    case("interrupted.sends_restart", sends_restart).bulk(),
    case("interrupted.write_returns_the_part_written", part_written).bulk(),
    case("interrupted.waitall_returns_the_part_received", part_received),
    case("interrupted.masks_of_ppoll_pselect_epoll_pwait", masks),
    case("interrupted.signal_waiting_before_ppoll_is_not_lost", waiting_signal),
    case("interrupted.signal_waiting_before_a_look_without_time", waiting_signal_without_time),
    case("interrupted.handler_writes_to_another_socket", handler_writes_elsewhere),
    case("interrupted.handler_writes_to_the_same_socket", handler_writes_here),
    case("interrupted.handler_forks", handler_forks),
    case("interrupted.storm_of_signals_loses_nothing", storm).bulk(),
    case("interrupted.blocked_signal_that_is_pending_keeps_nobody_awake", blocked_and_pending),
];

fn interrupted_soon(flags: c_int) {
    signal::count_signal(SIGALRM, flags);
    signal::alarm_ms(30, 0);
}

fn restarting(name: &str) -> bool {
    // fread and fwrite hide the code; aio waits in another thread; these calls cover the rest.
    !name.contains("dontwait") && !["fread", "fwrite", "aio_read", "aio_write"].contains(&name)
}

fn receives() {
    let (mut end, _peer) = link::client(V4);
    for (name, call) in receiving::ALL.iter().filter(|way| restarting(way.0)) {
        let before = signal::count(SIGALRM);
        interrupted_soon(0);
        assert_eq!(end.rx.try_recv(10, *call), Err(EINTR), "{name}");
        assert_eq!(signal::count(SIGALRM), before + 1, "{name}");
    }
}

fn sends() {
    let (mut end, mut peer) = link::client(V4);
    let filled = end.tx.fill();
    for (name, call) in &sending::ALL[..sending::PLAIN] {
        interrupted_soon(0);
        assert_eq!(end.tx.try_send(10, *call), Err(EINTR), "{name}");
    }
    peer.recv(filled);
}

fn blocked_and_pending() {
    let (mut end, mut peer) = link::client(V4);
    signal::count_signal(SIGALRM, 0); // one that does not restart
    signal::block(&[SIGUSR1]);
    // SAFETY: no memory involved.
    unsafe { libc::raise(SIGUSR1) };
    peer.after(300).start("send", &[10]);
    let (clock, cpu) = measure(|| end.recv(10));
    peer.finish();
    assert!(cpu * 3 < clock, "{cpu:?} of processor time in {clock:?} of sleep");
}

/// poll, select and epoll_wait are never restarted.
fn waits(flags: c_int) {
    let (end, _peer) = link::client(V4);
    let fd = end.fd();
    let set = Epoll::new();
    set.add(fd, epoll::IN);
    let mut sets = Sets { read: Bits::of(&[fd]), ..Sets::default() };
    let fds = || [poll::want(fd, libc::POLLIN)];
    let check = |name: &str, wait: &mut dyn FnMut() -> Outcome| {
        interrupted_soon(flags);
        assert_eq!(wait(), Err(EINTR), "{name}");
    };
    check("poll", &mut || poll::poll(&mut fds(), 5000));
    check("__poll", &mut || poll::under_poll(&mut fds(), -1));
    check("__poll_chk", &mut || poll::poll_chk(&mut fds(), 5000));
    check("ppoll", &mut || poll::ppoll(&mut fds(), -1, None));
    check("__ppoll_chk", &mut || poll::ppoll_chk(&mut fds(), 5000));
    check("select", &mut || select::select(fd + 1, &mut sets.clone(), 5000).0);
    check("__select", &mut || select::under_select(fd + 1, &mut sets.clone(), 5000));
    check("pselect", &mut || select::pselect(fd + 1, &mut sets, 5000, None));
    check("epoll_wait", &mut || set.try_wait(8, -1).map(|e| e.len()));
    check("epoll_pwait", &mut || set.pwait(5000, &signal::set_of(&[])).map(|e| e.len()));
    check("epoll_pwait2", &mut || set.pwait2(-1, None).map(|e| e.len()));
}

/// With SA_RESTART the call continues to wait after the handler.
fn receives_restart() {
    let (mut end, mut peer) = link::client(V4);
    // The kernel restarts recvmmsg like the others.
    for (name, call) in receiving::ALL.iter().filter(|way| restarting(way.0)) {
        let before = signal::count(SIGALRM);
        interrupted_soon(SA_RESTART);
        peer.after(60).start("send", &[10]);
        assert_eq!(end.rx.try_recv(10, *call), Ok(10), "{name}");
        assert_eq!(signal::count(SIGALRM), before + 1, "{name}");
        peer.finish();
    }
}

fn sends_restart() {
    let (mut end, mut peer) = link::client(V4);
    for (name, call) in &sending::ALL[..5] {
        let queued = end.tx.fill() + 10;
        let before = signal::count(SIGALRM);
        interrupted_soon(SA_RESTART);
        peer.after(60).start("recv", &[queued as u64]);
        assert_eq!(end.tx.try_send(10, *call), Ok(10), "{name}");
        assert_eq!(signal::count(SIGALRM), before + 1, "{name}");
        peer.finish();
    }
}

fn part_written() {
    let (mut end, mut peer) = link::client(V4);
    let bytes = end.tx.upcoming(64 << 20);
    interrupted_soon(0);
    let part = io::write(end.fd(), &bytes).expect("the part that fits");
    assert!(part > 0 && part < bytes.len(), "{part} bytes were written with nobody reading");
    end.tx.sent(part);
    peer.recv(part);
}

fn part_received() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(100);
    for flags in [0, SA_RESTART] {
        end.rx.await_bytes(100);
        interrupted_soon(flags);
        let all: Recv = |fd, buf| io::recv(fd, buf, libc::MSG_WAITALL);
        assert_eq!(end.rx.try_recv(1000, all), Ok(100));
        peer.send(100);
    }
}

/// Both processes come back into the call. The child does so when its parent sleeps again, and must not keep it from being woken.
fn handler_forks() {
    static CHILD: AtomicI32 = AtomicI32::new(0);
    extern "C" fn fork(_: c_int) {
        // SAFETY: the process has one thread.
        CHILD.store(unsafe { libc::fork() }, Ordering::Relaxed);
        if CHILD.load(Ordering::Relaxed) == 0 {
            sleep_ms(60);
        }
    }
    let (mut end, mut peer) = link::client(V4);
    let fd = end.fd();
    let set = Epoll::new();
    set.add(fd, epoll::IN);
    let sets = Sets { read: Bits::of(&[fd]), ..Sets::default() };
    let mut check = |name: &str, wait: &mut dyn FnMut() -> Outcome| {
        signal::handle(SIGALRM, 0, fork);
        signal::alarm_ms(30, 0);
        assert_eq!(wait(), Err(EINTR), "{name}");
        let child = CHILD.load(Ordering::Relaxed);
        if child == 0 {
            exit_now(0);
        }
        peer.after(150).start("send", &[10]);
        assert_eq!(wait(), Ok(1), "{name}");
        peer.finish();
        end.recv(10);
        assert_eq!(wait_for(child), Ended::Exit(0), "{name}");
    };
    check("recv", &mut || io::recv(fd, &mut [0; 1], libc::MSG_PEEK));
    check("poll", &mut || poll::poll(&mut [poll::want(fd, libc::POLLIN)], 5000));
    check("select", &mut || select::select(fd + 1, &mut sets.clone(), 5000).0);
    check("epoll_wait", &mut || set.try_wait(8, 5000).map(|e| e.len()));
}

/// The signal is blocked except during the wait, so it is delivered there only.
fn masks() {
    let (end, _peer) = link::client(V4);
    let fd = end.fd();
    let open = signal::block(&[SIGALRM]);
    let set = Epoll::new();
    set.add(fd, epoll::IN);
    let mut sets = Sets { read: Bits::of(&[fd]), ..Sets::default() };
    let check = |name: &str, wait: &mut dyn FnMut() -> Outcome| {
        let before = signal::count(SIGALRM);
        interrupted_soon(0);
        assert_eq!(poll::events_of(fd, libc::POLLIN, 60), 0, "{name}: blocked outside");
        assert_eq!(signal::count(SIGALRM), before, "{name}: blocked outside");
        assert_eq!(wait(), Err(EINTR), "{name}");
        assert_eq!(signal::count(SIGALRM), before + 1, "{name}");
    };
    check("ppoll", &mut || poll::ppoll(&mut [poll::want(fd, libc::POLLIN)], 5000, Some(&open)));
    check("pselect", &mut || select::pselect(fd + 1, &mut sets, 5000, Some(&open)));
    check("epoll_pwait", &mut || set.pwait(5000, &open).map(|e| e.len()));
    check("epoll_pwait2", &mut || set.pwait2(5000, Some(&open)).map(|e| e.len()));
}

/// If data is there already, the wait returns it, and the signal stays pending.
fn waiting_signal() {
    let (mut end, mut peer) = link::client(V4);
    let fd = end.fd();
    let open = signal::block(&[SIGUSR1]);
    signal::count_signal(SIGUSR1, 0);
    // SAFETY: raises a signal that has a handler.
    unsafe { libc::raise(SIGUSR1) };
    assert_eq!(poll::ppoll(&mut [poll::want(fd, libc::POLLIN)], 5000, Some(&open)), Err(EINTR));
    assert_eq!(signal::count(SIGUSR1), 1);
    peer.send(10);
    assert_eq!(poll::ppoll(&mut [poll::want(fd, libc::POLLIN)], 5000, Some(&open)), Ok(1));
    end.recv(10);
}

/// A mask that lets the signal through does so in a call without time to wait, too, unless there is something to report.
/// epoll_pwait returns before it looks for signals.
fn waiting_signal_without_time() {
    let (mut end, mut peer) = link::client(V4);
    let (fd, pipe) = (end.fd(), fds::pipe(libc::O_CLOEXEC).0);
    let open = signal::block(&[SIGUSR1]);
    signal::count_signal(SIGUSR1, SA_RESTART);
    // SAFETY: raises a signal that has a handler.
    let raise = || assert_eq!(unsafe { libc::raise(SIGUSR1) }, 0);
    let ppoll = || poll::ppoll(&mut [poll::want(fd, libc::POLLIN)], 0, Some(&open));
    let beside_a_pipe =
        |mask| poll::ppoll(&mut [poll::want(fd, libc::POLLIN), poll::want(pipe, libc::POLLIN)], 0, mask);
    let pselect = |fds: &[Fd]| {
        let mut sets = Sets { read: Bits::of(fds), ..Sets::default() };
        select::pselect(fd.max(pipe) + 1, &mut sets, 0, Some(&open))
    };
    let calls: [(&str, &dyn Fn() -> Outcome); 4] = [
        ("ppoll", &ppoll),
        ("ppoll beside a pipe", &|| beside_a_pipe(Some(&open))),
        ("pselect", &|| pselect(&[fd])),
        ("pselect beside a pipe", &|| pselect(&[fd, pipe])),
    ];
    for (round, (name, call)) in calls.into_iter().enumerate() {
        raise();
        assert_eq!(call(), Err(EINTR), "{name}");
        assert_eq!(signal::count(SIGUSR1), round + 1, "{name}");
        assert_eq!(call(), Ok(0), "{name}: no signal waits");
    }
    let set = Epoll::new();
    set.add(fd, epoll::IN);
    raise();
    assert_eq!(beside_a_pipe(None), Ok(0), "blocked");
    assert_eq!(set.pwait(0, &open), Ok(vec![]));
    peer.send(10);
    end.rx.await_bytes(10);
    assert_eq!((ppoll(), pselect(&[fd])), (Ok(1), Ok(1)));
    assert_eq!(signal::count(SIGUSR1), calls.len(), "what is ready comes first");
    end.recv(10);
    assert_eq!(ppoll(), Err(EINTR));
}

static HANDLERS_FD: AtomicI32 = AtomicI32::new(-1);
static HANDLERS_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Writes one byte to a socket from a signal handler, where write is permitted.
extern "C" fn write_a_byte(_: c_int) {
    if io::write(HANDLERS_FD.load(Ordering::SeqCst), b"h") == Ok(1) {
        HANDLERS_BYTES.fetch_add(1, Ordering::SeqCst);
    }
}

fn writing_handler(fd: Fd) {
    HANDLERS_FD.store(fd, Ordering::SeqCst);
    signal::handle(SIGALRM, SA_RESTART, write_a_byte);
    signal::alarm_ms(1, 1);
}

fn handler_writes_elsewhere() {
    let (mut end, mut peer) = link::client(V4);
    let (other, reader) = link::numbered_pair(V4, 1);
    writing_handler(other.fd());
    peer.start("mixed", &[2 << 20, 2 << 20, 3000, 7]);
    crate::traffic::both_ways(&mut end, 2 << 20, 2 << 20, 3000, 8);
    crate::sys::cpu::eventually("the handler has run 20 times", || HANDLERS_BYTES.load(Ordering::SeqCst) >= 20);
    signal::alarm_ms(0, 0);
    peer.finish();
    expect_letters(&reader, HANDLERS_BYTES.load(Ordering::SeqCst), b'h');
}

fn expect_letters(reader: &End, n: usize, letter: u8) {
    let mut got = vec![0; n];
    assert_eq!(io::recv(reader.fd(), &mut got, libc::MSG_WAITALL), Ok(n));
    assert!(got.iter().all(|&b| b == letter), "other bytes than the handler wrote");
}

/// The handler's bytes fall between the main program's, or are refused: no deadlock.
fn handler_writes_here() {
    const N: usize = 200_000;
    let (a, b) = link::own_pair(V4);
    let reader = std::thread::spawn(move || {
        signal::block(&[SIGALRM]);
        let mut counts = [0usize; 256];
        let mut buf = [0; 4096];
        loop {
            match io::read(b.fd(), &mut buf).expect("read") {
                0 => return counts,
                n => buf[..n].iter().for_each(|&b| counts[b as usize] += 1),
            }
        }
    });
    writing_handler(a.fd());
    for _ in 0..N {
        while io::write(a.fd(), b"m") == Err(EINTR) {}
    }
    signal::alarm_ms(0, 0);
    a.close();
    let counts = reader.join().expect("the reader");
    let handlers = HANDLERS_BYTES.load(Ordering::SeqCst);
    assert_eq!((counts[b'm' as usize], counts[b'h' as usize]), (N, handlers));
    assert!(handlers > 0, "the handler never ran");
}

/// Both directions while a timer interrupts every possible call.
fn storm() {
    let (mut end, mut peer) = link::client(V4);
    signal::count_signal(SIGALRM, 0);
    signal::alarm_ms(1, 1);
    peer.start("mixed", &[8 << 20, 8 << 20, 20_000, 3]);
    crate::traffic::both_ways(&mut end, 8 << 20, 8 << 20, 20_000, 4);
    for _ in 0..200 {
        peer_round(&mut end, &mut peer);
    }
    signal::alarm_ms(0, 0);
    assert!(signal::count(SIGALRM) > 10, "the timer hardly ever struck");
}

fn peer_round(end: &mut End, peer: &mut crate::peer::Peer) {
    peer.start("echo", &[1, 100]);
    end.send(100);
    end.recv(100);
    peer.finish();
}
