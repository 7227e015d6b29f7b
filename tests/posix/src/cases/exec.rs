//! exec: the memory mapping goes, the descriptor stays. The puppet replaces itself by a new image that knows only the
//! descriptor and the two positions, and continues.

use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::link;
use crate::peer::{Peer, Preload};
use crate::replace::Exec;
use crate::sys::epoll::{IN, OUT};
use crate::sys::errno::outcome;
use crate::sys::net::Family::{V4, V6};
use crate::sys::process::{Ended, in_child, wait_for};
use crate::sys::{cpu, fds, io};

macro_rules! exec_cases {
    ($($kind:ident $name:literal)*) => { &[$(
        case(concat!("exec.preloaded_by_", $name), || again(Exec::$kind, Preload::Kept)),
        case(concat!("exec.unpreloaded_by_", $name), || again(Exec::$kind, Preload::Stripped)),
    )*
        case("exec.with_unread_data_preloaded", || unread(Preload::Kept)),
        case("exec.with_unread_data_unpreloaded", || unread(Preload::Stripped)),
        case("exec.with_much_unread_data_preloaded", || much_unread(Preload::Kept)).bulk(),
        case("exec.with_much_unread_data_unpreloaded", || much_unread(Preload::Stripped)).bulk(),
        case("exec.with_unsent_data_unpreloaded", || unsent(Preload::Stripped)).bulk(),
        case("exec.with_an_epoll_set_preloaded", || with_a_set(Preload::Kept)),
        case("exec.with_an_epoll_set_unpreloaded", || with_a_set(Preload::Stripped)),
        case("exec.while_the_other_side_streams", while_streaming).reason("exec").bulk(),
        case("exec.forked_child_becomes_an_unpreloaded_image", child_execs),
        case("exec.close_on_exec_ends_the_connection", close_on_exec),
        case("exec.failed_exec_changes_nothing", failed),
        case("exec.twice_back_and_forth", back_and_forth),
        case("exec.of_an_unseen_child_on_our_memory", on_our_memory),
    ] };
}

pub const CASES: &[Case] = exec_cases! {
    Execve "execve" Execv "execv" Execvp "execvp" Execvpe "execvpe" Execl "execl" Execlp "execlp"
    Execle "execle" Fexecve "fexecve" Execveat "execveat" RawExecve "syscall_execve" RawExecveat "syscall_execveat"
};

fn exec(peer: &mut Peer, how: Exec, preload: Preload) {
    peer.call("exec", &[how as u64, u64::from(preload == Preload::Stripped)]);
}

fn rounds(end: &mut End, peer: &mut Peer) {
    peer.start("echo", &[20, 500]);
    for _ in 0..20 {
        end.send(500);
        end.recv(500);
    }
    peer.finish();
}

fn again(how: Exec, preload: Preload) {
    let (mut end, mut peer) = link::client(V4);
    exec(&mut peer, how, preload);
    rounds(&mut end, &mut peer);
    peer.close();
    end.rx.expect_eof();
}

/// Bytes wait in the old image's connection; the new image must read all of them, in order.
fn unread(preload: Preload) {
    let (mut end, mut peer) = link::server(V6);
    end.send(3000);
    peer.call("await", &[3000]);
    exec(&mut peer, Exec::Execve, preload);
    end.send(500);
    peer.recv(3500);
    rounds(&mut end, &mut peer);
}

/// As many bytes as fit, so that the kernel's buffers cannot take all of them at once.
fn much_unread(preload: Preload) {
    let (mut end, mut peer) = link::client(V4);
    let filled = end.tx.fill();
    exec(&mut peer, Exec::Execve, preload);
    peer.recv(filled);
    rounds(&mut end, &mut peer);
}

/// The old image has written more than the reader has read; no byte may be lost.
fn unsent(preload: Preload) {
    let (mut end, mut peer) = link::client(V4);
    let filled = peer.call("fill", &[]) as usize;
    exec(&mut peer, Exec::Execve, preload);
    peer.start("send", &[1000]);
    end.recv(filled + 1000);
    peer.finish();
    rounds(&mut end, &mut peer);
}

/// The new image waits in the set of the old one.
fn with_a_set(preload: Preload) {
    let (mut end, mut peer) = link::client(V4);
    let set = peer.call("watch", &[IN.into(), 77]);
    assert_eq!(peer.told(set, 0), None);
    end.send(10);
    assert_eq!(peer.told(set, 5000), Some((IN, 77)));
    peer.recv(10);
    exec(&mut peer, Exec::Execve, preload);
    end.send(10);
    peer.call("await", &[10]);
    for _ in 0..2 {
        assert_eq!(peer.told(set, 5000), Some((IN, 77)), "by level");
        peer.recv(5);
    }
    assert_eq!(peer.told(set, 0), None);
    peer.call("watch_otherwise", &[set, (IN | OUT).into(), 78]);
    assert_eq!(peer.told(set, 5000), Some((OUT, 78)));
}

/// This side keeps writing while the other one is replaced three times.
fn while_streaming() {
    const PIECE: usize = 300_000;
    let (mut end, mut peer) = link::client(V4);
    let tx = &mut end.tx;
    std::thread::scope(|s| {
        s.spawn(|| tx.send(4 * PIECE));
        for preload in [Preload::Kept, Preload::Kept, Preload::Stripped] {
            peer.recv(PIECE);
            exec(&mut peer, Exec::Execve, preload);
        }
        peer.recv(PIECE);
    });
    rounds(&mut end, &mut peer);
}

/// A preloaded process forks; the child becomes an image without the library and takes over.
fn child_execs() {
    let (end, mut peer) = link::client(V4);
    peer.send(2000);
    end.rx.await_bytes(2000);
    let (ours, theirs) = fds::unix_pair();
    let child = in_child(|| {
        fds::dup2(theirs, 0).expect("dup2");
        fds::set_cloexec(end.fd(), false);
        let args = [end.fd() as u64, 0, end.tx.at, end.rx.at].map(|n| n.to_string());
        crate::replace::exec(Exec::Execve, &args, Preload::Stripped);
    });
    fds::close(theirs).expect("close");
    end.close();
    let mut image = Peer::over(ours, child.pid);
    image.finish();
    image.recv(2000);
    peer.start("echo", &[20, 300]);
    for _ in 0..20 {
        image.send(300);
        image.recv(300);
    }
    peer.finish();
}

/// The only holder's descriptor is close-on-exec: the other side sees the end of the stream.
fn close_on_exec() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(100);
    peer.call("exec_without", &[]);
    end.recv(100);
    end.rx.expect_eof();
    cpu::eventually("the write side notices", || {
        io::send(end.fd(), b"x", libc::MSG_NOSIGNAL) == Err(crate::sys::errno::EPIPE)
    });
}

/// The program does not exist: exec returns, and the connection is as before.
fn failed() {
    let (mut end, mut peer) = link::client(V4);
    let argv = crate::spawn::puppet_args(&[]);
    for _ in 0..3 {
        peer.send(700);
        // SAFETY: path and arguments are valid; there is no such program, so the call returns.
        let ret = unsafe { libc::execv(c"/nonexistent/program".as_ptr(), argv.as_ptr()) };
        assert_eq!(outcome(ret), Err(crate::sys::errno::ENOENT));
        end.recv(700);
        rounds(&mut end, &mut peer);
    }
}

/// With the library, without it, and without it again; bytes wait at each change.
fn back_and_forth() {
    let (mut end, mut peer) = link::client(V4);
    for preload in [Preload::Kept, Preload::Kept, Preload::Stripped, Preload::Stripped] {
        end.send(900);
        peer.call("await", &[900]);
        exec(&mut peer, Exec::Execve, preload);
        peer.recv(900);
        rounds(&mut end, &mut peer);
    }
}

extern "C" fn become_true(_: *mut libc::c_void) -> i32 {
    let (argv, envp) = ([c"true".as_ptr(), std::ptr::null()], [std::ptr::null()]);
    // SAFETY: NUL-terminated strings in lists that end with null.
    unsafe {
        libc::execve(c"/bin/true".as_ptr(), argv.as_ptr(), envp.as_ptr());
        libc::_exit(7)
    }
}

/// Runs /bin/true by clone() of libc, which the library does not see. The child has our memory until its exec.
fn run_true() {
    let mut stack = vec![0u128; 1 << 16];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack lives until the child has left, which CLONE_VFORK waits for.
    let pid = unsafe { libc::clone(become_true, stack.as_mut_ptr_range().end.cast(), flags, std::ptr::null_mut()) };
    assert_eq!(wait_for(outcome(pid).expect("clone") as i32), Ended::Exit(0));
}

/// The exec closes our connections in that child only. A relative, which holds one of them too, closes it afterwards: it must not be
/// the last holder.
fn on_our_memory() {
    let (first, second) = link::cold_pair(V4);
    let (go, ready) = fds::pipe(libc::O_CLOEXEC);
    let relative = in_child(|| {
        assert_eq!(io::read(go, &mut [0]), Ok(1));
        fds::close(first).expect("close");
        fds::close(second).expect("close");
    });
    run_true();
    assert_eq!(io::write(ready, &[1]), Ok(1));
    relative.succeed();
    // Records that were given back would be those of these connections.
    let (mut a, mut b) = link::numbered_pair(V4, 1);
    let (mut c, mut d) = (End::new(first, Side::Client), End::new(second, Side::Server));
    link::warm_up_pair(&mut c, &mut d);
    for (one, other) in [(&mut a, &mut b), (&mut c, &mut d)] {
        run_true();
        one.send(3000);
        other.recv(3000);
        other.send(3000);
        one.recv(3000);
    }
    for fd in [go, ready] {
        fds::close(fd).expect("close the pipe");
    }
}
