//! Grace periods: entries that programs may still be reading are left alone until their readers are gone.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Waits are numbered in the order in which they begin: the last one that has begun, and the highest that has ended.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

/// Returns when no program still uses what a table referred to before the last change. Programs run under RCU, and this call
/// of membarrier(2) waits for an RCU grace period on every machine with more than one processor. On one processor, or where
/// the call is not allowed, a sleep does: a program takes microseconds.
pub(crate) fn wait_for_readers() {
    let number = BEGUN.fetch_add(1, Ordering::SeqCst) + 1;
    // SAFETY: no memory is involved.
    if unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) } != 0 {
        std::thread::sleep(Duration::from_millis(100));
    }
    ENDED.fetch_max(number, Ordering::SeqCst);
}

/// Keys whose entries have been written within the present grace period. A program tolerates that an entry is replaced once
/// while it reads the entry, but not twice (crates/bpf/src/stable_read.h).
#[derive(Default)]
pub(crate) struct Written {
    keys: HashSet<u64>,
    /// Number of the last wait that had begun when the last key was written: any later wait covers all keys.
    begun: u64,
}

impl Written {
    /// Call before these keys are written: waits if one of them was written within this period. Keys are compared by a hash, and
    /// a collision costs a wait.
    pub fn space_out<'a>(&mut self, mut keys: impl Iterator<Item = &'a [u8]>) {
        self.clear_if_over();
        if !self.keys.is_empty() && keys.any(|key| self.keys.contains(&digest(key))) {
            wait_for_readers();
            self.clear_if_over();
        }
    }

    /// Call after these keys were written. Another thread waits for the period's end, so that a writer rarely has to.
    pub fn note<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) {
        self.keys.extend(keys.map(digest));
        self.begun = BEGUN.load(Ordering::SeqCst);
        wait_aside();
    }

    fn clear_if_over(&mut self) {
        if ENDED.load(Ordering::SeqCst) > self.begun {
            self.keys.clear();
        }
    }
}

fn digest(key: &[u8]) -> u64 {
    let mut digest = DefaultHasher::new();
    key.hash(&mut digest);
    digest.finish()
}

/// Makes another thread wait for a period that begins now or later. If the thread cannot be started, the writers wait.
fn wait_aside() {
    static WAITER: OnceLock<Option<SyncSender<()>>> = OnceLock::new();
    let waiter = WAITER.get_or_init(|| {
        let (sender, asked) = sync_channel(1);
        let thread = std::thread::Builder::new().name("grace".into());
        thread.spawn(move || wait_when(&asked)).ok().map(|_| sender)
    });
    // If the queue is full, the request that is in it serves this caller, too.
    if let Some(waiter) = waiter {
        let _ = waiter.try_send(());
    }
}

fn wait_when(asked: &Receiver<()>) {
    while asked.recv().is_ok() {
        wait_for_readers();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(written: &mut Written, keys: &[&[u8]]) {
        written.space_out(keys.iter().copied());
        written.note(keys.iter().copied());
    }

    #[test]
    fn a_key_is_written_once_in_a_period() {
        let mut written = Written::default();
        write(&mut written, &[b"a", b"b"]);
        for _ in 0..100 {
            let last = written.begun;
            write(&mut written, &[b"b"]);
            assert!(ENDED.load(Ordering::SeqCst) > last, "no period has passed");
        }
    }

    #[test]
    fn others_do_not_wait_and_what_was_written_is_forgotten() {
        let mut written = Written::default();
        for key in 0..100_u32 {
            write(&mut written, &[&key.to_ne_bytes()]);
        }
        wait_for_readers();
        write(&mut written, &[b"c"]);
        assert_eq!(written.keys.len(), 1);
    }
}
