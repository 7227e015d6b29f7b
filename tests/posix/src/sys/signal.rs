//! Signals: handlers that count, timers that raise, masks.

use std::mem::zeroed;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{c_int, sigset_t};

use super::errno::outcome;

static COUNTS: [AtomicUsize; 65] = [const { AtomicUsize::new(0) }; 65];

extern "C" fn count_it(signal: c_int) {
    COUNTS[signal as usize].fetch_add(1, Ordering::SeqCst);
}

/// How often the counting handler ran for this signal.
pub fn count(signal: c_int) -> usize {
    COUNTS[signal as usize].load(Ordering::SeqCst)
}

/// Installs a handler; `flags` is SA_RESTART or 0.
pub fn handle(signal: c_int, flags: c_int, handler: extern "C" fn(c_int)) {
    // SAFETY: all-zero is a valid sigaction; the handler has the signature for flags without
    // SA_SIGINFO and does only what is allowed in a signal handler.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags;
        outcome(libc::sigaction(signal, &action, std::ptr::null_mut())).expect("sigaction");
    }
}

/// Installs the handler that does nothing but count.
pub fn count_signal(signal: c_int, flags: c_int) {
    handle(signal, flags, count_it);
}

/// Raises SIGALRM after `first` milliseconds, then every `every` (0: only once).
pub fn alarm_ms(first: i64, every: i64) {
    let time = |ms: i64| libc::timeval { tv_sec: ms / 1000, tv_usec: ms % 1000 * 1000 };
    let timer = libc::itimerval { it_interval: time(every), it_value: time(first) };
    // SAFETY: the new setting is a live value, null asks for no old one.
    outcome(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) }).expect("setitimer");
}

/// The set of exactly these signals.
pub fn set_of(signals: &[c_int]) -> sigset_t {
    // SAFETY: sigemptyset initialises the set before it is used.
    unsafe {
        let mut set: sigset_t = zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// Blocks these signals in the calling thread and returns the mask from before.
pub fn block(signals: &[c_int]) -> sigset_t {
    let set = set_of(signals);
    let mut old = set_of(&[]);
    // SAFETY: both sets are live values.
    let ret = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut old) };
    assert_eq!(ret, 0, "pthread_sigmask");
    old
}

/// By kill(2), to the whole process.
pub fn send_to(pid: i32, signal: c_int) {
    // SAFETY: no pointers; the pid is that of a child of ours.
    outcome(unsafe { libc::kill(pid, signal) }).expect("kill");
}
