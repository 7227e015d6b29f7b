//! Which threads of this process are blocked in a call on which connection: such a connection outlives its descriptor. A
//! cancelled thread (pthread_cancel(3)) cannot remove its entry. So each entry has the thread's number, and `close` checks
//! whether that thread still lives.

/// Most connections of a process and its forked relatives at once. Further connections stay native.
pub const CONNS: usize = 1 << 16;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use sidestep_sys::process;

/// Most entries. Further threads are only counted, and count as alive.
const MOST: usize = 4096;

/// An entry: thread in the upper half, connection + 1 in the lower half; 0: free.
static LIST: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// Number of threads blocked on each connection, with an entry or without.
static COUNT: [AtomicU32; CONNS] = [const { AtomicU32::new(0) }; CONNS];

fn count(index: u32) -> &'static AtomicU32 {
    &COUNT[index as usize % CONNS]
}

fn word(tid: u32, index: u32) -> u64 {
    u64::from(tid) << 32 | u64::from(index + 1)
}

/// All entries, beginning where those of thread `tid` most likely are.
fn entries(tid: u32) -> impl Iterator<Item = &'static AtomicU64> {
    (0..MOST).map(move |i| &LIST[(tid as usize).wrapping_add(i) % MOST])
}

fn change(tid: u32, from: u64, to: u64) -> bool {
    entries(tid).any(|e| e.load(Relaxed) == from && e.compare_exchange(from, to, SeqCst, Relaxed).is_ok())
}

/// The thread is about to block on the connection.
pub fn enter(tid: u32, index: u32) {
    count(index).fetch_add(1, SeqCst);
    change(tid, 0, word(tid, index));
}

/// The thread is no longer blocked on the connection.
pub fn leave(tid: u32, index: u32) {
    if count(index).load(SeqCst) > 0 {
        change(tid, word(tid, index), 0);
        count_down(index);
    }
}

fn count_down(index: u32) {
    // A forked child starts with counts of 0, although its one thread may be in a call that was counted in the parent.
    let _ = count(index).fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
}

/// Whether a thread is blocked on the connection. Removes the entries of threads that have ended.
pub fn is_any(index: u32) -> bool {
    if has_entry(index) {
        for entry in &LIST {
            let word = entry.load(Relaxed);
            let gone = word as u32 == index + 1 && !process::goes_on((word >> 32) as u32);
            if gone && entry.compare_exchange(word, 0, SeqCst, Relaxed).is_ok() {
                count_down(index);
            }
        }
    }
    has_entry(index)
}

/// As [`is_any`], but threads that have ended count, too.
pub fn has_entry(index: u32) -> bool {
    count(index).load(SeqCst) > 0
}

/// The connections in the list, once for each entry.
pub fn connections() -> impl Iterator<Item = u32> {
    LIST.iter().filter_map(|entry| (entry.load(Relaxed) as u32).checked_sub(1))
}

/// A thread begins. Entries with its number belong to an earlier thread that has ended.
#[cold]
pub fn begin(tid: u32) {
    for entry in &LIST {
        let word = entry.load(Relaxed);
        if (word >> 32) as u32 == tid && entry.compare_exchange(word, 0, SeqCst, Relaxed).is_ok() {
            count_down(word as u32 - 1);
        }
    }
}

/// In a forked child: the parent's threads do not exist here.
pub fn reset_in_child() {
    LIST.iter().for_each(|entry| entry.store(0, Relaxed));
}

/// In a forked child that has inherited no connection.
pub fn reset_connections_in_child() {
    COUNT.iter().filter(|count| count.load(Relaxed) != 0).for_each(|count| count.store(0, Relaxed));
}

/// In a forked child: removes the entries of the parent's threads for an inherited connection.
pub fn reset_connection_in_child(index: u32) {
    count(index).store(0, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// The number of a thread that has ended.
    fn gone() -> u32 {
        let tid = thread::spawn(process::tid).join().expect("a number");
        while process::goes_on(tid) {
            thread::yield_now(); // the thread has been joined, but the kernel still knows its number
        }
        tid
    }

    #[test]
    fn a_thread_that_is_gone_keeps_nothing_alive() {
        let me = process::tid();
        enter(me, 40_001);
        assert!(is_any(40_001));
        assert!(connections().any(|index| index == 40_001));
        leave(me, 40_001);
        assert!(!is_any(40_001));
        enter(gone(), 40_001);
        assert!(!is_any(40_001));
    }

    #[test]
    fn a_thread_with_the_number_of_another_is_not_taken_for_it() {
        let me = process::tid();
        enter(me, 40_002);
        begin(me);
        assert!(!is_any(40_002));
    }

    #[test]
    fn a_connection_counts_all_threads() {
        let me = process::tid();
        enter(me, 40_003);
        enter(me, 40_003);
        leave(me, 40_003);
        assert!(is_any(40_003));
        reset_connection_in_child(40_003);
        assert!(!is_any(40_003));
    }
}
