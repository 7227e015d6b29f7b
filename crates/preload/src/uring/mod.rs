//! io_uring(7), as far as programs use it through libc's syscall(). The library must know what the kernel will do to
//! connections by itself, before the kernel begins.
//!
//! When a ring is set up, the library records it, and maps its submission queue a second time. When the program enters the
//! kernel, the library first looks at the entries that are submitted ([`entry`]). A connection that an entry touches goes to
//! the kernel, alone and for good. Changes of a managed epoll set are made by the library itself. If the kernel takes entries
//! of a ring without a call (IORING_SETUP_SQPOLL), or the ring uses anything unknown, the whole process upgrades no connection
//! any more.

mod entry;
pub mod table;

pub use entry::Fixed;

use crate::fdtable::{self, Kind};
use crate::settings::{self, IoUring};
use crate::{errno, exec, thread, user};
use core::ffi::{c_int, c_long, c_uint};
use entry::{Entry, Neighbours};
use sidestep_abi::Reason;
use sidestep_sys::Errno;

/// struct io_uring_params, in words (linux/io_uring.h).
pub type Params = [u32; 30];
/// Indices of words in [`Params`].
const FLAGS: usize = 2;

/// Flags of a ring (IORING_SETUP_*) that the library understands.
const FOLLOWED: u32 = IOPOLL
    | SQ_AFF
    | CQSIZE
    | CLAMP
    | ATTACH_WQ
    | R_DISABLED
    | SUBMIT_ALL
    | COOP_TASKRUN
    | TASKRUN_FLAG
    | SQE128
    | CQE32
    | SINGLE_ISSUER
    | DEFER_TASKRUN
    | NO_SQARRAY
    | HYBRID_IOPOLL;
const IOPOLL: u32 = 1;
const SQ_AFF: u32 = 1 << 2;
const CQSIZE: u32 = 1 << 3;
const CLAMP: u32 = 1 << 4;
const ATTACH_WQ: u32 = 1 << 5;
const R_DISABLED: u32 = 1 << 6;
const SUBMIT_ALL: u32 = 1 << 7;
const COOP_TASKRUN: u32 = 1 << 8;
const TASKRUN_FLAG: u32 = 1 << 9;
const SQE128: u32 = 1 << 10;
const CQE32: u32 = 1 << 11;
const SINGLE_ISSUER: u32 = 1 << 12;
const DEFER_TASKRUN: u32 = 1 << 13;
const NO_SQARRAY: u32 = 1 << 16;
const HYBRID_IOPOLL: u32 = 1 << 17;

/// IORING_ENTER_REGISTERED_RING: the descriptor is an index into a table that the library does not know.
const REGISTERED_RING: c_uint = 1 << 4;

/// Ends upgrades: from now on the kernel may read and write any socket by itself.
#[cold]
fn give_up() {
    exec::drain_all_to_kernel(Reason::KernelFeature);
}

/// io_uring_setup(2).
pub fn setup(params: *mut Params, native: impl FnOnce() -> c_long) -> c_long {
    if !settings::active() || thread::in_vfork() {
        return native();
    }
    if settings::get().io_uring == IoUring::Refuse {
        return errno::give(Err(Errno(libc::EPERM))) as c_long; // as where a container or the administrator forbids io_uring
    }
    let followed = user::read(params.cast_const()).is_ok_and(|p| p[FLAGS] & !FOLLOWED == 0);
    let fd = native();
    let known = followed && fd >= 0 && {
        let params = user::read(params.cast_const());
        params.is_ok_and(|p| errno::keep(|| table::follow(fd as c_int, &p)))
    };
    if fd >= 0 && !known {
        give_up();
    }
    fd
}

/// Before io_uring_enter(2) submits this many entries.
pub fn entering(fd: c_int, submitted: c_uint, flags: c_uint) {
    if submitted == 0 || !settings::active() || thread::in_vfork() {
        return;
    }
    match fdtable::get(fd) {
        Kind::Ring(index) if flags & REGISTERED_RING == 0 => {
            if !errno::keep(|| foresee(index, submitted)) {
                give_up();
            }
        }
        _ => give_up(), // the ring was set up out of our sight
    }
}

/// Prepares connections and sets for the next entries. False: the entries cannot be looked at.
fn foresee(index: u32, submitted: c_uint) -> bool {
    let mut neighbours = Neighbours::default();
    table::get(index).for_each_new(submitted, |place| {
        // SAFETY: an entry of a mapped ring, which the program has handed over and the kernel has not taken yet.
        unsafe { Entry::at(place) }.foresee(&mut neighbours);
    })
}

/// Operations of io_uring_register(2) that hand descriptors to the kernel, also those of sockets that are connected later.
const REGISTER_FILES: c_uint = 2;
const REGISTER_FILES_UPDATE: c_uint = 6;
const REGISTER_FILES2: c_uint = 13;
const REGISTER_FILES_UPDATE2: c_uint = 14;
/// IORING_REGISTER_RESIZE_RINGS: the ring gets new queues, which the library has not mapped.
const RESIZE_RINGS: c_uint = 33;
/// IORING_REGISTER_USE_REGISTERED_RING, a flag of every operation: the ring is named by an index.
const BY_REGISTERED_RING: c_uint = 1 << 31;

/// struct io_uring_rsrc_register, and struct io_uring_rsrc_update2 but for its second word.
type Resources = [u64; 4];

/// Before io_uring_register(2).
pub fn registering(operation: c_uint, argument: usize, n: c_uint) {
    if !settings::active() {
        return;
    }
    match operation & !BY_REGISTERED_RING {
        REGISTER_FILES => Fixed { at: argument as *const c_int, n }.leave_to_kernel(),
        // Offset, reserved word, address of the descriptors.
        REGISTER_FILES_UPDATE => {
            if let Ok([_, numbers]) = user::read(argument as *const [u64; 2]) {
                Fixed { at: numbers as *const c_int, n }.leave_to_kernel();
            }
        }
        // Count, flags, reserved word, address of the descriptors, address of their tags.
        REGISTER_FILES2 => {
            if let Ok([count, _, numbers, _]) = user::read(argument as *const Resources) {
                Fixed { at: numbers as *const c_int, n: count as u32 }.leave_to_kernel();
            }
        }
        // Offset, reserved word, address of the descriptors, address of their tags, count.
        REGISTER_FILES_UPDATE2 => {
            if let Ok([_, numbers, _, count]) = user::read(argument as *const Resources) {
                Fixed { at: numbers as *const c_int, n: count as u32 }.leave_to_kernel();
            }
        }
        RESIZE_RINGS => give_up(),
        _ => {}
    }
}
