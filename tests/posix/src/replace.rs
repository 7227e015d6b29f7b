//! Replacing this program by a new image of itself, by each function of the exec family.

use std::ffi::CString;

use libc::{c_char, c_int};

use crate::peer::Preload;
use crate::spawn::{CArray, environment, program, puppet_args};
use crate::sys::errno::Errno;
use crate::sys::glibc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exec {
    Execve,
    Execv,
    Execvp,
    Execvpe,
    Execl,
    Execlp,
    Execle,
    Fexecve,
    Execveat,
    RawExecve,
    RawExecveat,
}

impl Exec {
    pub const ALL: [Exec; 11] = [
        Exec::Execve,
        Exec::Execv,
        Exec::Execvp,
        Exec::Execvpe,
        Exec::Execl,
        Exec::Execlp,
        Exec::Execle,
        Exec::Fexecve,
        Exec::Execveat,
        Exec::RawExecve,
        Exec::RawExecveat,
    ];
}

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// Executes a puppet with these arguments. The functions without an environment parameter get the same one through `environ`.
pub fn exec(how: Exec, args: &[String], preload: Preload) -> ! {
    let (path, argv, envp) = (program(), puppet_args(args), environment(preload));
    // SAFETY: a puppet has one thread, and the new array lives until the image is replaced.
    unsafe { environ = envp.as_ptr() };
    let ret = call(how, &path, &argv, &envp);
    panic!("{how:?} came back with {ret}: {:?}", Errno::last());
}

/// The list forms take the six arguments of a puppet that continues with a connection.
fn call(how: Exec, path: &CString, argv: &CArray, envp: &CArray) -> c_int {
    let (path, v, e, null) = (path.as_ptr(), argv.as_ptr(), envp.as_ptr(), std::ptr::null::<c_char>());
    let arg = |i| argv.get(i);
    // SAFETY: path, arguments and environment live until the image is replaced; arrays and lists
    // end with null.
    unsafe {
        match how {
            Exec::Execve => libc::execve(path, v, e),
            Exec::Execv => libc::execv(path, v),
            Exec::Execvp => libc::execvp(path, v),
            Exec::Execvpe => libc::execvpe(path, v, e),
            Exec::Execl => libc::execl(path, arg(0), arg(1), arg(2), arg(3), arg(4), arg(5), null),
            Exec::Execlp => libc::execlp(path, arg(0), arg(1), arg(2), arg(3), arg(4), arg(5), null),
            Exec::Execle => libc::execle(path, arg(0), arg(1), arg(2), arg(3), arg(4), arg(5), null, e),
            Exec::Fexecve => libc::fexecve(libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC), v, e),
            Exec::Execveat => glibc::execveat(libc::AT_FDCWD, path, v, e, 0),
            Exec::RawExecve => libc::syscall(libc::SYS_execve, path, v, e) as c_int,
            Exec::RawExecveat => libc::syscall(libc::SYS_execveat, libc::AT_FDCWD, path, v, e, 0) as c_int,
        }
    }
}
