//! What the kernel hands to a signal handler, and a handler that passes it on unchanged.

use libc::{greg_t, ucontext_t};

/// A signal handler that calls `decide(signal, information, context)` for the function that is to continue. 0: none. Otherwise
/// that function gets the same arguments, stack and return address as the kernel had prepared.
#[macro_export]
macro_rules! handler_body {
    ($decide:path) => {
        core::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "push rdx",
            "call {decide}", // three words and the return address: the stack is aligned
            "mov r11, rax",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "xor eax, eax", // as the kernel leaves it
            "test r11, r11",
            "jz 2f",
            "jmp r11",
            "2: ret",
            decide = sym $decide
        )
    };
}

/// The state with which the kernel will resume the interrupted thread.
pub struct Interrupted(*mut ucontext_t);

/// The code segment of 64-bit programs.
const CODE_SEGMENT: greg_t = 0x33;
/// Processor exceptions for which the kernel sends a signal without an address: stack segment, general protection.
const EXCEPTIONS: [greg_t; 2] = [12, 13];

impl Interrupted {
    /// # Safety
    /// `context` must be the third argument of a signal handler that has not returned.
    pub unsafe fn new(context: *mut ucontext_t) -> Interrupted {
        Interrupted(context)
    }

    fn register(&self, number: i32) -> greg_t {
        // SAFETY: by contract of `new`.
        unsafe { (*self.0).uc_mcontext.gregs[number as usize] }
    }

    /// Address of the instruction that was interrupted.
    pub fn instruction(&self) -> usize {
        self.register(libc::REG_RIP) as usize
    }

    /// The stack pointer.
    pub fn stack(&self) -> usize {
        self.register(libc::REG_RSP) as usize
    }

    /// Makes the thread continue at another instruction, with all other registers unchanged.
    pub fn go_on_at(&mut self, instruction: usize) {
        // SAFETY: by contract of `new`.
        unsafe { (*self.0).uc_mcontext.gregs[libc::REG_RIP as usize] = instruction as greg_t };
    }

    /// Whether the thread runs 64-bit code, whose thread-local storage is the C library's.
    pub fn is_native(&self) -> bool {
        self.register(libc::REG_CSGSFS) & 0xffff == CODE_SEGMENT
    }

    /// Whether the processor's last exception comes again if the instruction is tried again.
    pub fn faulted_without_address(&self) -> bool {
        EXCEPTIONS.contains(&self.register(libc::REG_TRAPNO))
    }

    /// Blocks one more signal when the thread is resumed.
    pub fn block(&mut self, signal: i32) {
        // SAFETY: by contract of `new`. The kernel's mask is the first word of libc's.
        unsafe { *(&raw mut (*self.0).uc_sigmask).cast::<u64>() |= 1 << (signal - 1) };
    }
}

/// Approximately the stack pointer of the calling function.
#[inline]
pub fn stack_pointer() -> usize {
    let at: usize;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, rsp", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}
