//! A C stream (FILE*) over a descriptor.

use std::ffi::CStr;

use libc::{FILE, c_int};

use super::Fd;
use super::errno::{Outcome, outcome};

pub struct Stream(*mut FILE);

unsafe extern "C" {
    static stdin: *mut FILE;
}

/// `n` bytes by the stream of descriptor 0.
pub fn read_standard_input(n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    // SAFETY: the stream is open, and `bytes` has room; no other thread uses the stream.
    assert_eq!(unsafe { libc::fread(bytes.as_mut_ptr().cast(), 1, n, stdin) }, n, "fread");
    bytes
}

impl Stream {
    /// Takes over the number: closing the stream closes it.
    pub fn open(fd: Fd, mode: &CStr) -> Stream {
        // SAFETY: the mode is a valid C string.
        let file = unsafe { libc::fdopen(fd, mode.as_ptr()) };
        assert!(!file.is_null(), "fdopen");
        Stream(file)
    }

    pub fn write(&mut self, bytes: &[u8]) -> usize {
        // SAFETY: pointer and length are those of a live slice; the stream is open.
        unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), self.0) }
    }

    pub fn read(&mut self, buf: &mut [u8]) -> usize {
        // SAFETY: pointer and length are those of a live, exclusively borrowed slice.
        unsafe { libc::fread(buf.as_mut_ptr().cast(), 1, buf.len(), self.0) }
    }

    /// `fprintf` of one text and one number.
    pub fn print(&mut self, text: &CStr, number: c_int) -> c_int {
        // SAFETY: the format takes one string and one integer, which follow.
        unsafe { libc::fprintf(self.0, c"%s %d\n".as_ptr(), text.as_ptr(), number) }
    }

    /// One line with its line end, or `None` at the end of the stream.
    pub fn line(&mut self) -> Option<String> {
        let mut buf = [0u8; 256];
        // SAFETY: pointer and size are those of a live buffer; the stream is open.
        let got = unsafe { libc::fgets(buf.as_mut_ptr().cast(), buf.len() as c_int, self.0) };
        if got.is_null() {
            return None;
        }
        Some(CStr::from_bytes_until_nul(&buf).expect("fgets ends with NUL").to_string_lossy().into_owned())
    }

    /// Nothing is written before the stream's buffer of this size is full.
    pub fn buffered(&mut self, size: usize) {
        // SAFETY: the stream is open and was not used yet; it makes the buffer itself.
        let ret = unsafe { libc::setvbuf(self.0, std::ptr::null_mut(), libc::_IOFBF, size) };
        assert_eq!(ret, 0, "setvbuf");
    }

    /// Reads and writes then go straight to the descriptor.
    pub fn unbuffered(&mut self) {
        // SAFETY: the stream is open and was not used yet; no buffer is given.
        let ret = unsafe { libc::setvbuf(self.0, std::ptr::null_mut(), libc::_IONBF, 0) };
        assert_eq!(ret, 0, "setvbuf");
    }

    pub fn flush(&mut self) -> Outcome {
        // SAFETY: the stream is open.
        outcome(unsafe { libc::fflush(self.0) })
    }

    pub fn close(self) -> Outcome {
        // SAFETY: the stream is open, and nobody uses it after this.
        outcome(unsafe { libc::fclose(self.0) })
    }
}

/// `dprintf` of one text and one number.
pub fn dprintf(fd: Fd, text: &CStr, number: c_int) -> Outcome {
    // SAFETY: the format takes one string and one integer, which follow.
    outcome(unsafe { super::glibc::dprintf(fd, c"%s %d\n".as_ptr(), text.as_ptr(), number) })
}

/// The checked twin that _FORTIFY_SOURCE calls.
pub fn dprintf_chk(fd: Fd, text: &CStr, number: c_int) -> Outcome {
    // SAFETY: the format takes one string and one integer, which follow.
    outcome(unsafe { super::glibc::__dprintf_chk(fd, 1, c"%s %d\n".as_ptr(), text.as_ptr(), number) })
}
