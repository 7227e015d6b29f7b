//! POSIX asynchronous I/O: glibc makes it in threads of its own, which read and write a socket past the exported functions.

use std::mem::zeroed;

use libc::{aiocb, c_int};

use crate::sys::Fd;
use crate::sys::errno::{EINTR, Errno, Outcome, outcome};

fn control(fd: Fd, buf: *mut u8, n: usize) -> aiocb {
    // SAFETY: all-zero is a valid control block: no notification, offset 0.
    let mut block: aiocb = unsafe { zeroed() };
    block.aio_fildes = fd;
    block.aio_buf = buf.cast();
    block.aio_nbytes = n;
    block.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
    block
}

/// Submits, waits until it is done, and fetches the result.
fn complete(block: &mut aiocb, submit: unsafe extern "C" fn(*mut aiocb) -> c_int) -> Outcome {
    // SAFETY: the block and its buffer live until the operation is over, which this function
    // waits for.
    unsafe {
        outcome(submit(block))?;
        let list = [&raw const *block];
        while libc::aio_suspend(list.as_ptr(), 1, std::ptr::null()) < 0 {
            assert_eq!(Errno::last(), EINTR, "aio_suspend");
        }
        match libc::aio_error(block) {
            0 => outcome(libc::aio_return(block)),
            code => Err(Errno(code)),
        }
    }
}

/// Reads as read(2) does.
pub fn read(fd: Fd, buf: &mut [u8]) -> Outcome {
    complete(&mut control(fd, buf.as_mut_ptr(), buf.len()), libc::aio_read)
}

/// The buffer is only read, though the control block's type cannot say so.
pub fn write(fd: Fd, buf: &[u8]) -> Outcome {
    complete(&mut control(fd, buf.as_ptr().cast_mut(), buf.len()), libc::aio_write)
}
