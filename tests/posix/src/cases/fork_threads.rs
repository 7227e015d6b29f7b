//! fork and vfork beside running threads and streams.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::case::{Case, case};
use crate::link::{self, Listener};
use crate::sys::cpu::eventually;
use crate::sys::errno::outcome;
use crate::sys::net::Family::V4;
use crate::sys::only_c::vfork;
use crate::sys::process::{Ended, in_child, wait_for};
use crate::sys::stdio::Stream;
use crate::sys::threads::{asleep, blocked};
use crate::sys::{Fd, fds, io};
use crate::traffic::both_ways;

pub const CASES: &[Case] = &[
    case("fork_threads.fork_while_streaming", while_streaming).bulk(),
    case("fork_threads.child_has_its_own_connections", child_connects).bulk(),
    case("fork_threads.threads_fork_at_once", threads_fork).bulk(),
    case("fork_threads.accepts_during_a_fork", accepts_during_fork),
    case("fork_threads.vfork_child_closes", || vforked(false)),
    case("fork_threads.vfork_child_copies_over", || vforked(true)),
    case("fork_threads.clone_vm_child_closes", clone_vm),
    case("fork_threads.vfork_while_streaming", vfork_while_streaming).bulk(),
    case("fork_threads.system_while_streaming", system_while_streaming).bulk(),
];

const N: u64 = 12 << 20;

/// Streams in both directions while `work` is repeated. Returns how often it ran.
fn beside_a_stream(mut work: impl FnMut()) -> u32 {
    let (mut end, mut peer) = link::client(V4);
    let done = AtomicBool::new(false);
    let mut times = 0;
    std::thread::scope(|s| {
        s.spawn(|| {
            peer.start("mixed", &[N, N, 30_000, 1]);
            both_ways(&mut end, N, N, 30_000, 2);
            peer.finish();
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) || times < 3 {
            work();
            times += 1;
        }
    });
    link::warm_up(&mut end, &mut peer);
    times
}

/// As redis saves while clients are served: the children hold the connection and end.
fn while_streaming() {
    beside_a_stream(|| in_child(|| ()).succeed());
}

/// A fork at any moment must leave no lock for which the child would wait.
fn child_connects() {
    beside_a_stream(|| {
        in_child(|| {
            let (mut a, mut b) = link::cold_pair_ends(V4, 50);
            for _ in 0..20 {
                a.send(100);
                b.recv(100);
                b.send(100);
                a.recv(100);
            }
        })
        .succeed();
    });
}

fn threads_fork() {
    beside_a_stream(|| {
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| in_child(|| fds::closefrom(3)).succeed());
            }
        });
    });
}

/// A connection begins in another thread after the library has prepared a fork, and before the kernel has made the child.
/// It ends in the parent, then in the child. What comes after must be two connections.
fn accepts_during_fork() {
    let (mut before, mut peer) = link::client(V4);
    let listener = Listener::new(V4);
    let client = link::connect(&listener.addr(), V4);
    let (full, filled) = fds::pipe(libc::O_CLOEXEC);
    let (go, ready) = fds::pipe(libc::O_CLOEXEC);
    // SAFETY: no arguments.
    let forking = unsafe { libc::gettid() };
    let mut stream = Stream::open(filled, c"w");
    stream.write(b"x");
    fds::set_nonblocking(filled, true);
    while io::write(filled, &[0; 4096]).is_ok() {}
    fds::set_nonblocking(filled, false);
    // SAFETY: flushes every stream. This takes libc's lock of their list, for which fork() waits, and blocks at the full
    // pipe.
    let flushing = blocked(|| unsafe { libc::fflush(std::ptr::null_mut()) });
    let (child, server) = std::thread::scope(|s| {
        let accepting = s.spawn(|| {
            eventually("fork() waits", || asleep(forking));
            let server = listener.accept();
            assert_eq!(io::read(full, &mut [0; 4096]), Ok(4096), "makes space in the pipe");
            server
        });
        let child = in_child(|| {
            assert_eq!(io::read(go, &mut [0]), Ok(1));
            fds::closefrom(3);
        });
        (child, accepting.join().expect("accept"))
    });
    assert_eq!(flushing.join(), 0);
    fds::close(server).expect("close");
    assert_eq!(io::write(ready, &[1]), Ok(1));
    child.succeed();
    let (mut a, mut b) = link::numbered_pair(V4, 1);
    let (mut c, mut d) = link::numbered_pair(V4, 2);
    for (from, to) in [(&mut a, &mut b), (&mut c, &mut d)] {
        from.send(3000);
        to.recv(3000);
    }
    link::warm_up(&mut before, &mut peer);
    fds::close(client).expect("close");
}

/// The library's tables are in the shared memory; the parent's entries must stay unchanged.
fn vforked(copy_over: bool) {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..5 {
        peer.send(500);
        end.rx.await_bytes(500);
        assert_eq!(wait_for(vfork(end.fd(), copy_over)), Ended::Exit(7));
        end.recv(500);
        link::warm_up(&mut end, &mut peer);
    }
}

extern "C" fn clone_child(fd: *mut libc::c_void) -> i32 {
    // SAFETY: the child has a table of descriptors of its own.
    unsafe {
        libc::close(*fd.cast::<Fd>());
        libc::dup2(2, *fd.cast::<Fd>());
        libc::_exit(7)
    }
}

/// The same by clone, with another stack.
fn clone_vm() {
    let (mut end, mut peer) = link::client(V4);
    let mut stack = vec![0u128; 4096];
    for _ in 0..5 {
        let (mut fd, top) = (end.fd(), stack.as_mut_ptr_range().end);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the stack and the argument live until the child has left, which CLONE_VFORK
        // waits for.
        let pid = unsafe { libc::clone(clone_child, top.cast(), flags, (&raw mut fd).cast()) };
        assert_eq!(wait_for(outcome(pid).expect("clone") as i32), Ended::Exit(7));
        link::warm_up(&mut end, &mut peer);
    }
}

fn vfork_while_streaming() {
    let (end, mut peer) = link::client(V4);
    let forks = beside_a_stream(|| {
        assert_eq!(wait_for(vfork(end.fd(), false)), Ended::Exit(7));
    });
    println!("{forks} forks");
    end.close();
    assert_eq!(peer.call("ending", &[]), 0);
}

/// system() starts a shell as posix_spawn does.
fn system_while_streaming() {
    beside_a_stream(|| {
        // SAFETY: a valid command line.
        assert_eq!(unsafe { libc::system(c"exit 0".as_ptr()) }, 0);
    });
}
