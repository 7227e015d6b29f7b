//! File descriptors of our own, and questions about the program's.

use crate::{Errno, Result, TRIES, call};

/// Lowest number for descriptors of our own: never 0-2, never one that a program counts on getting next.
pub const LOWEST: i32 = 512;

pub fn close(fd: i32) {
    // SAFETY: no memory involved; the number is ours to close. An error leaves nothing to do.
    let _ = unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// fcntl(2) with a word as argument.
pub fn fcntl(fd: i32, command: i32, arg: usize) -> Result<usize> {
    // SAFETY: used with commands whose argument is a number.
    unsafe { call(libc::SYS_fcntl, [fd as usize, command as usize, arg, 0, 0, 0]) }
}

/// Moves `fd` to a high number, close-on-exec. With a low descriptor limit it goes as high as it can.
pub fn raise(fd: i32) -> Result<i32> {
    let mut lowest = LOWEST;
    loop {
        match fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest as usize) {
            Ok(high) => {
                close(fd);
                return Ok(high as i32);
            }
            Err(_) if lowest > 8 => lowest /= 2,
            Err(e) => {
                close(fd);
                return Err(e);
            }
        }
    }
}

/// A non-blocking eventfd at a high number.
pub fn eventfd() -> Result<i32> {
    let flags = libc::EFD_NONBLOCK | libc::EFD_CLOEXEC;
    // SAFETY: no memory involved.
    raise(unsafe { call(libc::SYS_eventfd2, [0, flags as usize, 0, 0, 0, 0]) }? as i32)
}

/// A signalfd for all signals, at a high number.
pub fn signalfd() -> Result<i32> {
    let all = u64::MAX;
    let flags = (libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) as usize;
    // SAFETY: one word of the size that the kernel is told.
    raise(unsafe { call(libc::SYS_signalfd4, [usize::MAX, &raw const all as usize, 8, flags, 0, 0]) }? as i32)
}

/// Adds one to an eventfd. One that is full is readable already, but an edge-triggered waiter may have heard that
/// long ago, and any peer can fill it: it is emptied first. Any peer can also make it blocking: that is undone. False:
/// it could not be done, and whoever sleeps there sleeps on.
pub fn ring(eventfd: i32) -> bool {
    let nonblocking = libc::O_NONBLOCK as usize;
    if let Ok(flags) = fcntl(eventfd, libc::F_GETFL, 0)
        && flags & nonblocking == 0
    {
        let _ = fcntl(eventfd, libc::F_SETFL, flags | nonblocking);
    }
    (0..TRIES).any(|_| match add_one(eventfd) {
        Ok(_) => true,
        Err(Errno(libc::EAGAIN)) => {
            hush(eventfd);
            false
        }
        Err(_) => false,
    })
}

fn add_one(eventfd: i32) -> Result<usize> {
    let one = 1u64;
    // SAFETY: eight readable bytes.
    unsafe { call(libc::SYS_write, [eventfd as usize, &raw const one as usize, 8, 0, 0, 0]) }
}

/// Empties an eventfd, without waiting even if a peer has made it blocking.
pub fn hush(eventfd: i32) {
    let mut count = 0u64;
    let into = libc::iovec { iov_base: (&raw mut count).cast(), iov_len: 8 };
    let here = usize::MAX; // no position
    let args = [eventfd as usize, &raw const into as usize, 1, here, here, libc::RWF_NOWAIT as usize];
    // SAFETY: one vector of eight writable bytes.
    let emptied = unsafe { call(libc::SYS_preadv2, args) };
    if emptied.is_err_and(|e| e != Errno(libc::EAGAIN)) {
        // A filter knows only the old call; a doorbell that stays readable would keep us awake.
        // SAFETY: eight writable bytes.
        let _ = unsafe { call(libc::SYS_read, [eventfd as usize, &raw mut count as usize, 8, 0, 0, 0]) };
    }
}

/// What poll(2) says of one socket right now.
pub fn poll_now(fd: i32, events: i16) -> i16 {
    let mut p = libc::pollfd { fd, events, revents: 0 };
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one pollfd and a timespec, both alive during the call; no signal mask.
    let mut poll = || unsafe { call(libc::SYS_ppoll, [&raw mut p as usize, 1, &raw const zero as usize, 0, 8, 0]) };
    if (0..TRIES).any(|_| poll().is_ok()) { p.revents } else { peek_now(fd, events) }
}

/// The same without poll(2). Whether a socket takes bytes nobody else can tell: it is said to, and the write will tell.
#[cold]
fn peek_now(fd: i32, events: i16) -> i16 {
    use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM};
    let mut byte = 0u8;
    let iov = [libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 }];
    // SAFETY: one writable byte.
    let found = match unsafe { crate::tcp::receive(fd, &iov, libc::MSG_PEEK) } {
        Ok(0) => POLLIN | POLLRDNORM | POLLRDHUP,
        Ok(_) => POLLIN | POLLRDNORM,
        Err(e) if e.passes() => 0,
        Err(_) => POLLIN | POLLRDNORM | POLLERR | POLLHUP,
    };
    (found | POLLOUT | POLLWRNORM) & (events | POLLERR | POLLHUP)
}

/// Appends `line` to the file at `path` (NUL-terminated), creating it.
pub fn append(path: &core::ffi::CStr, line: &[u8]) -> Result<()> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    let at = libc::AT_FDCWD as usize;
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { call(libc::SYS_openat, [at, path.as_ptr() as usize, flags as usize, 0o666, 0, 0]) }?;
    if !may_grow(fd as i32, line.len()) {
        close(fd as i32);
        return Err(Errno(libc::EFBIG));
    }
    // SAFETY: `line` is readable for its length. One write: lines of several processes do not mix.
    let written = unsafe { call(libc::SYS_write, [fd, line.as_ptr() as usize, line.len(), 0, 0, 0]) };
    close(fd as i32);
    written.map(drop)
}

/// Whether RLIMIT_FSIZE lets a file grow: a write beyond it would raise SIGXFSZ.
fn may_grow(fd: i32, by: usize) -> bool {
    let mut limit = [0u64; 2];
    let args = [0, libc::RLIMIT_FSIZE as usize, 0, &raw mut limit as usize, 0, 0];
    // SAFETY: the kernel writes one struct rlimit64, two words.
    let asked = unsafe { call(libc::SYS_prlimit64, args) };
    // SAFETY: no memory involved.
    let size = unsafe { call(libc::SYS_lseek, [fd as usize, 0, libc::SEEK_END as usize, 0, 0, 0]) };
    asked.is_ok() && size.is_ok_and(|size| (size + by) as u64 <= limit[0])
}

/// Writes to stderr, whatever becomes of it.
pub fn complain(text: &[u8]) {
    // SAFETY: `text` is readable for its length.
    let _ = unsafe { call(libc::SYS_write, [2, text.as_ptr() as usize, text.len(), 0, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(eventfd: i32) {
        let most = u64::MAX - 1;
        // SAFETY: eight readable bytes.
        unsafe { call(libc::SYS_write, [eventfd as usize, &raw const most as usize, 8, 0, 0, 0]) }.expect("fill");
    }

    #[test]
    fn a_full_doorbell_is_heard_again() {
        let bell = eventfd().expect("eventfd");
        fill(bell);
        // SAFETY: no memory involved.
        let set = unsafe { call(libc::SYS_epoll_create1, [0; 6]) }.expect("epoll") as i32;
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        let add = [set as usize, libc::EPOLL_CTL_ADD as usize, bell as usize, &raw mut event as usize, 0, 0];
        // SAFETY: one event.
        unsafe { call(libc::SYS_epoll_ctl, add) }.expect("add");
        let mut heard = || {
            let wait = [set as usize, &raw mut event as usize, 1, 0, 0, 8];
            // SAFETY: room for one event, no mask.
            unsafe { call(libc::SYS_epoll_pwait, wait) }.expect("wait")
        };
        assert_eq!((heard(), heard()), (1, 0), "once, as it is full");
        ring(bell);
        assert_eq!(heard(), 1, "and again when it is rung");
        close(bell);
        close(set);
    }

    #[test]
    fn a_full_doorbell_that_blocks_is_not_waited_for() {
        let bell = eventfd().expect("eventfd");
        fill(bell);
        fcntl(bell, libc::F_SETFL, 0).expect("blocking");
        ring(bell); // returns
        assert_eq!(poll_now(bell, libc::POLLIN), libc::POLLIN);
        close(bell);
    }

    #[test]
    fn an_empty_doorbell_is_not_waited_for() {
        let bell = eventfd().expect("eventfd");
        fcntl(bell, libc::F_SETFL, 0).expect("blocking");
        hush(bell); // returns
        ring(bell);
        hush(bell);
        assert_eq!(poll_now(bell, libc::POLLIN), 0);
        close(bell);
    }
}
