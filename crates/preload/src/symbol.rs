//! The function that would have been called without us.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::*};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const libc::c_char) -> *mut c_void;
}

/// RTLD_NEXT of dlfcn.h.
const NEXT: *mut c_void = -1isize as *mut c_void;

/// One function of the libraries behind us.
pub struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    pub const fn new(name: &'static CStr) -> Symbol {
        Symbol { name, address: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Its address, looked up at the latest now.
    #[inline]
    pub fn get(&self) -> *mut c_void {
        let known = self.address.load(Relaxed);
        if known.is_null() { self.resolve() } else { known }
    }

    /// Looks it up. In the constructor for all; for calls that come before it, one by one.
    #[cold]
    pub fn resolve(&self) -> *mut c_void {
        // SAFETY: a NUL-terminated name; RTLD_NEXT asks the libraries after ours.
        let found = unsafe { dlsym(NEXT, self.name.as_ptr()) };
        self.address.store(found, Relaxed);
        found
    }
}
