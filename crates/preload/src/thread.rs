//! What each thread has of its own.

use crate::symbol::Symbol;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use sidestep_sys::process;

/// Mirrors `struct ss_thread` of the C shim.
#[repr(C)]
struct Thread {
    tid: u32,
    in_vfork: u32,
    reserved: u32,
}

unsafe extern "C" {
    fn ss_thread() -> *mut Thread;
}

/// This thread's number; asked of the kernel once.
#[inline]
pub fn tid() -> u32 {
    // SAFETY: the thread's own storage, touched by no one else.
    let thread = unsafe { &mut *ss_thread() };
    if thread.tid == 0 {
        thread.tid = process::tid();
    }
    thread.tid
}

/// After fork() the one thread of the child has another number.
pub fn forget() {
    // SAFETY: as above.
    unsafe { (*ss_thread()).tid = 0 };
}

/// Whether we run in a vfork child: our memory is the parent's and must not be touched.
#[inline]
pub fn in_vfork() -> bool {
    // SAFETY: as above.
    unsafe { (*ss_thread()).in_vfork != 0 }
}

pub fn set_vfork(on: bool) {
    // SAFETY: as above.
    unsafe { (*ss_thread()).in_vfork = u32::from(on) };
}

/// The family place of the child that this thread is forking; taken by whoever asks, parent and child alike.
pub fn take_reserved() -> Option<u32> {
    // SAFETY: as above.
    core::mem::take(unsafe { &mut (*ss_thread()).reserved }).checked_sub(1)
}

pub fn set_reserved(place: Option<u32>) {
    // SAFETY: as above.
    unsafe { (*ss_thread()).reserved = place.map_or(0, |p| p + 1) };
}

/// glibc's `__libc_single_threaded`, since 2.32; null before the constructor and in older ones.
static SINGLE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// In the constructor.
pub fn resolve() {
    SINGLE.store(Symbol::new(c"__libc_single_threaded").resolve().cast(), Relaxed);
}

/// Whether there is certainly no other thread in this process.
#[inline]
pub fn is_alone() -> bool {
    let word = SINGLE.load(Relaxed);
    // SAFETY: one byte of libc's data, which it writes only while there is one thread (sys/single_threaded.h).
    !word.is_null() && unsafe { word.read_volatile() } != 0
}
