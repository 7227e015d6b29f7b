//! Stand-ins: called where the program's libc lacks a function. musl and older glibcs lack functions of newer ones. Most
//! stand-ins make the system call itself. A function that no system call can replace fails with ENOSYS.
//!
//! Each stand-in has the signature of its function in the table of `calls`.

use crate::{errno, host};
use core::ffi::{c_char, c_int, c_long, c_void};
use libc::{iovec, off_t, pid_t, size_t, ssize_t};
use sidestep_sys::{Errno, Result, call};

pub mod signals;
pub mod waits;

/// Size of the kernel's signal set, in bytes.
const SIGSET: usize = 8;

/// Arguments of a system call, padded to six.
pub fn words<const N: usize>(given: [usize; N]) -> [usize; 6] {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&given);
    all
}

fn lacks() -> isize {
    errno::give(Err(Errno(libc::ENOSYS)))
}

/// Fails, for functions that return -1.
pub unsafe extern "C" fn failing() -> c_int {
    lacks() as c_int
}

/// Fails, for functions that return a null pointer.
pub unsafe extern "C" fn failing_null() -> *mut c_void {
    lacks();
    core::ptr::null_mut()
}

/// Fails, for functions that return an error number.
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

/// The kernel takes the position in two words; a 64-bit kernel ignores the second.
unsafe fn positioned(number: c_long, fd: c_int, iov: *const iovec, n: c_int, at: off_t, flags: c_int) -> Result<usize> {
    // SAFETY: the caller's vector.
    unsafe { call(number, [fd as usize, iov as usize, n as usize, at as usize, 0, flags as usize]) }
}

/// For fork(3) and _Fork(3).
pub unsafe extern "C" fn fork() -> pid_t {
    // SAFETY: the only flag is the signal at the child's end, and there is no stack: the child continues on the present one.
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
