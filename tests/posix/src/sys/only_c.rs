//! The functions of `c/only_in_c.c`.

use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, c_void};

use super::Fd;
use super::cpu::eventually;
use super::epoll::{Epoll, IN};
use super::threads::asleep;

unsafe extern "C" {
    fn only_c_vfork(fd: c_int, copy_over: c_int) -> libc::pid_t;
    fn only_c_waiting_thread(argument: *mut c_void) -> *mut c_void;
    fn only_c_jump_out(how: c_int, fd: c_int, set: c_int) -> c_int;
    fn only_c_cancelled_close(fd: c_int) -> c_int;
    fn only_c_cancelled_call(how: c_int, fd: c_int, set: c_int) -> c_int;
    fn only_c_vfork_and_exit() -> libc::pid_t;
    fn only_c_thread_that_exits() -> c_int;
}

/// The calls in which a thread can wait for a socket; the numbers are those of the C side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Blocking {
    Recv,
    Read,
    Poll,
    EpollWait,
    Select,
    Send,
}

/// A vfork child closes `fd`, or first copies another number over it, and leaves with code 7.
pub fn vfork(fd: Fd, copy_over: bool) -> i32 {
    // SAFETY: the child only makes system calls on its own table of descriptors, and leaves.
    let pid = unsafe { only_c_vfork(fd, copy_over.into()) };
    super::errno::outcome(pid).expect("vfork") as i32
}

/// A vfork child leaves with code 7 by the system call exit_group.
pub fn vfork_and_exit() -> i32 {
    // SAFETY: the child makes one system call, which ends it.
    super::errno::outcome(unsafe { only_c_vfork_and_exit() }).expect("vfork") as i32
}

/// A thread leaves by the system call exit.
pub fn thread_that_exits() {
    // SAFETY: the thread touches nothing.
    assert_eq!(unsafe { only_c_thread_that_exits() }, 0, "pthread_create or pthread_join");
}

fn set_with(fd: Fd) -> Fd {
    let set = Epoll::new();
    set.add(fd, IN);
    set.fd
}

/// A thread's argument, as the C side has it.
#[repr(C)]
struct Waiting {
    how: Blocking,
    fd: Fd,
    set: Fd,
    tid: AtomicI32,
    cleaned_up: AtomicI32,
}

/// Starts a thread that waits for `fd`, and cancels it when it sleeps.
pub fn cancel_thread_in(how: Blocking, fd: Fd) {
    cancel_thread_after(how, fd, || ());
}

/// The same, with something to be done while it sleeps.
pub fn cancel_thread_after(how: Blocking, fd: Fd, meanwhile: impl FnOnce()) {
    let waiting = Waiting { how, fd, set: set_with(fd), tid: AtomicI32::new(0), cleaned_up: AtomicI32::new(0) };
    // The crate's type for a start routine is one that Rust may call; this one is C's alone.
    let start: unsafe extern "C" fn(*mut c_void) -> *mut c_void = only_c_waiting_thread;
    let mut thread: libc::pthread_t = 0;
    let mut result = std::ptr::null_mut();
    // SAFETY: the two function types differ in nothing but Rust's permission to call; the
    // argument outlives the thread, which is joined below.
    unsafe {
        let start = std::mem::transmute::<
            unsafe extern "C" fn(*mut c_void) -> *mut c_void,
            extern "C" fn(*mut c_void) -> *mut c_void,
        >(start);
        let argument = (&raw const waiting).cast_mut().cast();
        assert_eq!(libc::pthread_create(&mut thread, std::ptr::null(), start, argument), 0);
        let tid = || waiting.tid.load(Ordering::SeqCst);
        eventually("the thread sleeps", || tid() != 0 && asleep(tid()));
        meanwhile();
        assert_eq!(libc::pthread_cancel(thread), 0);
        assert_eq!(libc::pthread_join(thread, &mut result), 0);
    }
    assert_eq!(result as isize, -1, "the thread ended by PTHREAD_CANCELED");
    assert_eq!(waiting.cleaned_up.load(Ordering::SeqCst), 1, "its clean-up handler ran once");
    super::fds::close(waiting.set).expect("close the set");
}

/// A thread that has been cancelled calls close, which is where it ends.
pub fn cancel_thread_before_close(fd: Fd) {
    // SAFETY: the thread makes two calls, and has nothing to clean up.
    assert_eq!(unsafe { only_c_cancelled_close(fd) }, 1, "the thread ended by PTHREAD_CANCELED");
}

/// A thread that has been cancelled makes a call, which is where it ends.
pub fn cancel_thread_before(how: Blocking, fd: Fd) {
    let set = set_with(fd);
    // SAFETY: the thread makes two calls, and has nothing to clean up.
    let ended = unsafe { only_c_cancelled_call(how as c_int, fd, set) };
    assert_eq!(ended, 1, "the thread ended by PTHREAD_CANCELED in {how:?}");
    super::fds::close(set).expect("close the set");
}

/// Leaves a wait by a jump out of a signal handler.
pub fn jump_out_of(how: Blocking, fd: Fd) {
    let set = set_with(fd);
    // SAFETY: the jump stays within the C function, whose callees have nothing to clean up.
    let jumped = unsafe { only_c_jump_out(how as c_int, fd, set) };
    assert_eq!(jumped, 1, "the wait was not left by the jump");
    super::fds::close(set).expect("close the set");
}
