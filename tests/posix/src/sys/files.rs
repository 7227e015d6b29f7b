//! Files with given contents, for sendfile and for reused numbers.

use std::io::Write;
use std::os::fd::{FromRawFd, IntoRawFd};

use super::Fd;
use super::errno::outcome;

/// An unnamed file that holds `bytes`, positioned at its start.
pub fn holding(bytes: &[u8]) -> Fd {
    // SAFETY: the template is a valid path; O_TMPFILE makes an unnamed file in that directory.
    let fd = outcome(unsafe { libc::open(c"/tmp".as_ptr(), libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC, 0o600) })
        .expect("open an unnamed file in /tmp") as Fd;
    // SAFETY: the number was just opened and belongs to nobody else.
    let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
    file.write_all(bytes).expect("write the file");
    std::io::Seek::rewind(&mut file).expect("rewind the file");
    file.into_raw_fd()
}

/// The file's whole contents, whatever its position.
pub fn contents(fd: Fd) -> Vec<u8> {
    std::fs::read(format!("/proc/self/fd/{fd}")).expect("read the file back")
}

/// Its position.
pub fn offset(fd: Fd) -> i64 {
    // SAFETY: no pointers.
    outcome(unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) }).expect("lseek") as i64
}

/// /dev/null, opened anew.
pub fn dev_null() -> Fd {
    // SAFETY: a valid path.
    outcome(unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) }).expect("open /dev/null") as Fd
}
