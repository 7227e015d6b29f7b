//! select(2) by means of poll(2), if a set holds a connection or an epoll set of ours.

use super::ignored::Ignored;
use super::{Deadline, poll, signals};
use crate::fdtable::{self, Kind};
use crate::{arena, debts, errno, generation, record::flag, user};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use libc::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDBAND, POLLRDNORM, POLLWRBAND, POLLWRNORM, fd_set,
    pollfd,
};
use sidestep_sys::{Errno, Result, mem, process};

/// The sets of a call for reading, writing and exceptions; null where the program gave none.
pub struct Sets {
    /// Only descriptors below this number count.
    n: i32,
    given: [*mut fd_set; 3],
}

/// Result of a look at the sets.
enum Answer {
    /// A set cannot be read, so the kernel is to report that.
    AskKernel,
    Done(Result<i32>),
    /// Only this many descriptors count, so look again.
    Fewer(i32),
}

/// Bits in a word. glibc's sets are arrays of words, and may be longer than FD_SETSIZE.
const BITS: i32 = u64::BITS as i32;
/// Words of the program's sets that are looked at at a time.
const PART: usize = 4;
/// Words of a set that fit on the stack; a longer set takes a mapping for the duration of the call.
const ON_STACK: usize = 16;
/// Least size of a process's descriptor table (NR_OPEN_DEFAULT).
const SMALLEST_TABLE: i32 = 64;

/// Words of a set that are looked at at a time for descriptors beyond the table.
const FAR_PART: usize = 64;

/// Size of the descriptor table when the kernel was last asked, below the generation of the process that has asked.
static TABLE: AtomicU64 = AtomicU64::new(0);

/// The size that this process's table has at least; 0: not known. A table never becomes smaller, but that of a forked child may be.
fn known_table() -> i32 {
    let word = TABLE.load(Relaxed);
    if (word >> 32) as u32 == generation::get() { word as u32 as i32 } else { 0 }
}

fn keep_table(size: i32) {
    TABLE.store(u64::from(generation::get()) << 32 | u64::from(size as u32), Relaxed);
}

/// How many of `n` descriptors the kernel looks at: at most the size of this process's table.
#[cold]
fn table_of(n: i32) -> i32 {
    match process::descriptor_table() {
        Some(table) => {
            keep_table(table);
            n.min(table)
        }
        // Without /proc: sets of an fd_set's usual size have no more, and descriptors of ours are below.
        None => n.min((libc::FD_SETSIZE as i32).max(fdtable::highest() + 1)),
    }
}

/// As [`table_of`]. The kernel is asked only if a set has a descriptor beyond the table as it was.
fn cut(n: i32, given: [*mut fd_set; 3]) -> i32 {
    let known = known_table();
    if n <= libc::FD_SETSIZE as i32 || n <= known {
        return n;
    }
    let ends_there = known > 0 && given.iter().all(|set| set.is_null() || is_empty(*set, known, n));
    if ends_there { known } else { table_of(n) }
}

/// Whether a set of the program can be read up to `n`, and has no bit from `from` on.
fn is_empty(set: *const fd_set, from: i32, n: i32) -> bool {
    let mut part = [0u64; FAR_PART];
    ((from / BITS) as usize..words(n)).step_by(FAR_PART).all(|at| {
        let part = &mut part[..(words(n) - at).min(FAR_PART)];
        user::read_all(part, set.cast::<u64>().wrapping_add(at)).is_ok() && {
            let mut numbers = part.iter().enumerate().flat_map(|(i, word)| bits(*word, (at + i) as i32 * BITS));
            numbers.all(|fd| fd < from || fd >= n)
        }
    })
}

/// The poll events that correspond to each set (select(2), "Correspondence"). They are asked for, and they set the bit. poll(2)
/// also reports hang-ups and errors that were not asked for.
const ASKS: [i16; 3] = [POLLIN | POLLRDNORM | POLLRDBAND, POLLOUT | POLLWRNORM | POLLWRBAND, POLLPRI];
const WARRANTS: [i16; 3] = [ASKS[0] | POLLHUP | POLLERR, ASKS[1] | POLLERR, POLLPRI];

impl Sets {
    /// The sets of a call that concerns a connection or an epoll set of ours. None: it does not, or a set cannot be read.
    pub fn of_ours(n: i32, given: [*mut fd_set; 3]) -> Option<Sets> {
        if !fdtable::follows_any() || n <= 0 {
            return None;
        }
        let ours = given.iter().any(|set| !set.is_null() && holds_ours(*set, n.min(fdtable::highest() + 1)));
        // The kernel cuts `n` before it reads the sets: some programs pass their limit, with sets of an fd_set's usual size.
        ours.then(|| Sets { n: cut(n, given), given })
    }

    fn words(&self) -> usize {
        words(self.n)
    }

    /// select(2). `ns`: timeout, None: no limit. Returns None if the kernel must be asked instead, as for an unreadable set.
    ///
    /// # Safety
    /// The sets are the program's own.
    pub unsafe fn select(&self, ns: Option<u64>, mask: *const libc::sigset_t) -> Option<Result<i32>> {
        let mut sets = Sets { ..*self };
        loop {
            // SAFETY: by contract.
            match unsafe { sets.select_once(ns, mask) } {
                Answer::Done(result) => return Some(result),
                Answer::AskKernel => return None,
                Answer::Fewer(n) => sets.n = n,
            }
        }
    }

    unsafe fn select_once(&self, ns: Option<u64>, mask: *const libc::sigset_t) -> Answer {
        let words = self.words();
        if words <= ON_STACK {
            let mut room = [0; 3 * ON_STACK];
            // SAFETY: by contract.
            return unsafe { self.select_by(&mut room[..3 * words], ns, mask) };
        }
        let bytes = 3 * words * size_of::<u64>();
        let Ok(memory) = mem::anonymous(bytes, false) else { return Answer::Done(Err(Errno(libc::ENOMEM))) };
        // SAFETY: a fresh zeroed mapping of that size, unmapped below, after its last use.
        let room = unsafe { core::slice::from_raw_parts_mut(memory.cast::<u64>(), 3 * words) };
        // SAFETY: by contract.
        let answer = unsafe { self.select_by(room, ns, mask) };
        // SAFETY: after its last use.
        unsafe { mem::unmap(memory, bytes) };
        answer
    }

    /// `room`: for a copy of the three sets.
    unsafe fn select_by(&self, room: &mut [u64], ns: Option<u64>, mask: *const libc::sigset_t) -> Answer {
        for (copy, set) in room.chunks_mut(self.words()).zip(self.given) {
            if !set.is_null() && user::read_all(copy, set.cast::<u64>()).is_err() {
                return Answer::AskKernel;
            }
        }
        let wanted = Wanted { n: self.n, sets: room };
        let answer = poll::with_list(wanted.all().count() + 1, |list| wanted.wait(list, ns, mask));
        match answer {
            Err(e) => Answer::Done(Err(e)),
            Ok(Answer::Done(Ok(n))) => {
                // SAFETY: by contract.
                Answer::Done(unsafe { self.tell(room) }.map(|()| n))
            }
            Ok(other) => other,
        }
    }

    unsafe fn tell(&self, room: &[u64]) -> Result<()> {
        room.chunks(self.words()).zip(self.given).filter(|(_, set)| !set.is_null()).try_for_each(|(found, set)| {
            // SAFETY: by contract.
            unsafe { user::write_all(set.cast::<u64>(), found) }
        })
    }
}

/// Number of words of a set for `n` descriptors.
fn words(n: i32) -> usize {
    (n as usize).div_ceil(BITS as usize)
}

/// Whether a set of the program has a bit below `n` for a connection or an epoll set of ours.
fn holds_ours(set: *const fd_set, n: i32) -> bool {
    let mut part = [0u64; PART];
    (0..words(n)).step_by(PART).any(|at| {
        let part = &mut part[..(words(n) - at).min(PART)];
        user::read_all(part, set.cast::<u64>().wrapping_add(at)).is_ok() && {
            let numbers = part.iter().enumerate().flat_map(|(i, word)| bits(*word, (at + i) as i32 * BITS));
            // `count` visits all of them, so that each connection is marked as waited for.
            numbers.filter(|fd| *fd < n && is_ours(*fd)).count() > 0
        }
    })
}

/// The descriptors of the bits set in a word; bit 0 stands for `first`.
fn bits(mut word: u64, first: i32) -> impl Iterator<Item = i32> {
    core::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < u64::BITS).then_some(first + bit as i32)
    })
}

fn is_ours(fd: i32) -> bool {
    match fdtable::get(fd) {
        Kind::Conn(index) => {
            arena::conn(index).raise(flag::WAITED);
            true
        }
        Kind::Set(_) => true,
        _ => false,
    }
}

/// The sets of a call: what it asks for, then what was found.
struct Wanted<'a> {
    n: i32,
    sets: &'a mut [u64],
}

impl Wanted<'_> {
    fn words(&self) -> usize {
        words(self.n)
    }

    /// The events to ask for of `fd`.
    fn of(&self, fd: i32) -> i16 {
        let has = |set: usize| self.sets[set * self.words() + (fd / BITS) as usize] >> (fd % BITS) & 1 != 0;
        (0..3).filter(|set| has(*set)).fold(0, |events, set| events | ASKS[set])
    }

    /// The descriptors in any of the sets.
    fn all(&self) -> impl Iterator<Item = i32> {
        let words = self.words();
        let any = move |word: usize| (0..3).fold(0, |any, set| any | self.sets[set * words + word]);
        (0..words).flat_map(move |word| bits(any(word), word as i32 * BITS)).filter(|fd| *fd < self.n)
    }

    /// Waits. `list`: room for an entry for each descriptor of [`Wanted::all`], and one more.
    fn wait(mut self, list: &mut [pollfd], ns: Option<u64>, mask: *const libc::sigset_t) -> Answer {
        for (p, fd) in list.iter_mut().zip(self.all()) {
            *p = pollfd { fd, events: self.of(fd), revents: 0 };
        }
        debts::settle();
        let deadline = Deadline::after_ns(ns.filter(|n| *n > 0));
        let mut ignored = Ignored::default();
        let n = list.len() - 1;
        loop {
            let left = if ns == Some(0) { ns } else { deadline.rest() };
            if let Err(e) = poll_list(&mut list[..n], left, mask) {
                return Answer::Done(Err(e));
            }
            if let Some(closed) = self.closed(&list[..n]) {
                return closed;
            }
            let over = ns == Some(0) || deadline.has_passed();
            let found = list[..n].iter().any(is_warranted);
            if ns == Some(0)
                && !found
                && let Err(e) = signals::let_signals_in(mask)
            {
                return Answer::Done(Err(e));
            }
            if over || found {
                self.sets.fill(0);
                return Answer::Done(Ok(list[..n].iter().map(|p| self.found(p)).sum()));
            }
            // The events end a poll(2), but set no bit for select(2).
            ignored.begin(list);
            let waited = poll_list(list, ignored.limit(deadline.rest()), mask);
            ignored.end(list);
            if let Err(e) = waited {
                return Answer::Done(Err(e));
            }
        }
    }

    /// EBADF for a descriptor that is not open, unless it is beyond the kernel's table.
    fn closed(&self, list: &[pollfd]) -> Option<Answer> {
        let highest = list.iter().filter(|p| p.revents & POLLNVAL != 0).map(|p| p.fd).max()?;
        let table = if highest < SMALLEST_TABLE { self.n } else { table_of(self.n) };
        Some(if highest < table { Answer::Done(Err(Errno(libc::EBADF))) } else { Answer::Fewer(table) })
    }

    /// Sets the bits for the events of an entry. Returns how many.
    fn found(&mut self, p: &pollfd) -> i32 {
        let (words, word, bit) = (self.words(), (p.fd / BITS) as usize, 1 << (p.fd % BITS));
        warranted(p).map(|set| self.sets[set * words + word] |= bit).count() as i32
    }
}

/// The sets in which the events of an entry set a bit.
fn warranted(p: &pollfd) -> impl Iterator<Item = usize> {
    let (events, revents) = (p.events, p.revents);
    (0..3).filter(move |set| events & ASKS[*set] != 0 && revents & WARRANTS[*set] != 0)
}

fn is_warranted(p: &pollfd) -> bool {
    warranted(p).next().is_some()
}

fn poll_list(list: &mut [pollfd], ns: Option<u64>, mask: *const libc::sigset_t) -> Result<()> {
    let (at, len) = (list.as_mut_ptr(), list.len() as u64);
    let native = || {
        let timeout = Deadline::after_ns(ns).left(None);
        // SAFETY: the list; the mask is alive or null.
        unsafe { crate::next::ppoll(at, len, super::as_ptr(&timeout), mask) }
    };
    if poll::poll_within(list, ns, mask, native) < 0 { Err(Errno(errno::get())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_table_is_asked_for_only_if_it_may_have_grown() {
        let words = [const { AtomicU64::new(0) }; 128];
        let given = [words.as_ptr().cast_mut().cast(), core::ptr::null_mut(), core::ptr::null_mut()];
        let n = 128 * BITS;
        let real = process::descriptor_table().expect("/proc").min(n);
        assert_eq!((cut(n, given), known_table().min(n)), (real, real), "the first time");
        // A size that no table has tells whether the kernel is asked.
        let kept = 2 * BITS * SMALLEST_TABLE - BITS;
        keep_table(kept);
        words[5].store(1, Relaxed);
        assert_eq!(cut(n, given), kept);
        assert_eq!(cut(kept - 1, given), kept - 1);
        words[127].store(1, Relaxed);
        assert_eq!(cut(n, given), real);
        assert_eq!(known_table().min(n), real, "kept for the next call");
        TABLE.store(u64::from(generation::get() + 1) << 32 | kept as u64, Relaxed);
        assert_eq!(known_table(), 0, "that of another process");
    }
}
