//! sendfile, the splice family, and stdio on a socket.

use super::conn;
use crate::io::send as transmit;
use crate::{arena, errno, io, life, next};
use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::Ordering::Relaxed;
use libc::{iovec, off_t, size_t, ssize_t};
use sidestep_abi::Reason;
use sidestep_ring::Data;
use sidestep_sys::{Errno, Result};

pub unsafe fn sendfile(out: c_int, from: c_int, at: *mut off_t, n: size_t) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::sendfile(out, from, at, n) };
    let Some(c) = conn(out) else { return native() };
    // SAFETY: the program's own pointer, if it gave one.
    let given = unsafe { at.as_mut() };
    let start = match &given {
        Some(at) => Some(**at),
        None => seek(from, 0, libc::SEEK_CUR).ok(),
    };
    let Some(start) = start else {
        // Not a file with positions; rare enough for the kernel.
        transmit::tx_to_kernel(arena::conn(c), out, Some(Reason::Splice));
        return native();
    };
    // Only the call itself shows which way it goes: the connection may be attached in it.
    let mut by_kernel = false;
    let sent = transmit::send(c, out, &mut File { fd: from, start, len: n }, 0, || {
        by_kernel = true;
        native()
    });
    if sent > 0 && !by_kernel {
        match given {
            Some(at) => *at = start + sent as off_t,
            None => drop(seek(from, start + sent as off_t, libc::SEEK_SET)),
        }
    }
    sent
}

fn seek(fd: c_int, to: off_t, whence: c_int) -> Result<off_t> {
    // SAFETY: no memory involved.
    unsafe { sidestep_sys::call(libc::SYS_lseek, [fd as usize, to as usize, whence as usize, 0, 0, 0]) }
        .map(|at| at as off_t)
}

/// A file, read straight into the ring.
struct File {
    fd: c_int,
    start: off_t,
    len: usize,
}

impl File {
    fn read(&self, from: usize, to: *mut u8, max: usize) -> Result<usize> {
        let args = [self.fd as usize, to as usize, max, self.start as usize + from, 0, 0];
        // SAFETY: `to` is writable for `max` bytes: part of a ring, or a buffer on our stack.
        unsafe { sidestep_sys::call(libc::SYS_pread64, args) }
    }
}

impl transmit::Source for File {
    fn keep(&mut self, _index: u32) -> Option<usize> {
        None
    }

    fn len(&self) -> usize {
        self.len
    }

    fn fill(&mut self, data: Data, at: u64, from: usize, max: usize) -> Result<usize> {
        let (to, run) = data.run(at);
        self.read(from, to, run.min(max))
    }

    fn send(&mut self, fd: c_int, from: usize, max: usize, flags: c_int) -> Result<usize> {
        let mut buffer = [0u8; 16 * 1024];
        let max = buffer.len().min(max).min(self.len - from);
        let n = self.read(from, buffer.as_mut_ptr(), max)?;
        if n == 0 {
            return Ok(0);
        }
        transmit::Buffers(&io::iov::one(buffer.as_ptr().cast(), n)).send(fd, 0, n, flags)
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
    let (source, sink) = (conn(from).map(arena::conn), conn(to).map(arena::conn));
    if let Some(c) = source {
        errno::keep(|| life::surrender(c, from, Reason::Splice));
    }
    if let Some(c) = sink {
        errno::keep(|| transmit::tx_to_kernel(c, to, Some(Reason::Splice)));
    }
    let moved = native();
    if moved > 0 {
        errno::keep(|| {
            source.inspect(|c| count_read(c, moved as usize));
            sink.inspect(|c| count_written(c, moved as usize));
        });
    }
    moved
}

/// Bytes went through the kernel without passing through our receive.
fn count_read(c: &arena::Conn, n: usize) {
    if !c.is_attached() {
        c.early_rx.fetch_add(n as u64, Relaxed);
    } else {
        let _ = c.with_rx(|rx| rx.took_kernel(n));
    }
}

fn count_written(c: &arena::Conn, n: usize) {
    if !c.is_attached() {
        c.early_tx.fetch_add(n as u64, Relaxed);
    } else {
        let _ = c.with_tx(|end| end.tx.put_kernel(n));
    }
}

/// Between pipes only; a socket is an error that the kernel reports.
pub unsafe fn tee(from: c_int, to: c_int, n: size_t, flags: c_uint) -> ssize_t {
    // SAFETY: the program's own call.
    unsafe { next::tee(from, to, n, flags) }
}

/// Into a pipe only; a socket is an error that the kernel reports.
pub unsafe fn vmsplice(fd: c_int, iov: *const iovec, n: size_t, flags: c_uint) -> ssize_t {
    // SAFETY: the program's own call.
    unsafe { next::vmsplice(fd, iov, n, flags) }
}

/// POSIX AIO reads and writes in threads of libc's own: the kernel for good.
unsafe fn surrender_request(request: *const libc::aiocb) {
    // SAFETY: the program's own request, or null.
    if let Some(r) = unsafe { request.as_ref() }
        && let Some(index) = conn(r.aio_fildes)
    {
        errno::keep(|| life::surrender(arena::conn(index), r.aio_fildes, Reason::KernelFeature));
    }
}

pub unsafe fn aio_read(request: *mut libc::aiocb) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        surrender_request(request);
        next::aio_read(request)
    }
}

pub unsafe fn aio_write(request: *mut libc::aiocb) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        surrender_request(request);
        next::aio_write(request)
    }
}

pub unsafe fn lio_listio(mode: c_int, list: *const *mut libc::aiocb, n: c_int, event: *mut c_void) -> c_int {
    // SAFETY: the program's own list of `n` requests, and its own call.
    unsafe {
        for i in 0..n.max(0) as usize {
            surrender_request(*list.add(i));
        }
        next::lio_listio(mode, list, n, event)
    }
}

/// stdio reads and writes inside libc, where nobody can intercept it: the kernel for good.
pub unsafe fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE {
    if let Some(index) = conn(fd) {
        errno::keep(|| life::surrender(arena::conn(index), fd, Reason::Stdio));
    }
    // SAFETY: the program's own call.
    unsafe { next::fdopen(fd, mode) }
}

unsafe extern "C" {
    fn vasprintf(out: *mut *mut c_char, format: *const c_char, args: *mut c_void) -> c_int;
}

pub unsafe fn vdprintf(fd: c_int, format: *const c_char, args: *mut c_void) -> c_int {
    if conn(fd).is_none() {
        // SAFETY: the program's own call.
        return unsafe { next::vdprintf(fd, format, args) };
    }
    let mut text = core::ptr::null_mut();
    // SAFETY: the program's format and arguments; libc allocates the text.
    let n = unsafe { vasprintf(&raw mut text, format, args) };
    if n < 0 {
        return -1;
    }
    let mut done = 0;
    let mut result = Ok(n as usize);
    while done < n as usize {
        // SAFETY: `n` bytes of text.
        let w = unsafe { super::rw::write(fd, text.add(done).cast(), n as usize - done) };
        if w <= 0 {
            result = Err(Errno(errno::get()));
            break;
        }
        done += w as usize;
    }
    // SAFETY: allocated by vasprintf.
    unsafe { libc::free(text.cast()) };
    errno::give(result) as c_int
}

/// What _FORTIFY_SOURCE makes of vdprintf; its further checks are for formats that can be written to.
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
