//! Bytes that the kernel holds back for more to come.

use crate::tcp::option;
use crate::{Result, call};

/// Number of bytes written that the kernel has not sent yet (SIOCOUTQNSD).
fn unsent(fd: i32) -> Result<u32> {
    const SIOCOUTQNSD: usize = 0x894b;
    let mut n = 0i32;
    // SAFETY: SIOCOUTQNSD writes one int.
    unsafe { call(libc::SYS_ioctl, [fd as usize, SIOCOUTQNSD, &raw mut n as usize, 0, 0, 0]) }?;
    Ok(n as u32)
}

/// Sends bytes that the kernel holds back for more to come (MSG_MORE, Nagle). The program's own setting stays.
pub fn push(fd: i32) {
    if has_unsent(fd) {
        push_all(fd);
    }
}

/// As [`push`], of bytes that only Nagle's algorithm holds back.
pub fn push_past_nagle(fd: i32) {
    if has_unsent(fd) && option::<i32>(fd, libc::IPPROTO_TCP, libc::TCP_CORK) == Ok(0) {
        push_all(fd);
    }
}

fn has_unsent(fd: i32) -> bool {
    unsent(fd).is_ok_and(|n| n > 0)
}

fn push_all(fd: i32) {
    let before = option::<i32>(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY);
    send_at_once(fd);
    if before == Ok(0) {
        set_no_delay(fd, 0);
    }
}

/// Makes the kernel send later bytes at once (TCP_NODELAY).
pub fn send_at_once(fd: i32) {
    set_no_delay(fd, 1);
}

fn set_no_delay(fd: i32, on: i32) {
    let args = [fd as usize, libc::IPPROTO_TCP as usize, libc::TCP_NODELAY as usize, &raw const on as usize, 4, 0];
    // SAFETY: one int, alive.
    let _ = unsafe { call(libc::SYS_setsockopt, args) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    fn option(socket: &TcpStream, name: i32, value: i32) {
        // SAFETY: one int, alive.
        let done =
            unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, name, (&raw const value).cast(), 4) };
        assert_eq!(done, 0);
    }

    /// A connection whose peer acknowledges late, with a byte that has left and one that Nagle's algorithm holds back.
    fn held_back() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        loop {
            option(&far, libc::TCP_QUICKACK, 0);
            near.write_all(b"a").unwrap();
            near.write_all(b"b").unwrap();
            if unsent(near.as_raw_fd()) == Ok(1) {
                return (near, far);
            }
            far.read_exact(&mut [0; 2]).unwrap();
        }
    }

    #[test]
    fn what_nagle_holds_back_leaves_and_the_setting_stays() {
        let (near, mut far) = held_back();
        push_past_nagle(near.as_raw_fd());
        assert_eq!(unsent(near.as_raw_fd()), Ok(0));
        assert!(!near.nodelay().unwrap());
        far.read_exact(&mut [0; 2]).unwrap();
    }

    #[test]
    fn what_the_program_holds_back_stays() {
        let (near, _far) = held_back();
        option(&near, libc::TCP_CORK, 1);
        push_past_nagle(near.as_raw_fd());
        let held = unsent(near.as_raw_fd());
        push(near.as_raw_fd());
        assert_eq!((held, unsent(near.as_raw_fd())), (Ok(1), Ok(0)), "a push overrides even that");
    }
}
