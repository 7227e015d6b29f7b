//! What each file descriptor stands for; mostly nothing of ours.
//!
//! The table belongs to one process. An entry is made after connect(), accept() or epoll_create() has returned the descriptor.
//! It is removed before the descriptor is closed, so that a reused number never meets an old entry.

use crate::settings;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sidestep_sys::fd;

/// Descriptors from here on are not followed.
pub const MAX_FD: usize = 1 << 18;

static TABLE: [AtomicU32; MAX_FD] = [const { AtomicU32::new(0) }; MAX_FD];

/// What a descriptor stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing that the library follows.
    Other,
    /// A TCP connection: index of its record.
    Conn(u32),
    /// An epoll set: index of its record.
    Set(u32),
    /// An io_uring: index of its record.
    Ring(u32),
    /// A descriptor of the library itself, which the program must not close.
    Own,
    /// One of several descriptors of a socket that was not connected when they were duplicated, or when an io_uring got it.
    Copied,
    /// A thread is closing the descriptor, and the connection or set behind it ends first.
    Closing,
}

const SHIFT: u32 = 28;
const INDEX: u32 = (1 << SHIFT) - 1;

fn encode(kind: Kind) -> u32 {
    match kind {
        Kind::Other => 0,
        Kind::Conn(i) => 1 << SHIFT | i,
        Kind::Set(i) => 2 << SHIFT | i,
        Kind::Own => 3 << SHIFT,
        Kind::Closing => 4 << SHIFT,
        Kind::Ring(i) => 5 << SHIFT | i,
        Kind::Copied => 6 << SHIFT,
    }
}

/// What `fd` stands for.
#[inline]
pub fn get(fd: i32) -> Kind {
    let Some(entry) = TABLE.get(fd as u32 as usize) else { return Kind::Other };
    // SYNC entry: the record is complete before its number can be found.
    decode(entry.load(Ordering::Acquire))
}

#[inline]
fn decode(word: u32) -> Kind {
    match word >> SHIFT {
        0 => Kind::Other,
        1 => Kind::Conn(word & INDEX),
        2 => Kind::Set(word & INDEX),
        3 => Kind::Own,
        5 => Kind::Ring(word & INDEX),
        6 => Kind::Copied,
        _ => Kind::Closing,
    }
}

/// Makes `fd` stand for `kind`. False: the descriptor is too large to be followed.
pub fn set(fd: i32, kind: Kind) -> bool {
    let Some(entry) = TABLE.get(fd as u32 as usize) else { return false };
    HIGHEST.fetch_max(fd as u32, Ordering::Relaxed);
    if matches!(kind, Kind::Conn(_) | Kind::Set(_)) && !follows_any() && !settings::is_silent() {
        FOLLOWS.store(true, Ordering::Relaxed);
    }
    if matches!(kind, Kind::Conn(_)) && !follows_connections() {
        FOLLOWS_CONNECTIONS.store(true, Ordering::Relaxed);
    }
    // SYNC entry
    entry.store(encode(kind), Ordering::Release);
    true
}

/// Marks `fd` as closing and returns what it stood for. Other: nothing is followed, or another thread closes it already.
pub fn close(fd: i32) -> Kind {
    let kind = get(fd);
    let Some(entry) = TABLE.get(fd as u32 as usize) else { return Kind::Other };
    if !matches!(kind, Kind::Conn(_) | Kind::Set(_) | Kind::Ring(_)) {
        let _ = entry.compare_exchange(encode(Kind::Copied), encode(Kind::Other), Ordering::AcqRel, Ordering::Relaxed);
        return Kind::Other;
    }
    let taken = entry.compare_exchange(encode(kind), encode(Kind::Closing), Ordering::SeqCst, Ordering::Relaxed);
    if taken.is_ok() { kind } else { Kind::Other }
}

/// The descriptor has been closed: removes its mark, unless it stands for something new already.
pub fn closed(fd: i32) {
    if let Some(entry) = TABLE.get(fd as u32 as usize) {
        let closing = encode(Kind::Closing);
        let _ = entry.compare_exchange(closing, encode(Kind::Other), Ordering::AcqRel, Ordering::Relaxed);
    }
}

static HIGHEST: AtomicU32 = AtomicU32::new(0);
static FOLLOWS: AtomicBool = AtomicBool::new(false);
static FOLLOWS_CONNECTIONS: AtomicBool = AtomicBool::new(false);

/// The library has fallen silent, and no connection is left: from now on calls with several descriptors are the kernel's alone.
pub fn follow_no_longer() {
    FOLLOWS.store(false, Ordering::Relaxed);
}

/// Whether any descriptor has ever stood for a connection or a set, and the library has not fallen silent since.
#[inline]
pub fn follows_any() -> bool {
    FOLLOWS.load(Ordering::Relaxed)
}

/// Whether any descriptor has ever stood for a connection.
#[inline]
pub fn follows_connections() -> bool {
    FOLLOWS_CONNECTIONS.load(Ordering::Relaxed)
}

/// The highest descriptor that has ever stood for something.
#[inline]
pub fn highest() -> i32 {
    HIGHEST.load(Ordering::Relaxed) as i32
}

/// Calls `each` for every descriptor that stands for something.
pub fn for_each(mut each: impl FnMut(i32, Kind)) {
    for fd in 0..=HIGHEST.load(Ordering::Relaxed) as i32 {
        match get(fd) {
            Kind::Other | Kind::Closing => {}
            kind => each(fd, kind),
        }
    }
}

/// In a forked child: removes the entries that other threads of the parent were changing during the fork. These are
/// numbers that were being closed, and connections that this process does not hold (`holds`). The child has the kernel's
/// sockets behind them, or something else, or nothing.
pub fn reset_in_child(holds: impl Fn(u32) -> bool) {
    // HIGHEST may have been copied before an entry was made. Such an entry is not far: the kernel gives the lowest free
    // number.
    for entry in TABLE.iter().take(HIGHEST.load(Ordering::Relaxed) as usize + AHEAD) {
        let word = entry.load(Ordering::Relaxed);
        let is_false = match decode(word) {
            Kind::Closing => true,
            Kind::Conn(index) => !holds(index),
            _ => false,
        };
        if is_false {
            entry.store(encode(Kind::Other), Ordering::Relaxed);
        }
    }
}

/// Most descriptors that other threads are thought to make during a fork.
const AHEAD: usize = 1024;

/// Closes a descriptor of the library's own; -1: there is none.
pub fn drop_own(own: i32) {
    if own >= 0 {
        set(own, Kind::Other);
        fd::close(own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Descriptors from here on are not open in tests.
    const FREE: i32 = 200_000;

    #[test]
    fn a_number_that_is_being_closed_stands_for_nothing_and_is_nobodys() {
        let fd = FREE;
        for kind in [Kind::Conn(5), Kind::Set(6), Kind::Ring(7)] {
            assert!(set(fd, kind));
            assert!(get(fd) == kind);
            assert!(close(fd) == kind);
            assert!(get(fd) == Kind::Closing);
            assert!(close(fd) == Kind::Other, "another thread was first");
            closed(fd);
            assert!(get(fd) == Kind::Other);
        }
    }

    #[test]
    fn what_came_to_the_number_meanwhile_stays() {
        let fd = FREE + 1;
        set(fd, Kind::Conn(1));
        close(fd);
        set(fd, Kind::Conn(2));
        closed(fd);
        assert!(get(fd) == Kind::Conn(2));
        assert!(follows_any() && follows_connections() && highest() >= fd);
        set(fd, Kind::Other);
    }

    #[test]
    fn a_child_keeps_the_connections_that_it_holds() {
        let fd = FREE + 10;
        set(fd, Kind::Conn(70_001));
        set(fd + 1, Kind::Conn(70_002));
        set(fd + 2, Kind::Conn(70_001));
        close(fd + 2);
        set(fd + 3, Kind::Set(70_002));
        reset_in_child(|index| index != 70_002);
        assert!(get(fd) == Kind::Conn(70_001) && get(fd + 1) == Kind::Other);
        assert!(get(fd + 2) == Kind::Other && get(fd + 3) == Kind::Set(70_002));
        for fd in fd..fd + 4 {
            set(fd, Kind::Other);
        }
    }

    #[test]
    fn descriptors_of_the_library_are_not_followed() {
        let fd = FREE + 2;
        set(fd, Kind::Own);
        assert!(close(fd) == Kind::Other);
        assert!(get(fd) == Kind::Own);
        set(fd, Kind::Copied);
        assert!(close(fd) == Kind::Other);
        assert!(get(fd) == Kind::Other);
    }

    #[test]
    fn too_large_numbers_are_nobodys() {
        for fd in [-1, MAX_FD as i32, i32::MAX, i32::MIN] {
            assert!(!set(fd, Kind::Conn(1)));
            assert!(get(fd) == Kind::Other && close(fd) == Kind::Other);
        }
    }
}
