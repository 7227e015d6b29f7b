//! Threads that are known to sleep in the tested call before the case continues.

use std::sync::mpsc;
use std::thread::JoinHandle;

use super::cpu::eventually;

/// A thread that was asleep when this was returned.
pub struct Blocked<T> {
    thread: JoinHandle<T>,
    tid: i32,
}

/// Starts a thread and waits until it sleeps. A thread that has ended already counts, too: the case must judge that.
pub fn blocked<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Blocked<T> {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // SAFETY: no arguments.
        tell.send(unsafe { libc::gettid() }).expect("tell the thread's number");
        work()
    });
    let tid = told.recv().expect("the thread's number");
    eventually("the thread sleeps", || thread.is_finished() || asleep(tid));
    Blocked { thread, tid }
}

impl<T> Blocked<T> {
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    pub fn join(self) -> T {
        self.thread.join().expect("the thread")
    }

    pub fn until_asleep(&self) {
        eventually("the thread sleeps", || asleep(self.tid));
    }

    /// Sends a signal to this thread.
    pub fn signal(&self, signal: i32) {
        // SAFETY: no pointers; the thread has not been joined.
        let ret = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.tid, signal) };
        assert_eq!(ret, 0, "tgkill");
    }
}

/// Whether a process or thread sleeps, and still does a moment later.
pub fn asleep(tid: i32) -> bool {
    let sleeps = || state(tid) == Some('S');
    sleeps() && {
        std::thread::sleep(std::time::Duration::from_millis(3));
        sleeps()
    }
}

/// The letter after the program's name in /proc's `stat`.
pub fn state(tid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
