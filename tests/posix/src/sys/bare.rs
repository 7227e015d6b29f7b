//! read(2) and write(2) by the processor's own instruction: what a language runtime without libc does.

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

/// # Safety
/// As the system call of that number.
unsafe fn call(number: libc::c_long, fd: Fd, address: usize, length: usize) -> isize {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the calling convention of the kernel, which changes no other register.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") fd as isize, in("rsi") address,
            in("rdx") length, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!("svc 0", in("x8") number as usize, inlateout("x0") fd as isize => result, in("x1") address,
            in("x2") length, options(nostack));
    }
    result
}
