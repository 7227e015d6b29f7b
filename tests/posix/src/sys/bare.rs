//! System calls by the processor's own instruction, as in a language runtime without libc.

use std::arch::asm;

use super::Fd;

/// The bytes read, or a negative error number.
pub fn read(fd: Fd, bytes: &mut [u8]) -> isize {
    // SAFETY: the kernel writes into a slice that is exclusively borrowed.
    unsafe { call(libc::SYS_read, fd, bytes.as_mut_ptr() as usize, bytes.len()) }
}

/// The bytes written, or a negative error number.
pub fn write(fd: Fd, bytes: &[u8]) -> isize {
    // SAFETY: the kernel reads a live slice.
    unsafe { call(libc::SYS_write, fd, bytes.as_ptr() as usize, bytes.len()) }
}

/// FIONBIO.
pub fn set_nonblocking(fd: Fd) {
    let on: libc::c_int = 1;
    // SAFETY: the kernel reads a live integer.
    let result = unsafe { call(libc::SYS_ioctl, fd, libc::FIONBIO as usize, &raw const on as usize) };
    assert_eq!(result, 0, "FIONBIO");
}

/// A new epoll set.
pub fn epoll_create() -> Fd {
    // SAFETY: plain numbers.
    let fd = unsafe { call(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC, 0, 0) };
    assert!(fd >= 0, "epoll_create1: {fd}");
    fd as Fd
}

/// Adds `fd` to an epoll set, for EPOLLIN.
pub fn epoll_add(set: Fd, fd: Fd) {
    let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
    let more = [&raw const event as usize, 0, 0];
    // SAFETY: the kernel reads a live event.
    let result = unsafe { call6(libc::SYS_epoll_ctl, set, libc::EPOLL_CTL_ADD as usize, fd as usize, more) };
    assert_eq!(result, 0, "epoll_ctl");
}

/// Events of epoll_pwait(2) within `ms` milliseconds.
pub fn epoll_wait(set: Fd, ms: i32) -> Vec<(u32, u64)> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 8];
    let more = [ms as isize as usize, 0, 8];
    // SAFETY: the kernel writes into an array that is exclusively borrowed, of the length that it is told.
    let n = unsafe { call6(libc::SYS_epoll_pwait, set, events.as_mut_ptr() as usize, events.len(), more) };
    assert!(n >= 0, "epoll_pwait: {n}");
    events[..n as usize].iter().map(|e| (e.events, e.u64)).collect()
}

/// A socket's option. None: it cannot be read.
pub fn int_option(fd: Fd, level: libc::c_int, name: libc::c_int) -> Option<i32> {
    let (mut value, mut length) = (0i32, size_of::<i32>() as u32);
    let more = [&raw mut value as usize, &raw mut length as usize, 0];
    // SAFETY: the kernel writes an integer, and its length.
    let result = unsafe { call6(libc::SYS_getsockopt, fd, level as usize, name as usize, more) };
    (result == 0).then_some(value)
}

/// Resets the connection.
pub fn reset(fd: Fd) {
    let none = libc::sockaddr { sa_family: libc::AF_UNSPEC as u16, sa_data: [0; 14] };
    // SAFETY: the kernel reads a live address of the stated size.
    let result = unsafe { call(libc::SYS_connect, fd, &raw const none as usize, size_of_val(&none)) };
    assert_eq!(result, 0, "connect");
}

/// A child of which libc knows nothing. Returns 0 in the child.
pub fn fork() -> i32 {
    // SAFETY: the child is on a copy of our memory; what libc keeps of threads is not used there.
    let pid = unsafe { call(libc::SYS_fork, 0, 0, 0) };
    assert!(pid >= 0, "fork: {pid}");
    pid as i32
}

/// # Safety
/// As the system call of that number.
unsafe fn call(number: libc::c_long, fd: Fd, address: usize, length: usize) -> isize {
    // SAFETY: by contract; calls do not look at more arguments than they have.
    unsafe { call6(number, fd, address, length, [0; 3]) }
}

/// # Safety
/// As the system call of that number.
unsafe fn call6(number: libc::c_long, fd: Fd, address: usize, length: usize, more: [usize; 3]) -> isize {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the calling convention of the kernel, which changes no other register.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") fd as isize, in("rsi") address,
            in("rdx") length, in("r10") more[0], in("r8") more[1], in("r9") more[2], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!("svc 0", in("x8") number as usize, inlateout("x0") fd as isize => result, in("x1") address,
            in("x2") length, in("x3") more[0], in("x4") more[1], in("x5") more[2], options(nostack));
    }
    result
}
