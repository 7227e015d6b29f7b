//! Children in another PID namespace: there a process number of the parent's means nothing, or another process.

use libc::{c_int, c_void};

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::peer::Peer;
use crate::sys::epoll::{Epoll, IN};
use crate::sys::errno::outcome;
use crate::sys::net::Family::V4;
use crate::sys::process::{Child, die_with_parent, exit_now, in_child, require_root};
use crate::sys::{fds, io};

pub const CASES: &[Case] = &[
    case("pid_namespaces.cloned_child", cloned_child).reason("shared"),
    case("pid_namespaces.child_after_unshare", child_after_unshare),
    case("pid_namespaces.child_after_setns", child_after_setns),
    case("pid_namespaces.child_waits_in_an_inherited_set", child_waits),
    case("pid_namespaces.more_children_than_places", more_than_places),
    case("pid_namespaces.unseen_child_of_process_1", unseen_child_of_process_1),
];

/// Makes a child that is process 1 of a new PID namespace.
fn cloned(work: impl FnOnce()) -> Child {
    require_root();
    let flags = (libc::CLONE_NEWPID | libc::SIGCHLD) as usize;
    // SAFETY: without a stack clone(2) is as fork(2): the child returns here with a copy of the memory.
    match outcome(unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, 0usize, 0usize, 0usize) }).expect("clone") {
        0 => {
            die_with_parent();
            assert_eq!(std::process::id(), 1);
            work();
            exit_now(0)
        }
        pid => Child { pid: pid as i32 },
    }
}

fn rounds(end: &mut End, peer: &mut Peer, n: u64) {
    peer.start("echo", &[n, 200]);
    for _ in 0..n {
        end.send(200);
        end.recv(200);
    }
    peer.finish();
}

/// What a child does with the connection that it inherits, and with connections of its own: the parent is there, though nothing
/// of it can be seen.
fn use_and_close(end: &mut End) {
    end.send(100);
    let (mut a, mut b) = link::own_pair(V4);
    end.recv(100);
    fds::close(end.fd()).expect("close");
    link::warm_up_pair(&mut a, &mut b);
}

/// The parent goes on with the connection.
fn beside(end: &mut End, peer: &mut Peer, child: impl FnOnce(&mut End) -> Child) {
    peer.start("echo", &[1, 100]);
    child(end).succeed();
    end.tx.sent(100);
    end.rx.skipped(100);
    peer.finish();
    rounds(end, peer, 20);
}

fn cloned_child() {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..3 {
        beside(&mut end, &mut peer, |end| cloned(|| use_and_close(end)));
    }
    let (mut a, mut b) = link::own_pair(V4);
    link::warm_up_pair(&mut a, &mut b);
    end.close();
    assert_eq!(peer.call("ending", &[]), 0, "the last close is the end");
}

fn unshare(flags: c_int) {
    // SAFETY: takes a number.
    outcome(unsafe { libc::unshare(flags) }).expect("unshare");
}

/// A process of its own makes the call: all its further children are in the new namespace.
fn child_after_unshare() {
    require_root();
    let (mut end, mut peer) = link::client(V4);
    beside(&mut end, &mut peer, |end| {
        in_child(|| {
            unshare(libc::CLONE_NEWPID);
            in_child(|| {
                assert_eq!(std::process::id(), 1);
                use_and_close(end);
            })
            .succeed();
        })
    });
}

/// As above, in the namespace of another process, which waits until its input ends.
fn child_after_setns() {
    let (mut end, mut peer) = link::client(V4);
    let (hold, held) = fds::pipe(libc::O_CLOEXEC);
    let first = cloned(|| {
        fds::close(held).expect("close");
        assert_eq!(io::read(hold, &mut [0]), Ok(0), "until the parent is done");
    });
    let path = std::ffi::CString::new(format!("/proc/{}/ns/pid", first.pid)).expect("no NUL");
    beside(&mut end, &mut peer, |end| {
        in_child(|| {
            // SAFETY: a NUL-terminated path; then a descriptor and a number.
            unsafe {
                let namespace = outcome(libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC)).expect("open");
                outcome(libc::setns(namespace as c_int, 0)).expect("setns");
            }
            in_child(|| use_and_close(end)).succeed();
        })
    });
    fds::close(held).expect("close");
    first.succeed();
}

/// The kernel's set is one and the same: in the child, too, it has the program's data, and no events of the library.
fn child_waits() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.add(end.fd(), IN);
    peer.send(100);
    assert_eq!(set.mask_of(end.fd(), 5000), IN);
    end.recv(100);
    cloned(|| assert_eq!(set.wait(0), [])).succeed();
    peer.send(100);
    cloned(|| {
        assert_eq!(set.wait(5000), [(IN, end.fd() as u64)]);
        end.recv(100);
    })
    .succeed();
    end.rx.skipped(100);
    peer.send(50);
    assert_eq!(set.wait(5000), [(IN, end.fd() as u64)]);
    end.recv(50);
    fds::close(set.fd).expect("close");
}

/// A child that is process 1 of its namespace has no place in the family, which would never be free again: process 1 always lives.
fn more_than_places() {
    let (end, mut peer) = link::client(V4);
    for _ in 0..70 {
        cloned(|| ()).succeed();
    }
    end.close();
    assert_eq!(peer.call("ending", &[]), 0);
    // A child by fork() has a place, so its connections go by ring.
    in_child(|| {
        let (mut a, mut b) = link::own_pair(V4);
        link::warm_up_pair(&mut a, &mut b);
    })
    .succeed();
}

extern "C" fn run<F: Fn()>(work: *mut c_void) -> c_int {
    die_with_parent();
    assert_eq!(std::process::id(), 1);
    // SAFETY: the closure that `unseen` names, in the child's copy of the memory.
    unsafe { (*work.cast::<F>())() };
    exit_now(0)
}

/// As [`cloned`], by clone() of libc, which the library does not see.
fn unseen<F: Fn()>(mut work: F) -> Child {
    let mut stack = vec![0u128; 1 << 16];
    let flags = libc::CLONE_NEWPID | libc::SIGCHLD;
    // SAFETY: the child has copies of its stack and of the closure.
    let pid = unsafe { libc::clone(run::<F>, stack.as_mut_ptr_range().end.cast(), flags, (&raw mut work).cast()) };
    Child { pid: outcome(pid).expect("clone") as i32 }
}

/// Parent and child have the same number, and the child sees none of its relatives. It closes what it has inherited.
fn unseen_child_of_process_1() {
    let parent = cloned(|| {
        let (mut a, mut b) = link::own_pair(V4);
        let (hold, held) = fds::pipe(libc::O_CLOEXEC);
        let relative = in_child(|| {
            fds::close(held).expect("close");
            assert_eq!(io::read(hold, &mut [0]), Ok(0), "until the parent is done");
        });
        unseen(|| {
            fds::close(a.fd()).expect("close");
            fds::close(b.fd()).expect("close");
        })
        .succeed();
        fds::close(held).expect("close");
        relative.succeed();
        let (mut c, mut d) = link::numbered_pair(V4, 1);
        for (one, other) in [(&mut a, &mut b), (&mut c, &mut d)] {
            one.send(3000);
            other.recv(3000);
            other.send(3000);
            one.recv(3000);
        }
    });
    parent.succeed();
}
