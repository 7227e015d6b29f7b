//! Closing and duplicating descriptors, and their flags.

use super::conn;
use crate::fdtable::{self, Kind};
use crate::record::{Conn, flag};
use crate::stream::{rx, stretch};
use crate::{arena, drain, errno, host, life::begin, life::numbers, next, thread, user};
use core::ffi::{c_int, c_uint, c_ulong};
use sidestep_abi::Reason;
use sidestep_sys::Errno;

/// Whether `fd` is the library's own. To the program such a descriptor is not open.
fn is_own(fd: c_int) -> bool {
    fdtable::get(fd) == Kind::Own && !thread::in_vfork()
}

pub unsafe fn close(fd: c_int) -> c_int {
    match fdtable::get(fd) {
        Kind::Own if !thread::in_vfork() => return errno::give(Err(Errno(libc::EBADF))) as c_int,
        // close(2) is a cancellation point, which closes nothing then.
        Kind::Conn(_) | Kind::Set(_) | Kind::Ring(_) => host::end_if_cancelled(),
        _ => {}
    }
    // SAFETY: the same contract.
    unsafe { close_to_the_end(fd) }
}

/// Closes a descriptor that is not the library's own. Cancelling the thread does not leave the close of what is followed half done.
unsafe fn close_to_the_end(fd: c_int) -> c_int {
    let after = numbers::closing(fd);
    // SAFETY: the program's own call.
    let native = || unsafe { next::close(fd) };
    let result = if after.is_needed() { host::uncancelled(native) } else { native() };
    after.finish();
    result
}

pub unsafe fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // CLOSE_RANGE_UNSHARE gives this thread a descriptor table of its own, while we follow that of the process.
    // CLOSE_RANGE_CLOEXEC closes nothing. The kernel refuses unknown flags.
    if thread::in_vfork() || flags != 0 {
        // SAFETY: the program's own call.
        return unsafe { next::close_range(first, last, flags) };
    }
    // Followed descriptors are closed one by one, our own are left out, and the kernel closes the ranges between.
    let mut from = first;
    let mut result = 0;
    fdtable::for_each(|fd, kind| {
        if (first..=last).contains(&(fd as c_uint)) {
            if fd as c_uint > from {
                // SAFETY: part of the program's own call.
                result |= unsafe { next::close_range(from, fd as c_uint - 1, flags) };
            }
            from = fd as c_uint + 1;
            if kind != Kind::Own {
                // SAFETY: as above.
                unsafe { close_to_the_end(fd) };
            }
        }
    });
    if from <= last || result != 0 || first > last {
        // SAFETY: as above. The kernel also refuses arguments that make no sense.
        result |= unsafe { next::close_range(from, last, flags) };
    }
    result
}

pub unsafe fn closefrom(first: c_int) {
    // SAFETY: the same contract.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

pub unsafe fn dup(fd: c_int) -> c_int {
    // SAFETY: the program's own call.
    duplicated(fd, unsafe { next::dup(fd) })
}

fn duplicated(old: c_int, new: c_int) -> c_int {
    match new {
        0.. if thread::in_vfork() => hand_on(old),
        0.. => {
            begin::duplicated(old, new);
            if is_standard(new) {
                leave_to_stdio(old);
            }
        }
        _ => {}
    }
    new
}

/// Stdio or another program may use such a descriptor without the library seeing it.
fn is_standard(fd: c_int) -> bool {
    (0..=2).contains(&fd)
}

fn leave_to_stdio(fd: c_int) {
    if let Some(index) = conn(fd) {
        errno::keep(|| drain::to_kernel(arena::conn(index), fd, Reason::Stdio));
    }
}

/// A child on our memory makes a copy for the program that it is about to execute, and may close its descriptor of the connection before.
fn hand_on(fd: c_int) {
    if let Some(index) = conn(fd) {
        errno::keep(|| drain::to_kernel(arena::conn(index), fd, Reason::Exec));
    }
}

pub unsafe fn dup2(fd: c_int, new: c_int) -> c_int {
    // SAFETY: the program's own call.
    replace(fd, new, || unsafe { next::dup2(fd, new) })
}

pub unsafe fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: the program's own call.
    let call = || unsafe { next::dup3(fd, new, flags) };
    // With other flags the call fails, and `new` stays what it is.
    if flags & !libc::O_CLOEXEC == 0 { replace(fd, new, call) } else { call() }
}

/// dup2() onto `new`: ends what `new` stood for, unless the call is bound to fail.
fn replace(fd: c_int, new: c_int, native: impl FnOnce() -> c_int) -> c_int {
    if fd == new {
        return native();
    }
    if thread::in_vfork() {
        return duplicated(fd, native());
    }
    // Nothing ends, whether the call fails or not. A sandbox may permit this call, and not those that follow.
    if fdtable::get(new) == Kind::Other && !matches!(fdtable::get(fd), Kind::Conn(_)) {
        return duplicated(fd, native());
    }
    if sidestep_sys::fd::fcntl(fd, libc::F_GETFD, 0).is_err() {
        return native();
    }
    // dup2() fails at or above the limit, so a descriptor from before the limit was lowered stays what it is.
    if u64::from(new as u32) >= sidestep_sys::limit::descriptor_limit() {
        return native();
    }
    if is_own(new) {
        // The program wants the number of a descriptor of the library. EBUSY: dup2(2) permits this error.
        return errno::give(Err(Errno(libc::EBUSY))) as c_int;
    }
    if is_standard(new) {
        leave_to_stdio(fd);
    }
    let after = numbers::closing(new);
    let result = native();
    after.finish();
    duplicated(fd, result)
}

pub unsafe fn fcntl(fd: c_int, command: c_int, arg: usize) -> c_int {
    if command == libc::F_SETFL
        && arg as c_int & libc::O_ASYNC != 0
        && let Some(index) = conn(fd)
    {
        drain::both_once_read(arena::conn(index), fd, Reason::Async);
    }
    // SAFETY: the program's own call.
    let call = || unsafe { next::fcntl(fd, command, arg) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, call()),
        libc::F_SETFL => nonblocking(conn(fd).map(arena::conn), arg as c_int & libc::O_NONBLOCK != 0, call),
        _ => call(),
    }
}

/// A call that sets O_NONBLOCK, or clears it. The flag is raised before the kernel's: a blocked call that finds only the kernel's takes it
/// for set past the library.
fn nonblocking(c: Option<&Conn>, on: bool, call: impl FnOnce() -> c_int) -> c_int {
    let Some(c) = c else { return call() };
    let is_first = on && c.raise(flag::NONBLOCK);
    let result = call();
    if result == 0 {
        c.put(flag::NONBLOCK, on);
    } else if is_first {
        c.lower(flag::NONBLOCK);
    }
    result
}

pub unsafe fn ioctl(fd: c_int, request: c_ulong, arg: usize) -> c_int {
    let c = conn(fd).map(arena::conn);
    let number = c_ulong::from(request as u32); // the kernel looks at 32 bits; programs for musl pass an int
    if number == libc::FIOASYNC
        && let Some(c) = c
        && user::read(arg as *const c_int).is_ok_and(|on| on != 0)
    {
        drain::both_once_read(c, fd, Reason::Async);
    }
    // SAFETY: the program's own call.
    let call = || unsafe { next::ioctl(fd, request, arg) };
    let value = arg as *mut c_int;
    if number == libc::FIONBIO
        && let Ok(on) = user::read(value.cast_const())
    {
        return nonblocking(c, on != 0, call);
    }
    let result = call();
    let Some(c) = c.filter(|_| result == 0) else { return result };
    match number {
        libc::FIONREAD if c.is_attached() => {
            // SAFETY: the program's own place for the number.
            let told = unsafe { user::write(value, rx::readable(c, fd) as c_int) };
            return errno::give(told.map(|()| 0)) as c_int;
        }
        // Copies in the kernel's send queue are bytes that the peer has in the ring: the program does not wait for them.
        libc::TIOCOUTQ if c.is_attached() => {
            let (news, in_ring) = c.with_tx(|end| stretch::unacknowledged(c, end)).unwrap_or((u64::MAX, 0));
            let told = user::read(value.cast_const()).and_then(|n| {
                // SAFETY: as above.
                unsafe { user::write(value, ((n as u64).min(news) + in_ring) as c_int) }
            });
            return errno::give(told.map(|()| 0)) as c_int;
        }
        _ => {}
    }
    result
}
