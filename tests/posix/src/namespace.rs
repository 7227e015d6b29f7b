//! A network namespace of the program's own, made by the call that is tested; so crates/testkit is not used.

use crate::sys::errno::outcome;
use crate::sys::net::{self, Family};

/// Moves this process to a new network namespace with nothing but a loopback interface, up.
pub fn enter_new() {
    // SAFETY: takes a number.
    outcome(unsafe { libc::unshare(libc::CLONE_NEWNET) }).expect("unshare a network namespace");
    let fd = net::socket(Family::V4, 0);
    // SAFETY: all-zero is a valid ifreq; its name is written within its 16 bytes.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        outcome(libc::ioctl(fd, libc::SIOCSIFFLAGS, &request)).expect("bring up the loopback interface");
    }
    crate::sys::fds::close(fd).expect("close");
}
