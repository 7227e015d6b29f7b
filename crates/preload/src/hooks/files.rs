//! sendfile, the splice family, AIO, and stdio on a socket.

use super::conn;
use crate::io::{past_us, send as transmit};
use crate::record::Conn;
use crate::stream::source::{Buffers, Source};
use crate::{arena, drain, errno, fdtable, host, life::numbers, next, stream::iov, user};
use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
use core::mem::offset_of;
use libc::{iovec, off_t, size_t, ssize_t};
use sidestep_abi::Reason;
use sidestep_ring::Data;
use sidestep_sys::{Errno, Result, fd as fdsys};

pub unsafe fn sendfile(out: c_int, from: c_int, at: *mut off_t, n: size_t) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::sendfile(out, from, at, n) };
    // Into a pipe the kernel takes bytes of a socket, too.
    let Some(c) = conn(out) else { return out_of(conn(from).map(arena::conn), from, native) };
    let start = if at.is_null() { seek(from, 0, libc::SEEK_CUR) } else { user::read(at.cast_const()) };
    let start = match start {
        Ok(start) if is_position(start, n) => start,
        // The source has no file position (a pipe, for instance). This is rare, so the kernel does it.
        Err(Errno(libc::ESPIPE)) => {
            return transmit::by_kernel(arena::conn(c), out, Reason::Splice, 0, native, |sent| has_left(from, n, sent));
        }
        _ => return native(), // the kernel refuses the call
    };
    // Only the call itself shows which carrier is used: the connection may be attached during the call.
    let mut by_kernel = false;
    let sent = transmit::send(c, out, &mut File::new(from, start, n), 0, || {
        by_kernel = true;
        native()
    });
    if by_kernel {
        return sent;
    }
    let end = start + sent.max(0) as off_t;
    if at.is_null() {
        if sent > 0 {
            let _ = seek(from, end, libc::SEEK_SET);
        }
        return sent;
    }
    // SAFETY: the program's own place for the position.
    match unsafe { user::write(at, end) } {
        Ok(()) => sent,
        Err(e) => errno::give(Err(e)),
    }
}

/// A call by which the kernel takes bytes out of `from`, which may be a connection.
fn out_of(source: Option<&'static Conn>, from: c_int, call: impl FnOnce() -> ssize_t) -> ssize_t {
    let Some(c) = source else { return call() };
    errno::keep(|| drain::before_native_receive(c, from, Reason::Splice));
    let moved = call();
    past_us::received(c, moved);
    moved
}

/// Whether a call that was to move `n` bytes, and has moved so many, has left some in its pipe, and not found it empty.
fn has_left(pipe: c_int, n: usize, moved: usize) -> bool {
    moved < n && fdsys::poll_now(pipe, libc::POLLIN) & libc::POLLIN != 0
}

fn seek(fd: c_int, to: off_t, whence: c_int) -> Result<off_t> {
    // SAFETY: no memory involved.
    unsafe { sidestep_sys::call(libc::SYS_lseek, [fd as usize, to as usize, whence as usize, 0, 0, 0]) }
        .map(|at| at as off_t)
}

/// Whether the kernel accepts this position with this count (rw_verify_area). Otherwise it says EINVAL.
fn is_position(start: off_t, n: usize) -> bool {
    off_t::try_from(n).is_ok_and(|n| start >= 0 && start.checked_add(n).is_some())
}

/// A file as a source, read straight into the ring.
struct File {
    fd: c_int,
    start: off_t,
    len: usize,
}

impl File {
    /// The `n` bytes from `start` on, or as many of them as one call can send.
    fn new(fd: c_int, start: off_t, n: usize) -> File {
        File { fd, start, len: n.min(iov::MOST) }
    }

    /// # Safety
    /// `to` must be writable for `max` bytes.
    unsafe fn read(&self, from: usize, to: *mut u8, max: usize) -> Result<usize> {
        if max == 0 {
            return Ok(0); // of a directory, too
        }
        let args = [self.fd as usize, to as usize, max, self.start as usize + from, 0, 0];
        // SAFETY: by contract.
        match unsafe { sidestep_sys::call(libc::SYS_pread64, args) } {
            Err(Errno(libc::EISDIR)) => Err(Errno(libc::EINVAL)), // as sendfile(2) says it
            read => read,
        }
    }
}

impl Source for File {
    fn keep(&mut self, _index: u32) -> Result<usize> {
        Err(Errno(libc::EAGAIN))
    }

    fn len(&self) -> usize {
        self.len
    }

    fn fill(&mut self, data: Data, at: u64, from: usize, max: usize) -> Result<usize> {
        let (to, run) = data.run(at);
        // SAFETY: `run` bytes of the ring.
        unsafe { self.read(from, to, run.min(max)) }
    }

    fn send(&mut self, fd: c_int, from: usize, max: usize, flags: c_int) -> Result<usize> {
        let mut buffer = [0u8; 16 * 1024];
        let max = buffer.len().min(max).min(self.len - from);
        // SAFETY: no more than the buffer has.
        let n = unsafe { self.read(from, buffer.as_mut_ptr(), max) }?;
        if n == 0 {
            return Ok(0);
        }
        Buffers(&iov::one(buffer.as_ptr().cast(), n)).send(fd, 0, n, flags)
    }
}

pub unsafe fn splice(
    from: c_int,
    off_in: *mut off_t,
    to: c_int,
    off_out: *mut off_t,
    n: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::splice(from, off_in, to, off_out, n, flags) };
    // A socket has no positions; the kernel refuses the call.
    let refused = conn(from).is_some() && !off_in.is_null() || conn(to).is_some() && !off_out.is_null();
    let end = |fd| conn(fd).filter(|_| !refused).map(arena::conn);
    let sink = end(to);
    out_of(end(from), from, || match sink {
        Some(c) => transmit::by_kernel(c, to, Reason::Splice, 0, native, |sent| has_left(from, n, sent)),
        None => native(),
    })
}

/// Works on pipes only; the kernel reports an error for a socket.
pub unsafe fn tee(from: c_int, to: c_int, n: size_t, flags: c_uint) -> ssize_t {
    // SAFETY: the program's own call.
    unsafe { next::tee(from, to, n, flags) }
}

/// Works into a pipe only; the kernel reports an error for a socket.
pub unsafe fn vmsplice(fd: c_int, iov: *const iovec, n: size_t, flags: c_uint) -> ssize_t {
    // SAFETY: the program's own call.
    unsafe { next::vmsplice(fd, iov, n, flags) }
}

/// POSIX AIO reads and writes in threads of libc's own: the connection goes to the kernel for good.
fn drain_request_to_kernel(request: *const libc::aiocb) {
    let place = request.wrapping_byte_add(offset_of!(libc::aiocb, aio_fildes)).cast::<c_int>();
    if fdtable::follows_any()
        && let Ok(fd) = user::read(place)
        && let Some(index) = conn(fd)
    {
        errno::keep(|| drain::before_native_receive(arena::conn(index), fd, Reason::KernelFeature));
    }
}

pub unsafe fn aio_read(request: *mut libc::aiocb) -> c_int {
    drain_request_to_kernel(request);
    // SAFETY: the program's own call.
    unsafe { next::aio_read(request) }
}

pub unsafe fn aio_write(request: *mut libc::aiocb) -> c_int {
    drain_request_to_kernel(request);
    // SAFETY: the program's own call.
    unsafe { next::aio_write(request) }
}

pub unsafe fn lio_listio(mode: c_int, list: *const *mut libc::aiocb, n: c_int, event: *mut c_void) -> c_int {
    if fdtable::follows_any() {
        let requests = (0..n.max(0) as usize).map_while(|i| user::read(list.wrapping_add(i)).ok());
        requests.filter(|r| !r.is_null()).for_each(|r| drain_request_to_kernel(r));
    }
    // SAFETY: the program's own call.
    unsafe { next::lio_listio(mode, list, n, event) }
}

/// The kernel's AIO (io_submit(2) through syscall()): the kernel reads and writes the sockets without our hooks.
pub fn submitted(n: c_long, list: *const *const Iocb) {
    if !fdtable::follows_any() {
        return;
    }
    let requests = (0..n.max(0) as usize).map_while(|i| user::read(list.wrapping_add(i)).ok());
    for request in requests.map_while(|r| user::read(r).ok()) {
        if let Some(index) = conn(request.fd) {
            errno::keep(|| drain::before_native_receive(arena::conn(index), request.fd, Reason::KernelFeature));
        }
    }
}

/// The beginning of struct iocb (linux/aio_abi.h).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Iocb {
    _data: u64,
    _key_and_flags: [u32; 2],
    _operation: [u16; 2],
    fd: c_int,
}

// SAFETY: integers.
unsafe impl user::Plain for Iocb {}

/// stdio also closes the descriptor inside libc, so the descriptor is not followed any longer.
fn leave_to_stdio(index: u32, fd: c_int) {
    let c = arena::conn(index);
    drain::to_kernel(c, fd, Reason::Stdio);
    numbers::unfollow_for_good(index, fd);
}

/// stdio reads and writes inside libc, past all hooks: the connection goes to the kernel for good.
pub unsafe fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE {
    if let Some(index) = conn(fd) {
        errno::keep(|| leave_to_stdio(index, fd));
    }
    // SAFETY: the program's own call.
    unsafe { next::fdopen(fd, mode) }
}

pub unsafe fn vdprintf(fd: c_int, format: *const c_char, args: *mut c_void) -> c_int {
    if conn(fd).is_none() {
        // SAFETY: the program's own call.
        return unsafe { next::vdprintf(fd, format, args) };
    }
    // SAFETY: the program's format and arguments.
    let Some((text, n)) = (unsafe { host::formatted(format, args) }) else { return -1 };
    let mut done = 0;
    let mut result = Ok(n);
    while done < n {
        // SAFETY: `n` bytes of text.
        let w = unsafe { super::rw::write(fd, text.add(done).cast(), n - done) };
        if w <= 0 {
            result = Err(Errno(errno::get()));
            break;
        }
        done += w as usize;
    }
    // SAFETY: allocated by libc.
    unsafe { host::free(text) };
    errno::give(result) as c_int
}

/// _FORTIFY_SOURCE calls this for vdprintf(3). Its further checks concern formats in writable memory.
pub unsafe fn vdprintf_chk(fd: c_int, _flag: c_int, format: *const c_char, args: *mut c_void) -> c_int {
    // SAFETY: the same contract.
    unsafe { vdprintf(fd, format, args) }
}

/// For the C shim's dprintf.
#[unsafe(no_mangle)]
unsafe extern "C" fn ss_vdprintf(fd: c_int, format: *const c_char, args: *mut c_void) -> c_int {
    // SAFETY: the same contract.
    unsafe { vdprintf(fd, format, args) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn one_sendfile_sends_no_more_than_one_write() {
        for (n, sent) in [(0, 0), (iov::MOST, iov::MOST), (iov::MOST + 1, 0x7fff_f000), (usize::MAX, 0x7fff_f000)] {
            assert_eq!(File::new(-1, 0, n).len(), sent);
        }
    }

    #[test]
    fn a_directory_is_no_source() {
        let directory = std::fs::File::open("/").expect("a directory");
        let (file, mut room) = (File::new(directory.as_raw_fd(), 0, 10), [0_u8; 10]);
        // SAFETY: no more than the buffer has.
        let mut read = |max| unsafe { file.read(0, room.as_mut_ptr(), max) };
        assert_eq!((read(10), read(0)), (Err(Errno(libc::EINVAL)), Ok(0)));
    }

    #[test]
    fn the_bytes_of_a_sendfile_end_below_the_last_position() {
        assert!(is_position(0, off_t::MAX as usize) && is_position(off_t::MAX - 1, 1) && is_position(off_t::MAX, 0));
        assert!(!is_position(1, off_t::MAX as usize) && !is_position(off_t::MAX, 1));
        assert!(!is_position(-1, 1) && !is_position(0, usize::MAX));
    }
}
