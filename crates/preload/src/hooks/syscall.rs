//! The libc function syscall(), through which some programs make calls that concern us. Each goes to the hook of the same name,
//! or to a hook of its own where the kernel's call differs from libc's. All others go to libc unchanged.

use super::{fds, files, msg, names, poll, processes, rw, signals, sockets, time};
use crate::{exec, next, thread, uring};
use core::ffi::{c_int, c_long, c_ulong, c_void};
use libc::fd_set;

fn at<T>(word: usize) -> *mut T {
    word as *mut T
}

pub unsafe fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    // SAFETY: the program's own call.
    let native = || unsafe { next::syscall(number, a, b, c, d, e, f) };
    let fd = a as c_int;
    // SAFETY: each arm is the program's own call under its libc name, with the same arguments.
    unsafe {
        match number {
            libc::SYS_read => rw::read(fd, at(b), c) as c_long,
            libc::SYS_write => rw::write(fd, at::<c_void>(b), c) as c_long,
            libc::SYS_readv => rw::readv(fd, at(b), number_of(c)) as c_long,
            libc::SYS_writev => rw::writev(fd, at(b), number_of(c)) as c_long,
            // The position comes in two words; on a 64-bit machine the first has all of it.
            libc::SYS_preadv2 => {
                rw::receive_at(fd, (at(b), number_of(c)), d as i64, f as c_int, || native() as isize) as c_long
            }
            libc::SYS_pwritev2 => {
                rw::send_at(fd, (at(b), number_of(c)), d as i64, f as c_int, || native() as isize) as c_long
            }
            libc::SYS_recvfrom => rw::recvfrom(fd, at(b), c, d as c_int, at(e), at(f)) as c_long,
            libc::SYS_sendto => rw::sendto(fd, at::<c_void>(b), c, d as c_int, at(e), f as u32) as c_long,
            libc::SYS_recvmsg => msg::recvmsg(fd, at(b), c as c_int) as c_long,
            libc::SYS_sendmsg => msg::sendmsg(fd, at(b), c as c_int) as c_long,
            libc::SYS_recvmmsg => c_long::from(msg::recvmmsg(fd, at(b), c as u32, d as c_int, at(e))),
            libc::SYS_sendmmsg => c_long::from(msg::sendmmsg(fd, at(b), c as u32, d as c_int)),
            libc::SYS_sendfile => files::sendfile(fd, b as c_int, at(c), d) as c_long,
            libc::SYS_splice => files::splice(fd, at(b), c as c_int, at(d), e, f as u32) as c_long,
            libc::SYS_io_submit => {
                files::submitted(b as c_long, at(c));
                native()
            }

            libc::SYS_close => c_long::from(fds::close(fd)),
            libc::SYS_close_range => c_long::from(fds::close_range(a as u32, b as u32, c as c_int)),
            libc::SYS_dup => c_long::from(fds::dup(fd)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => c_long::from(fds::dup2(fd, b as c_int)),
            libc::SYS_dup3 => c_long::from(fds::dup3(fd, b as c_int, c as c_int)),
            libc::SYS_fcntl => c_long::from(fds::fcntl(fd, b as c_int, c)),
            libc::SYS_ioctl => c_long::from(fds::ioctl(fd, b as c_ulong, c)),

            libc::SYS_connect => c_long::from(sockets::connect(fd, at(b), c as u32)),
            libc::SYS_listen => c_long::from(sockets::listen(fd, b as c_int)),
            libc::SYS_accept => c_long::from(sockets::accept(fd, at(b), at(c))),
            libc::SYS_accept4 => c_long::from(sockets::accept4(fd, at(b), at(c), d as c_int)),
            libc::SYS_shutdown => c_long::from(sockets::shutdown(fd, b as c_int)),
            libc::SYS_getsockname => c_long::from(names::getsockname(fd, at(b), at(c))),
            libc::SYS_getpeername => c_long::from(names::getpeername(fd, at(b), at(c))),
            libc::SYS_getsockopt => c_long::from(sockets::getsockopt(fd, b as c_int, c as c_int, at(d), at(e))),
            libc::SYS_setsockopt => c_long::from(sockets::setsockopt(fd, b as c_int, c as c_int, at(d), e as u32)),

            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => c_long::from(poll::poll(at(a), b as u32 as c_ulong, c as c_int)),
            libc::SYS_ppoll => poll::raw_ppoll(at(a), b as u32 as c_ulong, at(c), at(d), e, native),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => poll::raw_select(fd, [b, c, d].map(at::<fd_set>), at(e), native),
            libc::SYS_pselect6 => poll::raw_pselect(fd, [b, c, d].map(at::<fd_set>), at(e), at(f), native),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => c_long::from(poll::epoll_create(a as c_int)),
            libc::SYS_epoll_create1 => c_long::from(poll::epoll_create1(a as c_int)),
            libc::SYS_epoll_ctl => c_long::from(poll::epoll_ctl(fd, b as c_int, c as c_int, at(d))),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => c_long::from(poll::epoll_wait(fd, at(b), c as c_int, d as c_int)),
            libc::SYS_epoll_pwait => {
                let ns = || Ok(time::from_ms(d as c_int));
                poll::raw_epoll_pwait(fd, (at(b), c as c_int), ns, (at(e), f), native)
            }
            libc::SYS_epoll_pwait2 => {
                let ns = || time::from_spec(at(d));
                poll::raw_epoll_pwait(fd, (at(b), c as c_int), ns, (at(e), f), native)
            }

            libc::SYS_rt_sigaction => signals::raw(fd, at(b), at(c), d),
            libc::SYS_rt_sigprocmask => {
                thread::parts().faults.restore();
                let result = native();
                thread::parts().faults.invalidate();
                result
            }

            #[cfg(target_arch = "x86_64")]
            libc::SYS_fork => processes::raw_fork(native),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_vfork => processes::raw_clone((libc::CLONE_VM | libc::CLONE_VFORK) as u64, 0, native),
            libc::SYS_clone => processes::raw_clone(a as u64, b, native),
            libc::SYS_clone3 => processes::raw_clone3(at(a), b, native),
            libc::SYS_execve | libc::SYS_execveat => processes::execute(native),
            libc::SYS_exit => {
                processes::leave_thread();
                native()
            }
            libc::SYS_exit_group => {
                processes::leave();
                native()
            }
            libc::SYS_setrlimit => {
                let result = native();
                processes::limited(fd, true);
                result
            }
            libc::SYS_prlimit64 => {
                let result = native();
                processes::limited(b as c_int, c != 0);
                result
            }
            libc::SYS_unshare => c_long::from(processes::unshare(fd)),
            libc::SYS_setns => c_long::from(processes::setns(fd, b as c_int)),
            libc::SYS_prctl => {
                c_long::from(processes::prctl(fd, b as c_ulong, c as c_ulong, d as c_ulong, e as c_ulong))
            }
            libc::SYS_seccomp if processes::CONFINES.contains(&(a as u32)) => {
                exec::confine();
                native()
            }
            libc::SYS_io_uring_setup => uring::setup(at(b), native),
            libc::SYS_io_uring_enter => {
                uring::entering(fd, b as u32, d as u32);
                native()
            }
            libc::SYS_io_uring_register => {
                uring::registering(b as u32, c, d as u32);
                native()
            }
            _ => native(),
        }
    }
}

/// A number of vectors: the kernel looks at the lower half of the word only.
fn number_of(vectors: usize) -> c_int {
    vectors as c_int
}
