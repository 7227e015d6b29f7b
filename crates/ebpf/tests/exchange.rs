//! Models a reader of a hash table while an entry is exchanged, in every order: `crates/bpf/src/stable_read.h` relies on the
//! result. The bucket is the kernel's (`kernel/bpf/hashtab.c`, htab_map_update_elem and lookup_nulls_elem_raw), on processors
//! that do not reorder loads, such as x86.

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::SeqCst;
use loom::thread;

/// Keys: the wanted one, its neighbour in the bucket, and one of another bucket.
const WANTED: usize = 0;
const NEIGHBOUR: usize = 1;
const STRANGER: usize = 2;
/// Positions of entries.
const OLD: usize = 0;
const BESIDE: usize = 1;
const NEW: usize = 2;
/// Each bucket ends with its own mark, so that a reader notices that it was led into another one.
const END: usize = 10;
const END_OF_ANOTHER: usize = 11;
/// As in `stable_read.h`.
const READINGS: usize = 3;

struct Entry {
    key: AtomicUsize,
    value: [AtomicUsize; 2],
    next: AtomicUsize,
}

impl Entry {
    fn new(key: usize, value: usize, next: usize) -> Entry {
        Entry {
            key: AtomicUsize::new(key),
            value: [0, 1].map(|_| AtomicUsize::new(value)),
            next: AtomicUsize::new(next),
        }
    }

    fn write(&self, key: usize, value: usize, next: usize) {
        self.key.store(key, SeqCst);
        self.value.iter().for_each(|word| word.store(value, SeqCst));
        self.next.store(next, SeqCst);
    }

    fn copy(&self) -> [usize; 2] {
        [self.value[0].load(SeqCst), self.value[1].load(SeqCst)]
    }
}

struct Bucket {
    first: AtomicUsize,
    entries: [Entry; 3],
}

impl Bucket {
    fn new() -> Bucket {
        let entries = [Entry::new(WANTED, 1, END), Entry::new(NEIGHBOUR, 7, OLD), Entry::new(NEIGHBOUR, 7, END)];
        Bucket { first: AtomicUsize::new(BESIDE), entries }
    }

    /// The new entry is inserted in front, the old one is removed, and its memory is reused for another key at once.
    fn exchange(&self) {
        self.entries[NEW].write(WANTED, 2, self.first.load(SeqCst));
        self.first.store(NEW, SeqCst);
        self.entries[BESIDE].next.store(END, SeqCst);
        self.entries[OLD].write(STRANGER, 9, END_OF_ANOTHER);
    }

    fn look_up(&self) -> Option<&Entry> {
        loop {
            let mut at = self.first.load(SeqCst);
            while let Some(entry) = self.entries.get(at) {
                if entry.key.load(SeqCst) == WANTED {
                    return Some(entry);
                }
                at = entry.next.load(SeqCst);
            }
            if at == END {
                return None;
            }
        }
    }

    fn find(&self) -> Option<&Entry> {
        self.look_up().or_else(|| self.look_up())
    }

    fn read(&self, readings: usize) -> Option<[usize; 2]> {
        let mut copy = self.find()?.copy();
        for _ in 1..readings {
            let again = self.find()?.copy();
            if copy == again {
                break;
            }
            copy = again;
        }
        Some(copy)
    }
}

fn in_every_order(read: impl Fn(&Bucket) -> Option<[usize; 2]> + Send + Sync + Copy + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(move || {
        let bucket = Arc::new(Bucket::new());
        let writer = thread::spawn({
            let bucket = Arc::clone(&bucket);
            move || bucket.exchange()
        });
        let found = read(&bucket);
        writer.join().unwrap();
        assert!(matches!(found, Some([1, 1] | [2, 2])), "{found:?}");
    });
}

#[test]
fn what_is_read_is_the_old_value_or_the_new_one() {
    in_every_order(|bucket| bucket.read(READINGS));
}

#[test]
#[should_panic(expected = "None")]
fn one_look_may_find_neither() {
    in_every_order(|bucket| bucket.look_up().map(|_| [1, 1]));
}

#[test]
#[should_panic(expected = "Some([9, 9])")]
fn one_reading_may_be_of_another_key() {
    in_every_order(|bucket| bucket.read(1).filter(|found| *found == [9, 9]).or(Some([1, 1])));
}

/// The second reading may be the spoiled one.
#[test]
#[should_panic(expected = "Some([")]
fn two_readings_may_differ() {
    in_every_order(|bucket| bucket.read(2));
}
