//! Socket options and ioctls by number.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The option's bytes, at most 256.
pub fn get(fd: impl AsFd, level: c_int, option: c_int) -> io::Result<Vec<u8>> {
    let mut value = vec![0u8; 256];
    let mut len = value.len() as libc::socklen_t;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the pointers cover `value` and `len`, which outlive the call.
    let done = unsafe { libc::getsockopt(fd, level, option, value.as_mut_ptr().cast(), &raw mut len) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    value.truncate(len as usize);
    Ok(value)
}

pub fn get_int(fd: impl AsFd, level: c_int, option: c_int) -> c_int {
    let bytes = get(fd, level, option).expect("getsockopt");
    c_int::from_ne_bytes(bytes[..4].try_into().expect("an int"))
}

pub fn set(fd: impl AsFd, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the pointer covers `value`, which outlives the call.
    let done = unsafe { libc::setsockopt(fd, level, option, value.as_ptr().cast(), value.len() as _) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub fn set_int(fd: impl AsFd, level: c_int, option: c_int, value: c_int) {
    set(fd, level, option, &value.to_ne_bytes()).unwrap_or_else(|error| panic!("option {level} {option}: {error}"));
}

/// An ioctl that answers with an int.
fn ask(fd: impl AsFd, request: u32) -> u64 {
    let mut answer: c_int = 0;
    // SAFETY: SIOCINQ, SIOCOUTQ and SIOCOUTQNSD write one int.
    let done = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request as _, &raw mut answer) };
    assert_eq!(done, 0, "ioctl: {}", io::Error::last_os_error());
    answer as u64
}

/// Unread bytes.
pub fn unread(fd: impl AsFd) -> u64 {
    ask(fd, 0x541B)
}

/// Unacknowledged bytes.
pub fn unacknowledged(fd: impl AsFd) -> u64 {
    ask(fd, 0x5411)
}

/// Unsent bytes.
pub fn unsent(fd: impl AsFd) -> u64 {
    ask(fd, 0x894B)
}
