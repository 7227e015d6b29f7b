//! Tests that run themselves once more inside a network namespace of their own.

use rustix::net::{AddressFamily, SocketType};
use std::process::{Command, Stdio};

/// This test program, told to run only this test, inside.
pub fn again(test: &str) -> Command {
    inside(&["--map-root-user", "--net", "--"], test)
}

/// Inside of a network namespace that belongs to the same user namespace. Needs root.
pub fn again_as_root(test: &str) -> Command {
    assert!(rustix::process::geteuid().is_root(), "this test needs root");
    inside(&["--net", "--"], test)
}

fn inside(what: &[&str], test: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(what).arg(std::env::current_exe().expect("own path"));
    // What fails inside is said on stderr; a second count of tests on stdout would only confuse.
    command.args(["--exact", test, "--nocapture"]).stdout(Stdio::null());
    command
}

/// A new namespace's loopback interface is down.
pub fn raise_loopback() {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).expect("socket");
    // SAFETY: integers and bytes: all zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an `ifreq`.
    let done = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), libc::SIOCSIFFLAGS, &raw const request) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
