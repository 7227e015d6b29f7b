//! Vectors of buffers.

use libc::iovec;

/// One buffer as a vector.
pub fn one(base: *const libc::c_void, len: usize) -> [iovec; 1] {
    [iovec { iov_base: base.cast_mut(), iov_len: len }]
}

/// All bytes of a vector.
pub fn total(iov: &[iovec]) -> usize {
    iov.iter().fold(0usize, |n, v| n.saturating_add(v.iov_len))
}

/// Calls `each` with every piece of the bytes `from..from + len`: pointer, length, distance from `from`.
#[inline]
pub fn pieces(iov: &[iovec], mut from: usize, len: usize, mut each: impl FnMut(*mut u8, usize, usize)) {
    let mut done = 0;
    for v in iov {
        if done == len {
            return;
        }
        if from >= v.iov_len {
            from -= v.iov_len;
            continue;
        }
        let n = (v.iov_len - from).min(len - done);
        // SAFETY: from < iov_len, so the pointer stays inside the program's buffer.
        each(unsafe { v.iov_base.cast::<u8>().add(from) }, n, done);
        done += n;
        from = 0;
    }
}

/// Buffers that one step hands to the kernel; longer vectors take several steps.
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
        // SAFETY: skip < iov_len, so the pointer stays inside the program's buffer.
        out[n] = iovec { iov_base: unsafe { v.iov_base.cast::<u8>().add(skip) }.cast(), iov_len: len };
        n += 1;
        left -= len;
        skip = 0;
    }
    n
}

/// An empty vector to slice into.
pub const fn empty() -> [iovec; STEP] {
    [iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; STEP]
}
