//! A connection goes to another descriptor, or to another process, in mid-stream.

use sidestep_posix::sys::passing::{receive_fd, send_fd};
use sidestep_posix::sys::{Fd, fds};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hand {
    /// To a copy; the first descriptor is closed.
    Dup,
    /// To a copy with a high number.
    DupHigh,
    /// By SCM_RIGHTS, closed before it is received.
    Passed,
    /// By SCM_RIGHTS, closed after.
    PassedLater,
    /// A child goes on with it.
    Fork,
    /// A child has a copy for a moment.
    ForkHolds,
}

pub const ALL: &[Hand] = &[Hand::Dup, Hand::DupHigh, Hand::Passed, Hand::PassedLater, Hand::Fork, Hand::ForkHolds];

/// Number of a copy with a high number, at least.
const HIGH: i32 = 300;

/// Another number for the same socket, which has only this one then. As it was for those that concern processes.
pub fn renumbered(fd: Fd, hand: Hand) -> Fd {
    let copied = |copy: sidestep_posix::sys::errno::Outcome| {
        let copy = copy.expect("a copy") as Fd;
        fds::close(fd).expect("close");
        copy
    };
    match hand {
        Hand::Dup => copied(fds::dup(fd)),
        Hand::DupHigh => copied(fds::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH)),
        Hand::Passed => passed(fd, true),
        Hand::PassedLater => passed(fd, false),
        Hand::Fork | Hand::ForkHolds => fd,
    }
}

fn passed(fd: Fd, closed_first: bool) -> Fd {
    let pair = fds::unix_pair();
    let close = || fds::close(fd).map(drop).expect("close");
    send_fd(pair.0, fd, false);
    if closed_first {
        close();
    }
    let it = receive_fd(pair.1);
    if !closed_first {
        close();
    }
    fds::close(pair.0).and(fds::close(pair.1)).expect("close of a pair");
    it
}

/// In a forked child: closes the other connections, whose ends it would hold back.
pub fn keep_only(fd: Fd) {
    if fd > 3 {
        fds::close_range(3, fd - 1, 0).expect("close_range");
    }
    fds::close_range(fd + 1, i32::MAX, 0).expect("close_range");
}
