//! Functions and variables of the libraries behind this one, mostly of libc.
//!
//! Our own look-up walks over the loaded objects. If it is impossible, dlsym(3) is asked. If that fails too, a stand-in is
//! used.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicPtr, Ordering::*};
use sidestep_sys::elf::{Name, Object};

type Visit = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

unsafe extern "C" {
    /// dl_iterate_phdr(3).
    static ss_iterate: Option<unsafe extern "C" fn(Visit, *mut c_void) -> c_int>;
    static ss_dlsym: Option<unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void>;
}

/// What is called if no object has the symbol.
#[derive(Clone, Copy)]
pub enum StandIn {
    /// Does the same as the function, or as much of it as possible. The stand-in is used for good.
    Complete(*const c_void),
    /// Fails. The next call looks again: a library that is loaded later may have the symbol (librt, before glibc 2.34).
    Failing(*const c_void),
}

pub struct Symbol {
    name: Name,
    stand_in: StandIn,
    /// Null: not known.
    address: AtomicPtr<c_void>,
}

// SAFETY: the pointers are addresses of functions and variables that live as long as the program.
unsafe impl Sync for Symbol {}

impl Symbol {
    pub const fn new(name: &'static CStr, stand_in: StandIn) -> Symbol {
        Symbol { name: Name::new(name), stand_in, address: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// The address. The constructor looks up all symbols; constructors of other libraries may call us before, and then this
    /// call does.
    #[inline]
    pub fn get(&self) -> *mut c_void {
        let known = self.address.load(Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    #[cold]
    #[inline(never)]
    fn look_up(&self) -> *mut c_void {
        resolve(&[Some(self)]);
        let found = self.address.load(Relaxed);
        match self.stand_in {
            StandIn::Failing(stand_in) if found.is_null() => stand_in.cast_mut(),
            _ => found,
        }
    }

    /// Whether some object has the symbol.
    pub fn is_there(&self) -> bool {
        let (StandIn::Complete(stand_in) | StandIn::Failing(stand_in)) = self.stand_in;
        self.get() != stand_in.cast_mut()
    }
}

/// Looks up all unknown ones of these symbols, in one walk over the loaded objects. An entry None is skipped.
pub fn resolve(symbols: &[Option<&Symbol>]) {
    let unknown = || symbols.iter().flatten().filter(|s| s.address.load(Relaxed).is_null());
    let walked = each_object(|object| {
        for symbol in unknown() {
            // SAFETY: the objects have been relocated: they call us.
            if let Some(found) = unsafe { object.find(&symbol.name) } {
                symbol.address.store(found, Relaxed);
            }
        }
        ControlFlow::Continue(())
    });
    if !walked {
        unknown().for_each(|symbol| symbol.address.store(ask_linker(symbol), Relaxed));
    }
    for symbol in unknown() {
        if let StandIn::Complete(stand_in) = symbol.stand_in {
            symbol.address.store(stand_in.cast_mut(), Relaxed);
        }
    }
}

/// Calls `show` for the loaded objects behind this library, in the linker's order. False: this library is not among them.
pub fn each_object(mut show: impl FnMut(&Object) -> ControlFlow<()>) -> bool {
    // SAFETY: a constant that the dynamic linker has filled in.
    let Some(iterate) = (unsafe { ss_iterate }) else { return false };
    let mut walk = Walk { seen_self: false, show: &mut show };
    // SAFETY: `visit` takes what it is given for a Walk, which outlives the call.
    unsafe { iterate(visit, (&raw mut walk).cast()) };
    walk.seen_self
}

struct Walk<'a> {
    seen_self: bool,
    show: &'a mut dyn FnMut(&Object) -> ControlFlow<()>,
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, walk: *mut c_void) -> c_int {
    // SAFETY: by `each_object`, and by dl_iterate_phdr(3).
    let (info, walk) = unsafe { (&*info, &mut *walk.cast::<Walk>()) };
    // SAFETY: the program headers of a loaded object, which stay while the linker shows them.
    let segments = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    // SAFETY: as above.
    let Some(object) = (unsafe { Object::new(info.dlpi_addr as usize, segments) }) else { return 0 };
    if object.contains(visit as *const () as usize) {
        walk.seen_self = true;
        return 0;
    }
    c_int::from(walk.seen_self && (walk.show)(&object).is_break())
}

/// The address according to dlsym(3), or null.
fn ask_linker(symbol: &Symbol) -> *mut c_void {
    /// RTLD_NEXT of dlfcn.h.
    const NEXT: *mut c_void = -1isize as *mut c_void;
    // SAFETY: a constant that the dynamic linker has filled in.
    match unsafe { ss_dlsym } {
        // SAFETY: a NUL-terminated name.
        Some(dlsym) => unsafe { dlsym(NEXT, symbol.name.c_str().as_ptr()) },
        None => core::ptr::null_mut(),
    }
}
