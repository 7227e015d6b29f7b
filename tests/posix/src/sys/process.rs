//! fork, wait, and what a process may ask about itself.

use libc::c_int;

use super::errno::outcome;

/// A forked child that runs a closure.
pub struct Child {
    /// Valid until it was waited for.
    pub pid: i32,
}

/// How a process ended.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Ended {
    /// By itself, with this exit code.
    Exit(c_int),
    /// By this signal.
    Signal(c_int),
}

/// Forks; the child runs `work` and leaves by `_exit(0)`, or aborts when it panics.
pub fn in_child(work: impl FnOnce()) -> Child {
    // SAFETY: the child runs ordinary code on its copy of the address space. The test processes
    // that fork while other threads run do only system calls and allocation there, which glibc
    // keeps usable after fork.
    match outcome(unsafe { libc::fork() }).expect("fork") {
        0 => {
            die_with_parent();
            work();
            exit_now(0)
        }
        pid => Child { pid: pid as i32 },
    }
}

impl Child {
    /// Waits for its end.
    pub fn wait(self) -> Ended {
        wait_for(self.pid)
    }

    /// Panics unless the child's work ended well; its own panic is already on stderr.
    pub fn succeed(self) {
        assert_eq!(self.wait(), Ended::Exit(0), "the forked child failed");
    }
}

/// Waits for the end of a child of this process; panics if it is none.
pub fn wait_for(pid: i32) -> Ended {
    let mut status = 0;
    // SAFETY: the status is a live integer.
    while unsafe { libc::waitpid(pid, &mut status, 0) } < 0 {
        assert_eq!(super::errno::Errno::last(), super::errno::EINTR, "waitpid");
    }
    match libc::WIFSIGNALED(status) {
        true => Ended::Signal(libc::WTERMSIG(status)),
        false => Ended::Exit(libc::WEXITSTATUS(status)),
    }
}

/// Makes a helper process end when its parent ends, in whatever way.
pub fn die_with_parent() {
    // SAFETY: PR_SET_PDEATHSIG takes a number.
    outcome(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }).expect("PR_SET_PDEATHSIG");
}

/// Leaves without running exit handlers.
pub fn exit_now(code: c_int) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// Sets a soft limit, and returns the one from before.
pub fn set_limit(which: libc::__rlimit_resource_t, soft: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is a live value.
    outcome(unsafe { libc::getrlimit(which, &mut limit) }).expect("getrlimit");
    let before = limit.rlim_cur;
    limit.rlim_cur = soft.min(limit.rlim_max);
    // SAFETY: the limit is a live value.
    outcome(unsafe { libc::setrlimit(which, &limit) }).expect("setrlimit");
    before
}

/// Some cases need root; without it they fail instead of skipping.
pub fn require_root() {
    // SAFETY: no arguments.
    let uid = unsafe { libc::geteuid() };
    assert_eq!(uid, 0, "this case must run as root (it makes network namespaces or changes user)");
}
