//! A descriptor begins to stand for a connection.

use super::hasty;
use super::numbers::end_orphans;
use crate::fdtable::{self, Kind};
use crate::record::flag;
use crate::stream::late;
use crate::uring::table;
use crate::{arena, blocked, counters, drain, errno, fork, lineage, settings, thread, wait};
use core::sync::atomic::Ordering::*;
use sidestep_abi::Reason;
use sidestep_ring::page;
use sidestep_sys::{fd as fdsys, tcp};

/// accept() has returned `fd`: follows it if it is a TCP socket.
pub fn accepted(fd: i32) {
    open(fd, false);
}

/// connect() has begun on `fd`: follows it if it is a TCP socket, and not followed already.
pub fn connecting(fd: i32) {
    open(fd, fdtable::get(fd) == Kind::Copied);
}

/// `is_copied`: the socket has another descriptor, which is not followed.
fn open(fd: i32, is_copied: bool) {
    let vacant = matches!(fdtable::get(fd), Kind::Other | Kind::Copied | Kind::Closing);
    if settings::active() && !thread::in_vfork() && vacant {
        errno::keep(|| {
            begin(fd);
            if let Kind::Conn(index) = fdtable::get(fd)
                && is_copied
            {
                drain::to_kernel(arena::conn(index), fd, Reason::Dup);
            }
        });
    }
}

fn begin(fd: i32) {
    if fd as usize >= fdtable::MAX_FD || !tcp::is_tcp(fd) || lineage::is_borrowed() {
        return;
    }
    fork::notice(); // the record must not get the parent's bit
    // A process without a place cannot hold a record.
    let Some(me) = arena::me() else { return };
    let Some(index) = arena::alloc() else { return };
    let open_flags = fdsys::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0) as i32;
    let flags = if open_flags & libc::O_NONBLOCK != 0 { flag::NONBLOCK } else { 0 };
    sidestep_sys::clock::calibrate();
    end_orphans();
    arena::conn(index).reset(flags, 1 << me);
    if open_flags & libc::O_ASYNC != 0 {
        arena::conn(index).keep();
    }
    let local = arena::local(index);
    local.refs.store(1, Relaxed);
    local.fd.store(fd as u32, Relaxed);
    blocked::is_any(index); // removes entries of threads that were cancelled while blocked on the record's last connection
    local.orphan.store(0, Relaxed);
    local.generation.store(arena::conn(index).phase.generation(), Relaxed);
    local.left_in.store(0, Relaxed);
    local.held_until.store(0, Relaxed);
    if hasty::is_any() {
        arena::conn(index).keep_on_kernel(Reason::SocketOption);
    }
    late::forget(index);
    page::count_seen(counters::page());
    fdtable::set(fd, Kind::Conn(index));
}

/// `new` is now another descriptor of what `old` stands for.
pub fn duplicated(old: i32, new: i32) {
    match fdtable::get(old) {
        Kind::Conn(index) => {
            if fdtable::set(new, Kind::Conn(index)) {
                arena::local(index).refs.fetch_add(1, AcqRel);
            } else {
                errno::keep(|| drain::to_kernel(arena::conn(index), old, Reason::Dup)); // the new descriptor cannot be followed
            }
        }
        Kind::Set(index) => {
            let refs = &wait::sets::get(index).refs;
            refs.fetch_add(1, AcqRel);
            if !fdtable::set(new, Kind::Set(index)) {
                refs.fetch_sub(1, AcqRel);
                errno::keep(|| wait::epoll::shared::hand_over(index, &drain::Batch::begin(), Reason::Dup)); // waits by that number would get our tags
            }
        }
        Kind::Ring(index) => {
            table::get(index).hold();
            fdtable::set(new, Kind::Ring(index));
        }
        _ if named_again(old) => {
            fdtable::set(new, Kind::Copied);
        }
        _ => {}
    }
}

/// The socket has another name: a descriptor, or an index in an io_uring. If it is not connected yet, the connection that the program
/// makes by `fd` is to stay on the kernel, which serves both names. False: it is no such socket.
pub fn named_again(fd: i32) -> bool {
    let is_unconnected = fd >= 0
        && matches!(fdtable::get(fd), Kind::Other | Kind::Copied)
        && settings::active()
        && errno::keep(|| tcp::is_unconnected(fd));
    if is_unconnected {
        fdtable::set(fd, Kind::Copied);
    }
    is_unconnected
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A descriptor that no test has.
    const FD: i32 = 4002;

    #[test]
    fn a_set_whose_new_number_cannot_be_followed_is_left_to_the_kernel() {
        let index = wait::sets::create(-1).expect("a record");
        let s = wait::sets::get(index);
        assert!(fdtable::set(FD, Kind::Set(index)));
        duplicated(FD, fdtable::MAX_FD as i32);
        fdtable::set(FD, Kind::Other);
        assert!(s.is_given_back.load(Acquire), "its waits would get data that is not the program's");
        assert_eq!(s.refs.load(Acquire), 1, "the close of that number is not seen");
        s.refs.store(0, Release);
    }
}
