//! A larger send buffer for a moment: the kernel takes bytes that the peer has no room for yet.

use crate::{Result, call, tcp};

/// A socket's send buffer that is larger until this is dropped. The kernel keeps what it has taken meanwhile.
#[derive(Debug)]
pub struct Enlarged {
    fd: i32,
    before: i32,
    now: i32,
    /// SO_BUF_LOCK, socket(7): which buffers the kernel does not resize by itself.
    locks: i32,
}

impl Enlarged {
    /// For `payload` bytes, as far as net.core.wmem_max permits. None: the buffer is large enough, or could not be restored.
    pub fn to_hold(fd: i32, payload: usize) -> Option<Enlarged> {
        let before = size(fd)?;
        let wanted = i32::try_from(payload).ok()?;
        if before / DOUBLED >= wanted || before >= RESTORABLE {
            return None;
        }
        let locks = tcp::option::<i32>(fd, libc::SOL_SOCKET, SO_BUF_LOCK).ok()?; // since Linux 5.17
        set(fd, libc::SO_SNDBUF, wanted).ok()?;
        Some(Enlarged { fd, before, now: size(fd)?, locks })
    }
}

impl Drop for Enlarged {
    fn drop(&mut self) {
        if size(self.fd) != Some(self.now) {
            return; // the program has set it meanwhile
        }
        let _ = set(self.fd, libc::SO_SNDBUF, self.before / DOUBLED);
        let _ = set(self.fd, SO_BUF_LOCK, self.locks);
    }
}

/// The kernel doubles what is set, to have space for its own records of the bytes, and reports the double (socket(7)).
const DOUBLED: i32 = 2;

/// No larger buffer is touched: it may be one of the kernel's own choice, beyond what a program may set by default
/// (net.core.wmem_max, doubled).
const RESTORABLE: i32 = 2 * 212_992;

/// Of asm-generic/socket.h.
const SO_BUF_LOCK: i32 = 72;

fn size(fd: i32) -> Option<i32> {
    tcp::option::<i32>(fd, libc::SOL_SOCKET, libc::SO_SNDBUF).ok()
}

fn set(fd: i32, name: i32, value: i32) -> Result<()> {
    let args = [fd as usize, libc::SOL_SOCKET as usize, name as usize, &raw const value as usize, 4, 0];
    // SAFETY: one int, alive.
    unsafe { call(libc::SYS_setsockopt, args) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    fn option(stream: &TcpStream, name: i32) -> i32 {
        tcp::option(stream.as_raw_fd(), libc::SOL_SOCKET, name).unwrap()
    }

    fn write_all_that_goes(stream: &mut TcpStream) -> usize {
        let mut all = 0;
        while let Ok(n) = stream.write(&[7; 4096]) {
            all += n;
        }
        all
    }

    #[test]
    fn the_kernel_takes_more_for_a_moment() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _receiver = listener.accept().unwrap();
        sender.set_nonblocking(true).unwrap();
        set(sender.as_raw_fd(), libc::SO_SNDBUF, 8192).unwrap();
        set(sender.as_raw_fd(), SO_BUF_LOCK, 0).unwrap();
        write_all_that_goes(&mut sender);
        set(sender.as_raw_fd(), libc::SO_SNDBUF, 8192).unwrap();
        set(sender.as_raw_fd(), SO_BUF_LOCK, 0).unwrap();
        let before = (option(&sender, libc::SO_SNDBUF), option(&sender, SO_BUF_LOCK));

        let enlarged = Enlarged::to_hold(sender.as_raw_fd(), 100_000).unwrap();
        assert!(write_all_that_goes(&mut sender) >= 80_000);
        drop(enlarged);
        assert_eq!((option(&sender, libc::SO_SNDBUF), option(&sender, SO_BUF_LOCK)), before);
        assert!(Enlarged::to_hold(sender.as_raw_fd(), 4000).is_none());
    }
}
