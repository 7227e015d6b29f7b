//! How many descriptors this process may have.

use crate::call;

/// A process that may have fewer descriptors than this keeps all of them for itself.
pub const FEW_DESCRIPTORS: usize = 256;

/// Descriptors that this process may have now (RLIMIT_NOFILE).
pub fn descriptor_limit() -> u64 {
    let mut limit = [u64::MAX; 2];
    let args = [0, libc::RLIMIT_NOFILE as usize, 0, &raw mut limit as usize, 0, 0];
    // SAFETY: the kernel writes one struct rlimit64, two words.
    let _ = unsafe { call(libc::SYS_prlimit64, args) };
    limit[0]
}
