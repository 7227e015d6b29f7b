//! Result of a libc call: a count, or the error by name.

use std::ffi::CStr;
use std::fmt;

use libc::{c_char, c_int};

unsafe extern "C" {
    fn strerrorname_np(code: c_int) -> *const c_char;
}

/// An error number; shown by its name, such as `EAGAIN`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub c_int);

/// A call's return value, or the errno that it left.
pub type Outcome = Result<usize, Errno>;

impl Errno {
    /// What the last failed call of this thread has left.
    pub fn last() -> Errno {
        // SAFETY: errno's location is valid for the calling thread.
        Errno(unsafe { *libc::__errno_location() })
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the function takes any number and returns a static string or null.
        let name = unsafe { strerrorname_np(self.0) };
        if name.is_null() {
            return write!(f, "errno {}", self.0);
        }
        // SAFETY: not null, so a static NUL-terminated string.
        f.write_str(&unsafe { CStr::from_ptr(name) }.to_string_lossy())
    }
}

/// Turns a C return value (negative: look at errno) into an [`Outcome`].
pub fn outcome(ret: impl TryInto<i64>) -> Outcome {
    match ret.try_into().ok().expect("return values fit an i64") {
        n if n >= 0 => Ok(n as usize),
        _ => Err(Errno::last()),
    }
}

macro_rules! errnos {
    ($($name:ident)*) => { $(
        #[allow(missing_docs)] // errno(3) says what they mean.
        pub const $name: Errno = Errno(libc::$name);
    )* };
}

errnos! {
    EAGAIN EALREADY EADDRINUSE EBADF ECONNREFUSED ECONNRESET EDOM EEXIST EFAULT EINPROGRESS EINTR EINVAL
    EISCONN EMFILE EMSGSIZE ENOENT ENOSYS ENOTCONN ENOTSOCK ENOPROTOOPT EOPNOTSUPP EPERM EPIPE ESPIPE ELOOP
}
