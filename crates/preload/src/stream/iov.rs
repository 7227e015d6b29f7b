//! Vectors of buffers, checked as the kernel checks them.

use crate::user;
use core::ffi::c_void;
use libc::iovec;
use sidestep_ring::Data;
use sidestep_sys::{Errno, Result, mem, tcp};

/// Most bytes of one call (MAX_RW_COUNT): INT_MAX, rounded down to pages.
pub const MOST: usize = 0x7fff_f000;
/// End of the addresses that a program can map.
const LOWER_HALF: usize = (1 << 47) - 4096;
/// Vectors with up to this many buffers are kept on the stack; longer ones in a mapping, for the duration of the call.
const ON_STACK: usize = 32;

const NONE: iovec = iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };

/// One buffer as a vector.
pub fn one(base: *const c_void, len: usize) -> [iovec; 1] {
    [iovec { iov_base: base.cast_mut(), iov_len: len }]
}

/// The buffer of read(2) or write(2) as a vector.
#[inline]
pub fn of_file(base: *const c_void, len: usize) -> Result<[iovec; 1]> {
    check_range(base, len)?;
    Ok(one(base, len.min(MOST)))
}

/// The buffer of recv(2) or send(2) as a vector.
#[inline]
pub fn of_socket(base: *const c_void, len: usize) -> Result<[iovec; 1]> {
    of_file(base, len.min(MOST))
}

/// EFAULT: the buffer reaches beyond the addresses that a program can map, mapped or not.
#[inline]
fn check_range(base: *const c_void, len: usize) -> Result<()> {
    let end = (base as usize).checked_add(len);
    if end.is_some_and(|end| end <= LOWER_HALF || tcp::is_user_address(end)) {
        Ok(())
    } else {
        Err(Errno(libc::EFAULT))
    }
}

/// Runs `work` on a copy of the program's vector of `n` buffers at `from`, cut at [`MOST`] bytes in all.
pub fn with_vector<T>(from: *const iovec, n: usize, work: impl FnOnce(&[iovec]) -> T) -> Result<T> {
    if n <= ON_STACK {
        let mut room = [NONE; ON_STACK];
        return import(&mut room[..n], from).map(|()| work(&room[..n]));
    }
    let bytes = n * size_of::<iovec>();
    let memory = mem::anonymous(bytes, false).map_err(|_| Errno(libc::ENOMEM))?;
    // SAFETY: a fresh zeroed mapping of that size, unmapped below, after its last use.
    let room = unsafe { core::slice::from_raw_parts_mut(memory.cast::<iovec>(), n) };
    let result = import(room, from).map(|()| work(room));
    // SAFETY: after its last use.
    unsafe { mem::unmap(memory, bytes) };
    result
}

fn import(room: &mut [iovec], from: *const iovec) -> Result<()> {
    user::read_all(room, from)?;
    if room.iter().any(|v| v.iov_len > isize::MAX as usize) {
        return Err(Errno(libc::EINVAL));
    }
    let mut left = MOST;
    for v in room {
        check_range(v.iov_base, v.iov_len)?;
        v.iov_len = v.iov_len.min(left);
        left -= v.iov_len;
    }
    Ok(())
}

/// Number of bytes in a vector.
#[inline]
pub fn total(iov: &[iovec]) -> usize {
    match iov {
        [one] => one.iov_len,
        many => total_of_many(many),
    }
}

#[inline(never)]
fn total_of_many(iov: &[iovec]) -> usize {
    iov.iter().map(|v| v.iov_len).sum() // `with_vector` has cut the vector, so this cannot overflow
}

/// Buffers that may be written to. Their memory may be bad.
#[derive(Clone, Copy)]
pub struct Destination<'a>(&'a [iovec]);

impl<'a> Destination<'a> {
    /// # Safety
    /// The program must have named the buffers as the place for what its call receives, or they must be ours and writable.
    #[inline]
    pub const unsafe fn new(iov: &'a [iovec]) -> Destination<'a> {
        Destination(iov)
    }

    /// Number of bytes that have room.
    #[inline]
    pub fn total(self) -> usize {
        total(self.0)
    }

    /// As [`window`].
    pub fn window<'b>(self, from: usize, max: usize, out: &'b mut [iovec; STEP]) -> Destination<'b>
    where
        'a: 'b,
    {
        Destination(window(self.0, from, max, out))
    }

    /// One recvmsg(2), without waiting.
    pub fn receive(self, fd: i32, flags: i32) -> Result<usize> {
        // SAFETY: the buffers may be written to; the kernel finds out which are bad.
        unsafe { tcp::receive(fd, self.0, flags) }
    }

    /// Copies the `n` bytes at distance `at` from the ring's base into the buffers, from byte `skip` on. EFAULT: a buffer is
    /// bad.
    #[inline]
    pub fn fill(self, data: Data, at: u64, skip: usize, n: usize) -> Result<()> {
        pieces(self.0, skip, n, |to, len, done| {
            // SAFETY: a piece of the ring, and of a buffer that may be written to.
            data.get(at.wrapping_add(done as u64), to, len, |to, from, len| unsafe { user::copy(to, from, len) })
        })
    }
}

/// Calls `each` with every piece of the bytes `from..from + len`: pointer, length, distance from `from`. EFAULT: `each` failed,
/// because the memory of the piece is bad.
#[inline]
pub fn pieces(
    iov: &[iovec],
    mut from: usize,
    len: usize,
    mut each: impl FnMut(*mut u8, usize, usize) -> bool,
) -> Result<()> {
    let mut done = 0;
    for v in iov {
        if done == len {
            break;
        }
        if from >= v.iov_len {
            from -= v.iov_len;
            continue;
        }
        let n = (v.iov_len - from).min(len - done);
        if !each(v.iov_base.cast::<u8>().wrapping_add(from), n, done) {
            return Err(Errno(libc::EFAULT));
        }
        done += n;
        from = 0;
    }
    Ok(())
}

/// The kernel takes bytes in fragments of this size. If a fragment has an unreadable byte, the kernel takes none of the
/// fragment.
pub const GRAIN: usize = 32 * 1024;

/// Most buffers that one step hands to the kernel; longer vectors take several steps.
pub const STEP: usize = 16;

/// The bytes `from..from + max` as a vector of its own, cut at [`STEP`] buffers.
pub fn slice(iov: &[iovec], from: usize, max: usize, out: &mut [iovec; STEP]) -> usize {
    let mut n = 0;
    let mut left = max;
    let mut skip = from;
    for v in iov {
        if skip >= v.iov_len {
            skip -= v.iov_len;
            continue;
        }
        if n == STEP || left == 0 {
            break;
        }
        let len = (v.iov_len - skip).min(left);
        out[n] = iovec { iov_base: v.iov_base.cast::<u8>().wrapping_add(skip).cast(), iov_len: len };
        n += 1;
        left -= len;
        skip = 0;
    }
    n
}

/// As [`slice`], for a call that must see everything at once: a vector that is wanted whole is not cut.
pub fn window<'a>(iov: &'a [iovec], from: usize, max: usize, out: &'a mut [iovec; STEP]) -> &'a [iovec] {
    if from == 0 && total(iov) <= max {
        return iov;
    }
    let n = slice(iov, from, max, out);
    &out[..n]
}

/// An empty vector to slice into.
pub const fn empty() -> [iovec; STEP] {
    [NONE; STEP]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_on_everything_is_not_cut() {
        let many: [iovec; 40] = core::array::from_fn(|_| one(core::ptr::null(), 10)[0]);
        let has = |from: usize, max: usize, lengths: &[usize]| {
            let mut out = empty();
            let window = window(&many, from, max, &mut out);
            assert!(window.iter().map(|v| v.iov_len).eq(lengths.iter().copied()), "{from}, {max}");
        };
        has(0, 400, &[10; 40]);
        has(0, usize::MAX, &[10; 40]);
        has(0, 25, &[10, 10, 5]);
        has(10, 400, &[10; STEP]);
        has(5, 12, &[5, 7]);
        has(400, 400, &[]);
    }

    #[test]
    fn what_comes_from_a_ring_fills_the_buffers_from_where_the_last_step_ended() {
        let mut ring = *b"23456701";
        let (mut first, mut second) = ([b'.'; 3], [b'.'; 5]);
        let buffers = [one(first.as_mut_ptr().cast(), 3)[0], one(second.as_mut_ptr().cast(), 5)[0]];
        // SAFETY: both outlive the values made of them.
        let (data, to) = unsafe { (Data::new(ring.as_mut_ptr(), ring.len()), Destination::new(&buffers)) };
        assert_eq!(to.total(), 8);
        assert_eq!(to.fill(data, 6, 2, 4), Ok(()));
        assert_eq!((&first, &second), (b"..0", b"123.."));
    }

    #[test]
    fn bad_memory_is_efault_and_what_fits_before_it_is_there() {
        let mut ring = *b"01234567";
        let mut good = [b'.'; 4];
        let buffers = [one(good.as_mut_ptr().cast(), 4)[0], one(core::ptr::without_provenance(8), 4)[0]];
        // SAFETY: what is good outlives the values made of it; nothing is mapped at 8.
        let (data, to) = unsafe { (Data::new(ring.as_mut_ptr(), ring.len()), Destination::new(&buffers)) };
        assert_eq!(to.fill(data, 0, 0, 4), Ok(()));
        assert_eq!(to.fill(data, 0, 0, 8), Err(Errno(libc::EFAULT)));
        assert_eq!(&good, b"0123");
    }
}
