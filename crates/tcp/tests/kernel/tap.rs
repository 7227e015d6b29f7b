//! A TAP device: the wire between the kernel and the fast path.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

pub struct Tap(File);

impl Tap {
    /// Makes the device in the calling thread's network namespace. It goes with the descriptor.
    pub fn new(name: &str) -> Tap {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
        let file = file.expect("/dev/net/tun (needs root)");
        // SAFETY: all-zero bytes are an `ifreq`: numbers, addresses, and a null pointer.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
        // SAFETY: the descriptor is open, and the kernel reads and writes an `ifreq`, which outlives the call.
        let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) };
        assert_eq!(made, 0, "TUNSETIFF: {} (needs root)", std::io::Error::last_os_error());
        Tap(file)
    }

    /// The next frame that the kernel has sent.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 2048];
        match self.0.read(&mut frame) {
            Ok(len) => {
                frame.truncate(len);
                Some(frame)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("the device: {error}"),
        }
    }

    pub fn send(&mut self, frame: &[u8]) {
        assert_eq!(self.0.write(frame).expect("the device"), frame.len());
    }

    /// Waits until the kernel has sent a frame, or so many microseconds have passed.
    pub fn wait(&self, micros: u64) {
        let timeout = Timespec { tv_sec: (micros / 1_000_000) as i64, tv_nsec: (micros % 1_000_000 * 1000) as i64 };
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)).expect("poll");
    }
}
