//! Which libc the program has, and the functions of libc that the library uses besides the originals of intercepted calls.

use crate::symbol::{self, StandIn, Symbol};
use core::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering::Relaxed};
use libc::size_t;
use sidestep_sys::elf::{Name, Object};
use sidestep_sys::process;

/// The libcs whose data types are known.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Unknown,
    Glibc,
    Musl,
}

static KIND: AtomicU8 = AtomicU8::new(Kind::Unknown as u8);

pub fn is_known() -> bool {
    KIND.load(Relaxed) != Kind::Unknown as u8
}

/// Whether the program's libc is this one.
pub fn is(kind: Kind) -> bool {
    KIND.load(Relaxed) == kind as u8
}

/// A symbol that not every libc has.
const fn optional(name: &'static CStr) -> Symbol {
    Symbol::new(name, StandIn::Failing(core::ptr::null()))
}

static VASPRINTF: Symbol = optional(c"vasprintf");
static CHK_FAIL: Symbol = optional(c"__chk_fail");
static GETAUXVAL: Symbol = optional(c"getauxval");
static REGISTER_ATFORK: Symbol = optional(c"__register_atfork");
static PTHREAD_ATFORK: Symbol = optional(c"pthread_atfork");
static CXA_ATEXIT: Symbol = optional(c"__cxa_atexit");
static CXA_AT_QUICK_EXIT: Symbol = optional(c"__cxa_at_quick_exit");
static AT_QUICK_EXIT: Symbol = optional(c"at_quick_exit");
/// A program without threads may have neither of these two (glibc before 2.34).
static TEST_CANCEL: Symbol = Symbol::new(c"pthread_testcancel", StandIn::Complete(no_test as *const c_void));
static SET_CANCEL_STATE: Symbol = Symbol::new(c"pthread_setcancelstate", StandIn::Complete(no_state as *const c_void));

unsafe extern "C" fn no_test() {}

unsafe extern "C" fn no_state(_: c_int, _: *mut c_int) -> c_int {
    0
}

/// The function that a symbol stands for.
///
/// # Safety
/// `F` must be the type of a pointer to it.
unsafe fn function<F: Copy>(symbol: &Symbol) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let address = symbol.get();
    // SAFETY: by contract, and of the same size.
    (!address.is_null()).then(|| unsafe { core::mem::transmute_copy(&address) })
}

unsafe extern "C" {
    /// Pointers behind memcpy() and its kin, which compilers call on their own (csrc/freestanding.c).
    static ss_memcpy: AtomicPtr<c_void>;
    static ss_memmove: AtomicPtr<c_void>;
    static ss_memset: AtomicPtr<c_void>;
    /// free(3) and environ(7), bound by the dynamic linker as for any library.
    static ss_free: Option<unsafe extern "C" fn(*mut c_void)>;
    static ss_environ: *const *const *const c_char;
}

/// In the constructor: recognizes the libc, and looks up every symbol used in this file.
pub fn resolve() {
    recognize();
    symbol::resolve(&[
        Some(&VASPRINTF),
        Some(&CHK_FAIL),
        Some(&GETAUXVAL),
        Some(&REGISTER_ATFORK),
        Some(&PTHREAD_ATFORK),
        Some(&CXA_ATEXIT),
        Some(&CXA_AT_QUICK_EXIT),
        Some(&AT_QUICK_EXIT),
        Some(&TEST_CANCEL),
        Some(&SET_CANCEL_STATE),
    ]);
}

/// Recognizes the libc by a symbol that only one libc has, in the object that starts programs.
fn recognize() {
    const START: Name = Name::new(c"__libc_start_main");
    /// The third stage of musl's dynamic linker, which musl itself looks up by this name.
    const MUSL: Name = Name::new(c"__dls3");
    const GLIBC: Name = Name::new(c"gnu_get_libc_version");
    symbol::each_object(|object| {
        // SAFETY: the objects have been relocated: they call us.
        let has = |name| unsafe { object.find(name) }.is_some();
        let kind = match (has(&START), has(&MUSL), has(&GLIBC)) {
            (true, true, false) => Kind::Musl,
            (true, false, true) => Kind::Glibc,
            _ => return ControlFlow::Continue(()),
        };
        KIND.store(kind as u8, Relaxed);
        borrow_memory_functions(object);
        borrow_clock(object);
        ControlFlow::Break(())
    });
}

/// Takes the functions from libc itself. Those of a sanitizer, which may come first, would check the bytes of rings by rules of
/// the sanitizer's own.
fn borrow_memory_functions(libc: &Object) {
    const MEMCPY: Name = Name::new(c"memcpy");
    const MEMMOVE: Name = Name::new(c"memmove");
    const MEMSET: Name = Name::new(c"memset");
    // SAFETY: pointers to functions, which are only ever read and written as a whole.
    for (name, used) in unsafe { [(&MEMCPY, &ss_memcpy), (&MEMMOVE, &ss_memmove), (&MEMSET, &ss_memset)] } {
        // SAFETY: as in `recognize`.
        if let Some(found) = unsafe { libc.find(name) } {
            used.store(found, Relaxed);
        }
    }
}

/// Takes libc's clock, which reads the vDSO: waits with a timeout read the time often.
fn borrow_clock(libc: &Object) {
    const CLOCK: Name = Name::new(c"clock_gettime");
    // SAFETY: as in `recognize`.
    if let Some(found) = unsafe { libc.find(&CLOCK) } {
        // SAFETY: the function of the libc that has been recognized, which calls nobody.
        unsafe { sidestep_sys::clock::ask_libc(found) };
    }
}

/// The environment. glibc passes its address to constructors (`given`), other libcs do not. May be null.
pub fn first_environment(given: *const *const c_char) -> *const *const c_char {
    if is(Kind::Glibc) { given } else { environment() }
}

/// The environment as it is now; null if libc does not export it.
pub fn environment() -> *const *const c_char {
    // SAFETY: the address of libc's variable of this type, or null.
    unsafe { ss_environ.as_ref() }.map_or(core::ptr::null(), |environ| *environ)
}

/// Whether the program has more rights than the user who started it. The library then obeys nothing in the environment.
pub fn is_privileged() -> bool {
    // SAFETY: getauxval(3).
    match unsafe { function::<extern "C" fn(c_ulong) -> c_ulong>(&GETAUXVAL) } {
        Some(ask) => ask(libc::AT_SECURE) != 0,
        None => process::changes_identity(),
    }
}

/// Makes libc call `before` before every fork that it knows of, and `child` in the child. False: libc offers neither function.
pub fn register_fork(before: extern "C" fn(), child: extern "C" fn()) -> bool {
    type Handler = Option<extern "C" fn()>;
    type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;
    // Every version of glibc has the first function. The second takes three arguments and ignores the fourth.
    // SAFETY: the types of both.
    let register = unsafe { function::<Register>(&REGISTER_ATFORK).or_else(|| function(&PTHREAD_ATFORK)) };
    // SAFETY: two functions that live as long as the library, which is never unloaded (-z nodelete).
    register.is_some_and(|r| unsafe { r(Some(before), None, Some(child), core::ptr::null_mut()) } == 0)
}

/// Makes libc call `end` in quick_exit(3), and glibc in exit(3), too, after the destructors of all libraries: called by a constructor, this
/// registers it before the handler that runs those, and the order is reversed. Its argument says nothing. False: exit(3) will not call it;
/// in other libcs destructors come last.
pub fn register_end(end: extern "C" fn(*mut c_void)) -> bool {
    type Handler = extern "C" fn(*mut c_void);
    type Register = unsafe extern "C" fn(Handler, *mut c_void) -> c_int;
    type RegisterWithArgument = unsafe extern "C" fn(Handler, *mut c_void, *mut c_void) -> c_int;
    // The second function is musl's. It takes one argument, as its handlers take none, and ignores the other.
    // SAFETY: the types of both.
    let quick = unsafe { function::<Register>(&CXA_AT_QUICK_EXIT).or_else(|| function(&AT_QUICK_EXIT)) };
    if let Some(register) = quick {
        // SAFETY: a function that lives as long as the library, which is never unloaded (-z nodelete). It belongs to no library.
        unsafe { register(end, core::ptr::null_mut()) };
    }
    // SAFETY: the function's type.
    let usual = unsafe { function::<RegisterWithArgument>(&CXA_ATEXIT) }.filter(|_| is(Kind::Glibc));
    // SAFETY: as above.
    usual.is_some_and(|register| unsafe { register(end, core::ptr::null_mut(), core::ptr::null_mut()) } == 0)
}

/// vasprintf(3): the text, which the caller frees with [`free`], and its length.
///
/// # Safety
/// The format and the arguments must fit together.
pub unsafe fn formatted(format: *const c_char, args: *mut c_void) -> Option<(*mut c_char, usize)> {
    type Vasprintf = unsafe extern "C" fn(*mut *mut c_char, *const c_char, *mut c_void) -> c_int;
    let mut text = core::ptr::null_mut();
    // SAFETY: the function's type; the rest by contract.
    let n = unsafe { function::<Vasprintf>(&VASPRINTF)?(&raw mut text, format, args) };
    (n >= 0).then_some((text, n as usize))
}

/// free(3); a program may have replaced it together with malloc(3).
///
/// # Safety
/// The memory must have been allocated by libc.
pub unsafe fn free(memory: *mut c_char) {
    // SAFETY: a constant that the dynamic linker has filled in.
    if let Some(free) = unsafe { ss_free } {
        // SAFETY: by contract.
        unsafe { free(memory.cast()) }
    }
}

/// Reports an overflow as _FORTIFY_SOURCE does: libc prints a message and aborts.
#[cold]
pub fn overflow() -> ! {
    // SAFETY: the function's type.
    match unsafe { function::<extern "C" fn() -> !>(&CHK_FAIL) } {
        Some(fail) => fail(),
        None => process::abort(),
    }
}

/// pthread_testcancel(3): ends the calling thread if it has been cancelled.
pub fn end_if_cancelled() {
    // SAFETY: the function's type.
    if let Some(test) = unsafe { function::<unsafe extern "C" fn()>(&TEST_CANCEL) } {
        // SAFETY: no frame of the library between the program's call and this one has anything to clean up.
        unsafe { test() }
    }
}

/// Runs a call that is no cancellation point meanwhile.
pub fn uncancelled<T>(call: impl FnOnce() -> T) -> T {
    type SetState = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
    /// PTHREAD_CANCEL_DISABLE of glibc and of musl.
    const DISABLE: c_int = 1;
    // SAFETY: the function's type.
    let set = unsafe { function::<SetState>(&SET_CANCEL_STATE) };
    let Some(set) = set else { return call() };
    let mut before = 0;
    // SAFETY: the place for the state is alive.
    unsafe { set(DISABLE, &raw mut before) };
    let result = call();
    // SAFETY: the state from before; nobody asks for the present one.
    unsafe { set(before, core::ptr::null_mut()) };
    result
}

/// A length field of a message header. In musl's structs it has 32 bits, followed by 32 bits of padding with any value.
pub fn length(field: size_t) -> size_t {
    if is(Kind::Musl) { field & 0xffff_ffff } else { field }
}
