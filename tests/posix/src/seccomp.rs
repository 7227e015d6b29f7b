//! A seccomp filter that fails chosen system calls with EPERM, as sandboxes do.

use libc::{c_long, sock_filter, sock_fprog};

use crate::sys::errno::outcome;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Makes these calls fail with EPERM, in this process and its later children.
pub fn forbid(calls: &[c_long]) {
    let step = |code, jt, k| sock_filter { code, jt, jf: 0, k };
    // The system call's number is the first word of the filter's input.
    let mut program = vec![step(LOAD, 0, 0)];
    for (i, &call) in calls.iter().enumerate() {
        // On a match, jumps over the remaining comparisons and the "allow" to the "deny".
        program.push(step(EQUAL, (calls.len() - i) as u8, call as u32));
    }
    program.push(step(RETURN, 0, libc::SECCOMP_RET_ALLOW));
    program.push(step(RETURN, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program is a live array of the length that it is said to have.
    unsafe {
        outcome(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)).expect("PR_SET_NO_NEW_PRIVS");
        outcome(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter)).expect("PR_SET_SECCOMP");
    }
}
