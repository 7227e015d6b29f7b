//! Lets chosen calls of a thread fail: seccomp(2) asks a supervisor for each call, which continues it or answers for the kernel.

use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc;

/// The calls that can fail.
const CALLS: [libc::c_long; 10] = [
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_ioctl,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_fcntl,
];
/// The answer of a call that fails.
pub const ERROR: i32 = libc::EIO;

/// Runs `work` on a thread whose `n`th call (from 0) fails for each `n` that `fails` names. Returns the number of calls, too. `fails` is
/// asked before the call, while the thread waits.
pub fn run<T: Send>(fails: impl FnMut(usize) -> bool, work: impl FnOnce() -> T + Send) -> (T, usize) {
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        let worker = scope.spawn(move || {
            send.send(install()).expect("the supervisor lives");
            work()
        });
        let calls = supervise(&receive.recv().expect("the worker lives"), fails);
        (worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), calls)
    })
}

/// Runs `work` on a thread that does nothing any more from its `n`th call (from 0) on, as if its process had been killed then. Whether
/// it has come that far; otherwise it has done its work.
pub fn die_before(n: usize, work: impl FnOnce() + Send + 'static) -> bool {
    let (send, receive) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        send.send(install()).expect("the supervisor lives");
        work();
    });
    let listener = receive.recv().expect("the worker lives");
    for call in 0.. {
        if !is_waiting(&listener) {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            return false;
        }
        if call == n {
            // Nobody answers: the thread stays in its call.
            std::mem::forget(listener);
            return true;
        }
        answer(&listener, false);
    }
    unreachable!("the thread makes finitely many calls")
}

/// Filters the calls of this thread, for good.
fn install() -> OwnedFd {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    // The call's number is the first word of `seccomp_data`.
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for (at, call) in CALLS.iter().enumerate() {
        let to_notify = (CALLS.len() - at) as u8;
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        filter.push(libc::sock_filter { code, jt: to_notify, jf: 0, k: *call as u32 });
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: `program` covers `filter`; both outlive the call. The new filter is this thread's alone.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    assert!(fd >= 0, "seccomp: {} (needs root)", io::Error::last_os_error());
    // SAFETY: the kernel has just made this descriptor for us.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// Answers until the thread has ended.
fn supervise(listener: &OwnedFd, mut fails: impl FnMut(usize) -> bool) -> usize {
    for call in 0.. {
        if !is_waiting(listener) {
            return call;
        }
        answer(listener, fails(call));
    }
    unreachable!("the thread makes finitely many calls")
}

/// Waits for the thread's next call. False: it has ended.
fn is_waiting(listener: &OwnedFd) -> bool {
    let mut wanted = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut wanted, None).expect("poll");
    wanted[0].revents().contains(PollFlags::IN)
}

fn answer(listener: &OwnedFd, fail: bool) {
    // SAFETY: all zero is a valid `seccomp_notif`; the kernel demands it.
    let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the request writes one `seccomp_notif`.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut asked) };
    assert_eq!(done, 0, "SECCOMP_IOCTL_NOTIF_RECV: {}", io::Error::last_os_error());
    let flags = if fail { 0 } else { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 };
    let error = if fail { -ERROR } else { 0 };
    let mut response = libc::seccomp_notif_resp { id: asked.id, val: 0, error, flags };
    // SAFETY: the request reads one `seccomp_notif_resp`.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw mut response) };
    assert_eq!(done, 0, "SECCOMP_IOCTL_NOTIF_SEND: {}", io::Error::last_os_error());
}
