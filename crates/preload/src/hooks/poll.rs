//! poll, select and epoll in all their forms. Lists and sets without a connection or set of ours go to libc unchanged. Others
//! are copied, and the answers are written back.

use super::lists::{NOBODY, holds_ours};
use super::rw::check_room;
use super::time::{Left, from_ms, from_spec, from_val};
use crate::fdtable::{self, Kind};
use crate::wait::select::Sets;
use crate::wait::{epoll, poll as polling};
use crate::{arena, drain, errno, member, next, settings, stream::iov, thread, user};
use core::cmp::Ordering;
use core::ffi::{c_int, c_long, c_ulong, c_void};
use core::mem::offset_of;
use libc::{epoll_event, fd_set, pollfd, sigset_t, size_t, timespec, timeval};
use sidestep_abi::Reason;
use sidestep_sys::{Result, limit};

/// A signal mask of the program, as the kernel reads it.
struct Mask(Option<u64>);

impl Mask {
    fn read(mask: *const sigset_t) -> Result<Mask> {
        if mask.is_null() { Ok(Mask(None)) } else { user::read(mask.cast::<u64>()).map(|word| Mask(Some(word))) }
    }

    /// Pointer for calls that pass the mask to the kernel, which reads eight bytes.
    fn pointer(&self) -> *const sigset_t {
        self.0.as_ref().map_or(core::ptr::null(), |word| core::ptr::from_ref(word).cast())
    }
}

/// Most lists are no longer than this.
const FEW: usize = 8;

/// One call on a list for which `holds_ours` is true. EFAULT, EINVAL: the call's result.
unsafe fn poll_ours(
    fds: *mut pollfd,
    n: usize,
    ns: Option<u64>,
    mask: &Mask,
    native: impl FnOnce() -> c_int,
) -> Result<c_int> {
    if n >= limit::FEW_DESCRIPTORS {
        match limit::descriptor_limit().cmp(&(n as u64)) {
            Ordering::Less => return Ok(native()), // the kernel refuses the call
            // The list is as long as the kernel permits, so there is no room for a doorbell.
            Ordering::Equal => return Ok(leave_to_kernel(fds, n, native)),
            Ordering::Greater => {}
        }
    }
    if n <= FEW {
        // SAFETY: by contract.
        return unsafe { poll_copy(fds, &mut [NOBODY; FEW][..n], ns, mask, native) };
    }
    // SAFETY: as above.
    polling::with_list(n, |list| unsafe { poll_copy(fds, list, ns, mask, native) })?
}

/// `list`: room for a copy of the program's list.
unsafe fn poll_copy(
    fds: *mut pollfd,
    list: &mut [pollfd],
    ns: Option<u64>,
    mask: &Mask,
    native: impl FnOnce() -> c_int,
) -> Result<c_int> {
    user::read_all(list, fds)?;
    let mut by_kernel = false;
    let ready = polling::poll(list, ns, mask.pointer(), || {
        by_kernel = true;
        native()
    });
    let interrupted = ready < 0 && errno::get() == libc::EINTR;
    if interrupted {
        list.iter_mut().for_each(|p| p.revents = 0);
    }
    if !by_kernel && (ready >= 0 || interrupted) {
        // SAFETY: by contract.
        unsafe { tell(fds, list) }?;
    }
    Ok(ready)
}

/// Writes `revents` of each entry, and nothing else, as the kernel does.
unsafe fn tell(fds: *mut pollfd, list: &[pollfd]) -> Result<()> {
    list.iter().enumerate().try_for_each(|(i, p)| {
        let place = fds.wrapping_add(i).wrapping_byte_add(offset_of!(pollfd, revents)).cast::<u16>();
        // SAFETY: by contract.
        unsafe { user::write(place, p.revents as u16) }
    })
}

#[cold]
fn leave_to_kernel(fds: *const pollfd, n: usize, native: impl FnOnce() -> c_int) -> c_int {
    for i in 0..n {
        if let Ok(p) = user::read(fds.wrapping_add(i))
            && let Kind::Conn(index) = fdtable::get(p.fd)
        {
            errno::keep(|| drain::to_kernel(arena::conn(index), p.fd, Reason::FdLimit));
        }
    }
    native()
}

fn flat(result: Result<c_int>) -> c_int {
    result.unwrap_or_else(|e| errno::give(Err(e)) as c_int)
}

pub unsafe fn poll(fds: *mut pollfd, n: c_ulong, timeout: c_int) -> c_int {
    // SAFETY: the program's own call.
    let native = || unsafe { next::poll(fds, n, timeout) };
    if !holds_ours(fds, n as usize) {
        return native();
    }
    // SAFETY: the program's own list.
    flat(unsafe { poll_ours(fds, n as usize, from_ms(timeout), &Mask(None), native) })
}

pub unsafe fn poll_chk(fds: *mut pollfd, n: c_ulong, timeout: c_int, room: size_t) -> c_int {
    check_room((n as usize).saturating_mul(size_of::<pollfd>()), room);
    // SAFETY: the same contract.
    unsafe { poll(fds, n, timeout) }
}

pub unsafe fn ppoll(fds: *mut pollfd, n: c_ulong, timeout: *const timespec, mask: *const sigset_t) -> c_int {
    // SAFETY: the program's own call.
    let native = || unsafe { next::ppoll(fds, n, timeout, mask) };
    if !holds_ours(fds, n as usize) {
        return native();
    }
    // The kernel, like libc, refuses arguments that cannot be read or make no sense.
    let (Ok(ns), Ok(mask)) = (from_spec(timeout), Mask::read(mask)) else { return native() };
    // SAFETY: the program's own list.
    flat(unsafe { poll_ours(fds, n as usize, ns, &mask, native) })
}

pub unsafe fn ppoll_chk(
    fds: *mut pollfd,
    n: c_ulong,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    check_room((n as usize).saturating_mul(size_of::<pollfd>()), room);
    // SAFETY: the same contract.
    unsafe { ppoll(fds, n, timeout, mask) }
}

/// The kernel refuses a mask of another size.
const MASK_SIZE: usize = size_of::<u64>();

/// ppoll(2) through syscall(): unlike libc's, it writes back the time that is left.
pub unsafe fn raw_ppoll(
    fds: *mut pollfd,
    n: c_ulong,
    timeout: *mut timespec,
    mask: *const sigset_t,
    size: usize,
    native: impl FnOnce() -> c_long,
) -> c_long {
    if !holds_ours(fds, n as usize) || !mask.is_null() && size != MASK_SIZE {
        return native();
    }
    let (Ok(ns), Ok(mask)) = (from_spec(timeout), Mask::read(mask)) else { return native() };
    let left = Left::of(ns);
    let mut by_kernel = false;
    let native = || {
        by_kernel = true;
        native() as c_int
    };
    // SAFETY: the program's own list.
    let ready = flat(unsafe { poll_ours(fds, n as usize, ns, &mask, native) });
    if !by_kernel {
        // SAFETY: the program's own timeout.
        unsafe { left.tell_spec(timeout) };
    }
    c_long::from(ready)
}

pub unsafe fn select(n: c_int, r: *mut fd_set, w: *mut fd_set, e: *mut fd_set, timeout: *mut timeval) -> c_int {
    // SAFETY: the program's own call.
    let native = || unsafe { next::select(n, r, w, e, timeout) };
    // SAFETY: the program's own sets and timeout.
    unsafe { select_val([r, w, e], n, timeout, true, native) }
}

/// select(2) through syscall().
pub unsafe fn raw_select(
    n: c_int,
    sets: [*mut fd_set; 3],
    timeout: *mut timeval,
    native: impl FnOnce() -> c_long,
) -> c_long {
    // SAFETY: the program's own sets and timeout.
    c_long::from(unsafe { select_val(sets, n, timeout, false, || native() as c_int) })
}

unsafe fn select_val(
    sets: [*mut fd_set; 3],
    n: c_int,
    timeout: *mut timeval,
    by_libc: bool,
    native: impl FnOnce() -> c_int,
) -> c_int {
    let Some(sets) = Sets::of_ours(n, sets) else { return native() };
    let Ok(ns) = from_val(timeout, by_libc) else { return native() };
    let left = Left::of(ns);
    // SAFETY: the program's own sets.
    let Some(result) = (unsafe { sets.select(ns, core::ptr::null()) }) else { return native() };
    // SAFETY: the program's own timeout.
    unsafe { left.tell_val(timeout) };
    flat(result)
}

pub unsafe fn pselect(
    n: c_int,
    r: *mut fd_set,
    w: *mut fd_set,
    e: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's own call.
    let native = || unsafe { next::pselect(n, r, w, e, timeout, mask) };
    let Some(sets) = Sets::of_ours(n, [r, w, e]) else { return native() };
    let (Ok(ns), Ok(mask)) = (from_spec(timeout), Mask::read(mask)) else { return native() };
    // SAFETY: the program's own sets.
    let result = unsafe { sets.select(ns, mask.pointer()) };
    result.map_or_else(native, flat)
}

/// pselect6(2) through syscall(): the mask comes with its size, and the time that is left is written back.
pub unsafe fn raw_pselect(
    n: c_int,
    sets: [*mut fd_set; 3],
    timeout: *mut timespec,
    packed: *const [usize; 2],
    native: impl FnOnce() -> c_long,
) -> c_long {
    let Some(sets) = Sets::of_ours(n, sets) else { return native() };
    let packed = if packed.is_null() { Ok([0, 0]) } else { user::read(packed) };
    let (Ok(ns), Ok([mask, size])) = (from_spec(timeout), packed) else { return native() };
    let Ok(mask) = Mask::read(mask as *const sigset_t) else { return native() };
    if mask.0.is_some() && size != MASK_SIZE {
        return native();
    }
    let left = Left::of(ns);
    // SAFETY: the program's own sets.
    let Some(result) = (unsafe { sets.select(ns, mask.pointer()) }) else { return native() };
    // SAFETY: the program's own timeout.
    unsafe { left.tell_spec(timeout) };
    c_long::from(flat(result))
}

pub unsafe fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the program's own call.
    let fd = unsafe { next::epoll_create(size) };
    epoll::created(fd);
    fd
}

pub unsafe fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the program's own call.
    let fd = unsafe { next::epoll_create1(flags) };
    epoll::created(fd);
    fd
}

/// The set that `ep` stands for. None: the kernel's alone, as all sets are once the program has confined itself.
#[inline]
fn set(ep: c_int) -> Option<u32> {
    match fdtable::get(ep) {
        Kind::Set(index) if !settings::is_silent() => Some(index),
        _ => None,
    }
}

pub unsafe fn epoll_ctl(ep: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    // SAFETY: the program's own call.
    let native = || unsafe { next::epoll_ctl(ep, op, fd, event) };
    if let Some(index) = set(ep) {
        return epoll::ctl(index, op, fd, event, native);
    }
    let result = native();
    // The set was made out of our sight, so its waits cannot hear doorbells.
    if result == 0
        && op != libc::EPOLL_CTL_DEL
        && let Kind::Conn(c) = fdtable::get(fd)
    {
        errno::keep(|| drain::both(arena::conn(c), fd, Reason::Foreign));
    }
    result
}

/// Events of one call that the kernel accepts (EP_MAX_EVENTS).
const MOST_EVENTS: c_int = i32::MAX / size_of::<epoll_event>() as c_int;
/// Stands for a null pointer: like null it is not mapped, but a slice may be made of it.
const NOWHERE: usize = 8;

/// The buffer as a slice; only `user` may touch its memory. None: the kernel is to report what is wrong with the buffer.
unsafe fn buffer<'a>(events: *mut epoll_event, n: c_int) -> Option<&'a mut [epoll_event]> {
    let bytes = size_of::<epoll_event>().checked_mul(usize::try_from(n).ok()?)?;
    if n == 0 || n > MOST_EVENTS || iov::of_file(events.cast::<c_void>(), bytes).is_err() {
        return None;
    }
    let start = if events.is_null() { NOWHERE as *mut epoll_event } else { events };
    // SAFETY: the program vouches for `n` entries.
    Some(unsafe { core::slice::from_raw_parts_mut(start, n as usize) })
}

/// One call on a set. `time` and `mask` are evaluated only if the set is one of ours. If they or the buffer are bad, the
/// kernel reports that.
unsafe fn wait(
    ep: c_int,
    (events, n): (*mut epoll_event, c_int),
    time: impl FnOnce() -> Result<Option<u64>>,
    mask: *const sigset_t,
    native: impl FnOnce() -> c_int,
) -> c_int {
    let Some(index) = set(ep) else { return native() };
    epoll::saw_wait(index);
    // The process follows no connection, and no other thread can make one while this thread waits.
    if !fdtable::follows_connections() && !epoll::has_doorbell(index) && !member::stays() && thread::is_alone() {
        return native();
    }
    // SAFETY: by contract.
    let (Ok(ns), Ok(mask), Some(out)) = (time(), Mask::read(mask), unsafe { buffer(events, n) }) else {
        return native();
    };
    epoll::wait(index, out, ns, mask.pointer(), native)
}

pub unsafe fn epoll_wait(ep: c_int, events: *mut epoll_event, n: c_int, timeout: c_int) -> c_int {
    // SAFETY: the program's own call and buffer.
    unsafe {
        let native = || next::epoll_wait(ep, events, n, timeout);
        wait(ep, (events, n), || Ok(from_ms(timeout)), core::ptr::null(), native)
    }
}

pub unsafe fn epoll_pwait(
    ep: c_int,
    events: *mut epoll_event,
    n: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's own call and buffer.
    unsafe {
        let native = || next::epoll_pwait(ep, events, n, timeout, mask);
        wait(ep, (events, n), || Ok(from_ms(timeout)), mask, native)
    }
}

pub unsafe fn epoll_pwait2(
    ep: c_int,
    events: *mut epoll_event,
    n: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's own call, buffer and timeout.
    unsafe {
        let native = || next::epoll_pwait2(ep, events, n, timeout, mask);
        wait(ep, (events, n), || from_spec(timeout), mask, native)
    }
}

/// epoll_pwait(2) and epoll_pwait2(2) through syscall(), with the size of the mask.
pub unsafe fn raw_epoll_pwait(
    ep: c_int,
    events: (*mut epoll_event, c_int),
    time: impl FnOnce() -> Result<Option<u64>>,
    (mask, size): (*const sigset_t, usize),
    native: impl FnOnce() -> c_long,
) -> c_long {
    if !mask.is_null() && size != MASK_SIZE {
        return native();
    }
    // SAFETY: the program's own call and buffer.
    c_long::from(unsafe { wait(ep, events, time, mask, || native() as c_int) })
}
