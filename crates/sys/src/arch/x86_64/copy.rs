//! The one routine that touches the program's memory. It may fault. Its instructions are known ([`is_in_copy`]), and a signal
//! handler that finds a fault there makes it return "not copied" ([`after_failed_copy`]).
//!
//! It uses 32-byte moves where processor and kernel support them, otherwise 16-byte moves. It does not use `rep movsb`, which
//! takes fifty times as long on some processors if the destination is not aligned.

use core::arch::{asm, global_asm, x86_64};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether 32-byte moves may be used.
static WIDE: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// 0: copied.
    fn ss_copy(to: *mut u8, from: *const u8, len: usize) -> usize;
    fn ss_copy_failed();
    fn ss_copy_end();
}

/// Detects what this processor supports. Until then copies are only slower.
pub fn prepare_copy() {
    WIDE.store(has_avx(), Relaxed);
}

fn has_avx() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const AVX: u32 = 1 << 28;
    const SSE_AND_AVX_STATE: u32 = 0b110;
    if x86_64::__cpuid(1).ecx & (OSXSAVE | AVX) != OSXSAVE | AVX {
        return false;
    }
    let state: u32;
    // SAFETY: OSXSAVE says that the instruction exists and that the kernel has enabled it.
    unsafe { asm!("xgetbv", in("ecx") 0, lateout("eax") state, lateout("edx") _, options(nomem, nostack)) };
    state & SSE_AND_AVX_STATE == SSE_AND_AVX_STATE
}

/// Copies `len` bytes. False: part of `to` or `from` cannot be touched; some bytes may have been copied. Without a
/// handler that calls [`after_failed_copy`] such a fault ends the process.
///
/// # Safety
/// The two ranges must not overlap. As far as `to` can be written to, it must be memory of the program that the program has
/// named, or our own.
#[inline]
#[must_use]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> bool {
    // SAFETY: by contract; a fault is caught by the signal handler.
    unsafe { ss_copy(to, from, len) == 0 }
}

/// Whether this instruction is one of [`copy`]'s.
#[inline]
pub fn is_in_copy(instruction: usize) -> bool {
    (ss_copy as *const () as usize..ss_copy_end as *const () as usize).contains(&instruction)
}

/// Where a faulting [`copy`] continues: it returns false.
pub fn after_failed_copy() -> usize {
    ss_copy_failed as *const () as usize
}

// rdi: to, rsi: from, rdx: length. Each piece is loaded before any byte of it is stored; a length between two sizes is two
// moves that overlap. The stack is not used, so that a fault anywhere can go on at ss_copy_failed.
global_asm!(
    ".text",
    ".p2align 6",
    ".globl ss_copy, ss_copy_failed, ss_copy_end",
    ".hidden ss_copy, ss_copy_failed, ss_copy_end",
    ".type ss_copy, @function",
    "ss_copy:",
    ".cfi_startproc",
    "cmp rdx, 16",
    "jb 20f",
    "cmp rdx, 32",
    "ja 30f",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + rdx - 16], xmm1",
    "xor eax, eax",
    "ret",
    // Less than 16 bytes.
    "20: cmp edx, 8",
    "jb 21f",
    "mov rax, [rsi]",
    "mov rcx, [rsi + rdx - 8]",
    "mov [rdi], rax",
    "mov [rdi + rdx - 8], rcx",
    "xor eax, eax",
    "ret",
    "21: cmp edx, 4",
    "jb 22f",
    "mov eax, [rsi]",
    "mov ecx, [rsi + rdx - 4]",
    "mov [rdi], eax",
    "mov [rdi + rdx - 4], ecx",
    "xor eax, eax",
    "ret",
    "22: cmp edx, 1",
    "ja 23f",
    "jb 24f",
    "movzx eax, byte ptr [rsi]",
    "mov [rdi], al",
    "xor eax, eax",
    "ret",
    "23: movzx eax, word ptr [rsi]",
    "movzx ecx, byte ptr [rsi + rdx - 1]",
    "mov [rdi], ax",
    "mov [rdi + rdx - 1], cl",
    "24: xor eax, eax",
    "ret",
    "30: cmp byte ptr [rip + {wide}], 0",
    "je 50f",
    // 33 bytes and more, 32 at a time.
    "cmp rdx, 64",
    "ja 31f",
    "vmovups ymm0, [rsi]",
    "vmovups ymm1, [rsi + rdx - 32]",
    "vmovups [rdi], ymm0",
    "vmovups [rdi + rdx - 32], ymm1",
    "vzeroupper",
    "xor eax, eax",
    "ret",
    "31: cmp rdx, 128",
    "ja 32f",
    "vmovups ymm0, [rsi]",
    "vmovups ymm1, [rsi + 32]",
    "vmovups ymm2, [rsi + rdx - 64]",
    "vmovups ymm3, [rsi + rdx - 32]",
    "vmovups [rdi], ymm0",
    "vmovups [rdi + 32], ymm1",
    "vmovups [rdi + rdx - 64], ymm2",
    "vmovups [rdi + rdx - 32], ymm3",
    "vzeroupper",
    "xor eax, eax",
    "ret",
    // More than 128 bytes: the first 32, so that stores are aligned from then on; 128 at a time; the last 128.
    "32: vmovups ymm8, [rsi]",
    "vmovups ymm4, [rsi + rdx - 128]",
    "vmovups ymm5, [rsi + rdx - 96]",
    "vmovups ymm6, [rsi + rdx - 64]",
    "vmovups ymm7, [rsi + rdx - 32]",
    "lea r10, [rdi + rdx]",
    "vmovups [rdi], ymm8",
    "mov rax, rdi",
    "and rax, 31",
    "sub rax, 32",
    "sub rdi, rax",
    "sub rsi, rax",
    "add rdx, rax",
    "cmp rdx, 128",
    "jbe 34f",
    ".p2align 5",
    "33: vmovups ymm0, [rsi]",
    "vmovups ymm1, [rsi + 32]",
    "vmovups ymm2, [rsi + 64]",
    "vmovups ymm3, [rsi + 96]",
    "vmovaps [rdi], ymm0",
    "vmovaps [rdi + 32], ymm1",
    "vmovaps [rdi + 64], ymm2",
    "vmovaps [rdi + 96], ymm3",
    "sub rsi, -128",
    "sub rdi, -128",
    "add rdx, -128",
    "cmp rdx, 128",
    "ja 33b",
    "34: vmovups [r10 - 128], ymm4",
    "vmovups [r10 - 96], ymm5",
    "vmovups [r10 - 64], ymm6",
    "vmovups [r10 - 32], ymm7",
    "vzeroupper",
    "xor eax, eax",
    "ret",
    // The same, 16 at a time.
    "50: cmp rdx, 64",
    "ja 51f",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + rdx - 32]",
    "movups xmm3, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + rdx - 32], xmm2",
    "movups [rdi + rdx - 16], xmm3",
    "xor eax, eax",
    "ret",
    "51: movups xmm8, [rsi]",
    "movups xmm4, [rsi + rdx - 64]",
    "movups xmm5, [rsi + rdx - 48]",
    "movups xmm6, [rsi + rdx - 32]",
    "movups xmm7, [rsi + rdx - 16]",
    "lea r10, [rdi + rdx]",
    "movups [rdi], xmm8",
    "mov rax, rdi",
    "and rax, 15",
    "sub rax, 16",
    "sub rdi, rax",
    "sub rsi, rax",
    "add rdx, rax",
    "cmp rdx, 64",
    "jbe 53f",
    ".p2align 5",
    "52: movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movaps [rdi], xmm0",
    "movaps [rdi + 16], xmm1",
    "movaps [rdi + 32], xmm2",
    "movaps [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rdx, 64",
    "cmp rdx, 64",
    "ja 52b",
    "53: movups [r10 - 64], xmm4",
    "movups [r10 - 48], xmm5",
    "movups [r10 - 32], xmm6",
    "movups [r10 - 16], xmm7",
    "xor eax, eax",
    "ret",
    "ss_copy_end:",
    // Outside of the range: nothing here touches the program's memory.
    "ss_copy_failed:",
    "cmp byte ptr [rip + {wide}], 0",
    "je 60f",
    "vzeroupper",
    "60: mov eax, 1",
    "ret",
    ".cfi_endproc",
    ".size ss_copy, . - ss_copy",
    wide = sym WIDE,
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every length and both alignments, with what surrounds the destination left alone.
    fn copies_exactly() {
        let from: Vec<u8> = (0..2000u32).map(|i| (i % 251) as u8 + 1).collect();
        for len in (0..700).chain([1000, 1023, 1024, 1025]) {
            for (into, out) in [(0, 0), (1, 0), (0, 7), (31, 33), (15, 16)] {
                let mut to = vec![0u8; 64 + len + 64];
                // SAFETY: both lie inside their vectors.
                assert!(unsafe { copy(to.as_mut_ptr().add(32 + into), from.as_ptr().add(out), len) });
                assert!(to[..32 + into].iter().chain(&to[32 + into + len..]).all(|b| *b == 0), "{len}: around it");
                assert_eq!(to[32 + into..32 + into + len], from[out..out + len], "{len} bytes");
            }
        }
    }

    #[test]
    fn both_kinds_of_moves_copy_exactly() {
        copies_exactly();
        prepare_copy();
        copies_exactly();
        WIDE.store(false, Relaxed);
        copies_exactly();
    }

    #[test]
    fn knows_its_own_instructions() {
        assert!(is_in_copy(ss_copy as *const () as usize));
        assert!(!is_in_copy(after_failed_copy()));
        assert!(!is_in_copy(knows_its_own_instructions as *const () as usize));
    }
}
