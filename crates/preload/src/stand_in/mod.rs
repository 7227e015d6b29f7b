//! What is called in place of a function that the program's libc does not have: mostly the system call itself, as
//! musl and older versions of glibc lack functions of newer ones. What no system call can do fails with ENOSYS.
//!
//! Each has the signature of the function that it stands in for, which is in the table of `calls`.

use crate::{errno, host};
use core::ffi::{c_char, c_int, c_long, c_void};
use libc::{iovec, off_t, pid_t, size_t, ssize_t};
use sidestep_sys::{Errno, Result, call};

pub mod signals;
pub mod waits;

/// Bytes of a signal set, for the kernel.
const SIGSET: usize = 8;

/// Arguments of a system call, filled up to six.
pub fn words<const N: usize>(given: [usize; N]) -> [usize; 6] {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&given);
    all
}

fn lacks() -> isize {
    errno::give(Err(Errno(libc::ENOSYS)))
}

/// For functions that return -1.
pub unsafe extern "C" fn failing() -> c_int {
    lacks() as c_int
}

/// For functions that return a null pointer.
pub unsafe extern "C" fn failing_null() -> *mut c_void {
    lacks();
    core::ptr::null_mut()
}

/// For functions that return an error number.
pub unsafe extern "C" fn failing_number() -> c_int {
    libc::ENOSYS
}

pub unsafe extern "C" fn recv(fd: c_int, buf: *mut c_void, n: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's buffer.
    errno::give(unsafe { call(libc::SYS_recvfrom, [fd as usize, buf as usize, n, flags as usize, 0, 0]) })
}

pub unsafe extern "C" fn send(fd: c_int, buf: *const c_void, n: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's buffer.
    errno::give(unsafe { call(libc::SYS_sendto, [fd as usize, buf as usize, n, flags as usize, 0, 0]) })
}

pub unsafe extern "C" fn preadv2(fd: c_int, iov: *const iovec, n: c_int, at: off_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's vector.
    errno::give(unsafe { positioned(libc::SYS_preadv2, fd, iov, n, at, flags) })
}

pub unsafe extern "C" fn pwritev2(fd: c_int, iov: *const iovec, n: c_int, at: off_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's vector.
    errno::give(unsafe { positioned(libc::SYS_pwritev2, fd, iov, n, at, flags) })
}

/// The kernel takes the position in two words, of which the second counts on 32-bit machines only.
unsafe fn positioned(number: c_long, fd: c_int, iov: *const iovec, n: c_int, at: off_t, flags: c_int) -> Result<usize> {
    // SAFETY: the caller's vector.
    unsafe { call(number, [fd as usize, iov as usize, n as usize, at as usize, 0, flags as usize]) }
}

/// For fork(3) and _Fork(3).
pub unsafe extern "C" fn fork() -> pid_t {
    // SAFETY: no flag but the signal at the child's end, no stack: the child goes on where we are.
    errno::give(unsafe { call(libc::SYS_clone, words([libc::SIGCHLD as usize])) }) as pid_t
}

pub unsafe extern "C" fn exit(status: c_int) -> ! {
    loop {
        // SAFETY: no memory involved.
        let _ = unsafe { call(libc::SYS_exit_group, words([status as usize])) };
    }
}

pub unsafe extern "C" fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    // SAFETY: the program's own call.
    errno::give(unsafe { call(number, [a, b, c, d, e, f]) }) as c_long
}

pub unsafe extern "C" fn dup2(fd: c_int, new: c_int) -> c_int {
    let done = if fd == new {
        sidestep_sys::fd::fcntl(fd, libc::F_GETFD, 0).map(|_| new as usize)
    } else {
        // SAFETY: no memory involved.
        unsafe { call(libc::SYS_dup3, words([fd as usize, new as usize, 0])) }
    };
    errno::give(done) as c_int
}

type Strings = *const *const c_char;

pub unsafe extern "C" fn execv(path: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the caller's strings, and the program's environment.
    errno::give(unsafe { call(libc::SYS_execve, words([path as usize, argv as usize, host::environment() as usize])) })
        as c_int
}

pub unsafe extern "C" fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
    let path = c"".as_ptr() as usize;
    let args = [fd as usize, path, argv as usize, envp as usize, libc::AT_EMPTY_PATH as usize, 0];
    // SAFETY: the caller's strings.
    errno::give(unsafe { call(libc::SYS_execveat, args) }) as c_int
}
