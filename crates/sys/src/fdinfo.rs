//! /proc/self/fdinfo of an epoll set (proc(5)).

use crate::{call, fd as fdsys, process};

/// The kernel's event mask of `fd` in the set `epfd`. None: it is not a member, or /proc cannot be read.
pub fn epoll_mask(epfd: i32, fd: i32) -> Option<u32> {
    let mut path = *b"/proc/self/fdinfo/4294967295\0";
    let end = process::write_decimal(&mut path[18..], epfd as u32) + 18;
    path[end] = 0;
    let file = process::open(path.as_ptr()).ok()?;
    let found = find(file, fd);
    fdsys::close(file);
    found
}

/// Goes through the file line by line; no line is longer than the buffer.
fn find(file: i32, fd: i32) -> Option<u32> {
    let mut text = [0u8; 1024];
    let mut len = 0;
    loop {
        let room = &mut text[len..];
        let args = [file as usize, room.as_mut_ptr() as usize, room.len(), 0, 0, 0];
        // SAFETY: a writable buffer with its length.
        let n = unsafe { call(libc::SYS_read, args) }.ok().filter(|n| *n > 0)?;
        len += n;
        let mut from = 0;
        while let Some(line) = text[from..len].iter().position(|b| *b == b'\n') {
            if let Some((number, mask)) = parse(&text[from..from + line])
                && number == fd
            {
                return Some(mask);
            }
            from += line + 1;
        }
        text.copy_within(from..len, 0);
        len -= from;
    }
}

/// "tfd:       44 events: 8000201b data: ..."
fn parse(line: &[u8]) -> Option<(i32, u32)> {
    let mut words = core::str::from_utf8(line).ok()?.split_ascii_whitespace();
    if words.next() != Some("tfd:") {
        return None;
    }
    let fd = words.next()?.parse().ok()?;
    let mask = words.nth(1)?;
    Some((fd, u32::from_str_radix(mask, 16).ok()?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_one_shot_member_loses_its_events_when_it_fires() {
        // SAFETY: calls with plain values and live memory.
        unsafe {
            let (set, event) = (libc::epoll_create1(0), libc::eventfd(1, 0));
            let mask = (libc::EPOLLIN | libc::EPOLLONESHOT) as u32;
            let mut wanted = libc::epoll_event { events: mask, u64: 7 };
            assert_eq!(libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, event, &mut wanted), 0);
            let always = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
            assert_eq!(super::epoll_mask(set, event), Some(mask | always));
            assert_eq!(super::epoll_mask(set, set), None);
            assert_eq!(libc::epoll_wait(set, &mut wanted, 1, 0), 1);
            assert_eq!(super::epoll_mask(set, event), Some(libc::EPOLLONESHOT as u32));
        }
    }
}
