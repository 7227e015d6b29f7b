//! Exports that are jumps: variadic calls (`execl` and its kin collect their arguments in the C shim), and vfork, which must
//! return twice.

use sidestep_sys::{jump_body, vfork_body};

unsafe extern "C" {
    fn ss_execl();
    fn ss_execlp();
    fn ss_execle();
    fn ss_dprintf();
    fn ss_dprintf_chk();
}

macro_rules! jumps {
    ($($name:ident => $target:ident;)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            jump_body!($target)
        }
    )*};
}

jumps! {
    execl => ss_execl;
    execlp => ss_execlp;
    execle => ss_execle;
    dprintf => ss_dprintf;
    __dprintf_chk => ss_dprintf_chk;
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn vfork() -> libc::pid_t {
    vfork_body!(crate::fork::vfork_begins, crate::fork::vfork_ends)
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn __vfork() -> libc::pid_t {
    jump_body!(vfork)
}
