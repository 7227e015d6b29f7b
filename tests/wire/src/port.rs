//! A device, by a packet(7) socket.

use crate::LONGEST_SLEEP;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

const ALL: u16 = (libc::ETH_P_ALL as u16).to_be();
/// Longer than any frame.
pub const LONGEST_FRAME: usize = 1 << 16;
const BUFFER: i32 = 16 << 20;

/// Receives what the device's other end sends, and sends to it.
pub struct Port(OwnedFd);

fn checked(outcome: isize) -> io::Result<usize> {
    usize::try_from(outcome).map_err(|_| io::Error::last_os_error())
}

impl Port {
    /// At a device of the thread's network namespace.
    pub fn open(device: &str) -> io::Result<Port> {
        let name = CString::new(device)?;
        // SAFETY: the name ends with a zero.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is involved. Without a protocol nothing is received before `bind`.
        let made = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        checked(made as isize)?;
        // SAFETY: a new descriptor.
        let port = Port(unsafe { OwnedFd::from_raw_fd(made) });
        port.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        port.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER)?;
        port.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER)?;
        port.bind(index)?;
        Ok(port)
    }

    fn set(&self, level: i32, name: i32, value: i32) -> io::Result<()> {
        let size = size_of_val(&value) as u32;
        let value = std::ptr::from_ref(&value).cast();
        // SAFETY: the value has this size and lives during the call.
        checked(unsafe { libc::setsockopt(self.0.as_raw_fd(), level, name, value, size) } as isize).map(drop)
    }

    fn bind(&self, index: u32) -> io::Result<()> {
        // SAFETY: zeroes are an address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ALL;
        address.sll_ifindex = index as i32;
        let size = size_of_val(&address) as u32;
        let address = std::ptr::from_ref(&address).cast();
        // SAFETY: the address has this size and lives during the call.
        checked(unsafe { libc::bind(self.0.as_raw_fd(), address, size) } as isize).map(drop)
    }

    /// The next frame, if one is there.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Vec<u8>>> {
        // SAFETY: the buffer has this size and lives during the call.
        let got = unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match checked(got) {
            Ok(len) => Ok(Some(buffer[..len].to_vec())),
            Err(error) if is_passing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a frame. One that the device refuses is lost, as on any wire.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the frame has this size and lives during the call.
        match checked(unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) }) {
            Err(error) if !is_passing(&error) && error.raw_os_error() != Some(libc::EMSGSIZE) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Nothing is there, there is no room, a signal came, or the device is down at present.
fn is_passing(error: &io::Error) -> bool {
    let codes = [libc::EAGAIN, libc::EINTR, libc::ENOBUFS, libc::ENETDOWN, libc::EINVAL];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Waits until a frame has come at one of the ports, or so long.
pub fn wait(ports: &[Port; 2], most: Option<Duration>) -> io::Result<()> {
    let most = most.unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP);
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: most.as_nanos() as i64 };
    let mut waited =
        [0, 1].map(|n: usize| libc::pollfd { fd: ports[n].0.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    // SAFETY: array and time live during the call; no signal mask is given.
    let outcome = unsafe { libc::ppoll(waited.as_mut_ptr(), waited.len() as u64, &timeout, std::ptr::null()) };
    match checked(outcome as isize) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}
