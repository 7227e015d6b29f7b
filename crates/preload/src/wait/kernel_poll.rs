//! poll(2) of a list without attached connections: the kernel alone answers. The list may hold epoll sets, which must be refreshed
//! now and then.

use super::signals::Quiet;
use super::{Deadline, NOW, as_ptr, epoll};
use crate::{errno, next};
use libc::{pollfd, sigset_t};
use sidestep_sys::Result;

/// poll(2) in all its forms. `native`: the program's own call.
pub fn poll(fds: &mut [pollfd], ns: Option<u64>, mask: *const sigset_t, native: impl FnOnce() -> i32) -> i32 {
    if epoll::native_cap().is_none() {
        return native();
    }
    errno::give(poll_in_parts(fds, ns, mask)) as i32
}

/// No handler runs between its sleeps: it would interrupt none of them, and the program expects EINTR.
fn poll_in_parts(fds: &mut [pollfd], ns: Option<u64>, mask: *const sigset_t) -> Result<usize> {
    let deadline = Deadline::after_ns(ns.filter(|n| *n > 0));
    let mut quiet = Quiet::begin(mask);
    loop {
        let cap = epoll::native_cap();
        let left = if ns == Some(0) {
            NOW
        } else {
            quiet.hold_back(false)?;
            deadline.left(cap)
        };
        let (at, len) = (fds.as_mut_ptr(), fds.len() as u64);
        // SAFETY: the list, the timespec and the mask (or null) are alive during the call.
        let n = errno::check(unsafe { next::ppoll(at, len, as_ptr(&left), quiet.mask(mask)) } as isize)?;
        if n != 0 || cap.is_none() || ns == Some(0) || deadline.has_passed() {
            return Ok(n);
        }
        errno::keep(epoll::poll_nested);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::unrung::tests::silent_link;
    use crate::wait::{sets, signals};
    use crate::{link, waiter};
    use core::mem::MaybeUninit;
    use core::sync::atomic::{AtomicU64, Ordering::*};
    use libc::{SA_RESTART, SA_SIGINFO, SIGURG, SIGWINCH, c_int, c_void, siginfo_t, ucontext_t};

    /// The signals that the thread had blocked when its handler interrupted it, and that the sleep lets through.
    static BLOCKED: AtomicU64 = AtomicU64::new(0);

    unsafe extern "C" fn note(_: c_int, _: *mut siginfo_t, at: *mut c_void) {
        // SAFETY: the kernel's own; a mask has eight bytes at least.
        BLOCKED.store(unsafe { (&raw const (*at.cast::<ucontext_t>()).uc_sigmask).cast::<u64>().read() }, SeqCst);
    }

    fn handle(signal: c_int) {
        let handler: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = note;
        // SAFETY: zero bytes are a valid action, which is filled in.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        (action.sa_sigaction, action.sa_flags) = (handler as usize, SA_SIGINFO | SA_RESTART);
        // SAFETY: a complete action.
        assert_eq!(unsafe { libc::sigaction(signal, &action, core::ptr::null_mut()) }, 0);
        signals::installed(signal, handler as usize, SA_RESTART);
    }

    #[test]
    fn a_handler_interrupts_a_wait_that_sleeps_again_and_again() {
        let (at, index) = (silent_link(0x7e65), sets::create(-1).expect("a record"));
        let (s, place) = (sets::get(index), waiter::acquire().expect("a waiter"));
        s.set_waiter(place);
        epoll::nest(index);
        assert!(epoll::native_cap().is_some(), "the peer does not have the doorbell");
        handle(SIGURG);
        // SAFETY: numbers.
        let thread = unsafe { libc::pthread_self() };
        let signaller = std::thread::spawn(move || {
            while BLOCKED.load(SeqCst) == 0 {
                // SAFETY: the thread joins this one.
                unsafe { libc::pthread_kill(thread, SIGURG) };
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        let mut list = [pollfd { fd: -1, events: 0, revents: 0 }];
        let interrupted = (poll(&mut list, Some(10_000_000_000), core::ptr::null(), || 0), errno::get());
        BLOCKED.fetch_or(1, SeqCst);
        signaller.join().expect("no panic");
        assert_eq!(interrupted, (-1, libc::EINTR));
        assert_ne!(BLOCKED.load(SeqCst) & 1 << (SIGWINCH - 1), 0, "a handler could run between two sleeps");
        s.destroy();
        s.refs.store(0, Release);
        link::remove(at);
    }
}
