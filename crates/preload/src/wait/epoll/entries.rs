//! The kernel's events of a set. They go into memory of the library, never into the program's, which must not see our tags.

use crate::stand_in::waits;
use crate::wait::sets::Set;
use crate::wait::{as_ptr, is_now};
use crate::{errno, next, rest};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::*;
use libc::{epoll_event, sigset_t, timespec};
use sidestep_sys::{Result, mem};

/// Most events in a buffer on the stack of the waiting thread.
pub const FEW: usize = 256;
/// Most events in the buffer of the set, which one wait at a time can use. Concurrent waits use the stack.
const MANY: usize = 16 * 1024;

/// Calls `work` with room for up to `most` events, which the kernel is to be asked for with [`ask`].
pub fn with_room<T>(s: &Set, most: usize, work: impl FnOnce(&mut [MaybeUninit<epoll_event>]) -> T) -> T {
    let mut few = [const { MaybeUninit::uninit() }; FEW];
    if most <= FEW {
        return work(&mut few[..most]);
    }
    let Some(many) = borrow(s) else { return work(&mut few) };
    // SAFETY: the set's mapping of that size, which nobody else uses until the flag is lowered.
    let result = work(unsafe { core::slice::from_raw_parts_mut(many, most.min(MANY)) });
    s.entries_used.store(false, Release);
    result
}

/// If a jump leaves the wait, the set's buffer stays in use for good.
#[cold]
fn borrow(s: &Set) -> Option<*mut MaybeUninit<epoll_event>> {
    if s.entries_used.swap(true, Acquire) {
        return None;
    }
    if s.entries.load(Relaxed).is_null()
        && let Ok(memory) = mem::anonymous(MANY * size_of::<epoll_event>(), false)
    {
        s.entries.store(memory.cast(), Relaxed);
    }
    let memory = s.entries.load(Relaxed);
    if memory.is_null() {
        s.entries_used.store(false, Release);
        return None;
    }
    Some(memory.cast())
}

/// One epoll_wait(2), for at most as many events as `room` holds.
pub fn ask<'a>(
    s: &Set,
    room: &'a mut [MaybeUninit<epoll_event>],
    left: &Option<timespec>,
    mask: *const sigset_t,
) -> Result<&'a [epoll_event]> {
    let epfd = s.fd.load(Relaxed);
    let at = room.as_mut_ptr().cast::<epoll_event>();
    // SAFETY: `room` is writable for its length; the timespec is alive; the mask is the program's or null.
    let call = || unsafe { next::sleep_in_set(epfd, at, room.len() as i32, as_ptr(left), mask) };
    let n = errno::check(if is_now(left) { call() } else { rest::during(call) } as isize)?;
    // SAFETY: the kernel has written so many.
    Ok(unsafe { core::slice::from_raw_parts(at, n.min(room.len())) })
}

/// As [`ask`] without waiting, and no cancellation point: for questions of the library's own.
pub fn look<'a>(s: &Set, room: &'a mut [MaybeUninit<epoll_event>]) -> Result<&'a [epoll_event]> {
    let (epfd, at) = (s.fd.load(Relaxed), room.as_mut_ptr().cast::<epoll_event>());
    // SAFETY: `room` is writable for its length; no mask.
    let n = errno::check(unsafe { waits::epoll_pwait(epfd, at, room.len() as i32, 0, core::ptr::null()) } as isize)?;
    // SAFETY: the kernel has written so many.
    Ok(unsafe { core::slice::from_raw_parts(at, n.min(room.len())) })
}

/// The events that the last [`ask`] has written.
///
/// # Safety
/// It must have returned `n` events.
pub unsafe fn written(room: &[MaybeUninit<epoll_event>], n: usize) -> &[epoll_event] {
    // SAFETY: by contract the kernel has written so many.
    unsafe { core::slice::from_raw_parts(room.as_ptr().cast(), n.min(room.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::sets;

    #[test]
    fn a_wait_in_a_closed_set_keeps_the_buffer_from_the_next_set() {
        let room_of = |s: &Set| with_room(s, MANY, |room| room.len());
        let index = sets::create(7).expect("a record");
        let s = sets::get(index);
        with_room(s, MANY, |room| {
            assert_eq!(room.len(), MANY);
            s.refs.store(0, Release); // another thread closes the set
            assert_eq!(sets::create(8), Some(index), "the first free record");
            assert_eq!(room_of(s), FEW, "a wait in the next set must not get the same memory");
        });
        assert_eq!(room_of(s), MANY, "the first wait has given the buffer back");
        s.refs.store(0, Release);
    }
}
