//! x86-64: the system call instruction, the time stamp counter, the pause hint, vfork; copies that may fault, and what
//! the kernel hands to a signal handler.

mod copy;
mod handler;

pub use copy::{after_failed_copy, copy, is_in_copy, prepare_copy};
pub use handler::{Interrupted, stack_pointer};

use core::arch::{asm, x86_64};

/// # Safety
/// As for any system call.
#[inline]
pub unsafe fn syscall(number: usize, a: [usize; 6]) -> usize {
    let result;
    // SAFETY: the kernel clobbers rcx and r11 and whatever memory the arguments name; the stack is not used.
    unsafe {
        asm!("syscall", inlateout("rax") number => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Ticks of a counter that runs at a constant rate and is the same on all processors.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: rdtsc exists on every x86-64 and has no side effects.
    unsafe { x86_64::_rdtsc() }
}

/// Tells the processor that this thread spins.
#[inline]
pub fn pause() {
    core::hint::spin_loop();
}

/// Where a signal handler returns to: rt_sigreturn(2), for a libc that does not bring its own.
///
/// # Safety
/// Not to be called: the kernel goes here, with a signal frame on the stack.
#[unsafe(naked)]
pub unsafe extern "C" fn restore() {
    core::arch::naked_asm!("mov eax, 15", "syscall")
}

/// Address of the calling thread's instance of a thread-local variable of C, which every thread has from its start
/// (initial-exec). The address may be asked for repeatedly in a function; it stays the same.
#[macro_export]
macro_rules! thread_storage {
    ($name:literal) => {{
        let at: *mut u8;
        // SAFETY: reads two words that never change during the life of a thread.
        unsafe {
            core::arch::asm!(
                "mov {at}, qword ptr fs:[0]",
                concat!("add {at}, qword ptr [rip + ", $name, "@GOTTPOFF]"),
                at = out(reg) at,
                options(pure, nomem, nostack),
            )
        };
        at
    }};
}

/// vfork(2) for a caller that is itself a function named vfork: the return address must not be on the stack that parent and
/// child share. `mark` is called before, and need not preserve registers; `unmark` runs in the parent.
#[macro_export]
macro_rules! vfork_body {
    ($mark:path, $unmark:path) => {
        core::arch::naked_asm!(
            "sub rsp, 8",          // keeps the stack aligned for the call
            "call {mark}",
            "add rsp, 8",
            "pop rdi",             // the return address survives in a register
            "mov eax, 58",         // SYS_vfork
            "syscall",
            "push rdi",
            "test rax, rax",
            "je 2f",               // the child goes straight back
            "mov rdi, rax",
            "sub rsp, 8",
            "call {unmark}",       // returns the return value, with errno set
            "add rsp, 8",
            "2: ret",
            mark = sym $mark, unmark = sym $unmark
        )
    };
}

/// A jump to `target` that leaves all argument registers alone: an export for a variadic C function.
#[macro_export]
macro_rules! jump_body {
    ($target:path) => {
        core::arch::naked_asm!("jmp {target}", target = sym $target)
    };
}
