//! Descriptors that a message hands to another process (SCM_RIGHTS).

use crate::drain::Batch;
use crate::fdtable::{self, Kind};
use crate::wait::epoll::shared;
use crate::{arena, errno, host, user};
use core::ffi::c_int;
use libc::{cmsghdr, msghdr};
use sidestep_abi::Reason;

/// Moves the connections and epoll sets in the message to the kernel: the receiver asks the kernel. A message that cannot be read is
/// ignored here, since the kernel refuses it.
#[inline]
pub fn drain_to_kernel(msg: *const msghdr) {
    if !fdtable::follows_any() {
        return;
    }
    let Ok(m) = user::read(msg) else { return };
    let len = host::length(m.msg_controllen);
    if len > 0 {
        drain_those_in(m.msg_control.cast(), len);
    }
}

#[cold]
fn drain_those_in(control: *const u8, len: usize) {
    // CMSG_FIRSTHDR and CMSG_NXTHDR of cmsg(3): headers are aligned to words, and end where no whole header fits.
    const WORD: usize = size_of::<usize>();
    let (batch, mut at) = (Batch::begin(), 0);
    while len - at >= size_of::<cmsghdr>() {
        let Ok(c) = user::read(control.wrapping_add(at).cast::<cmsghdr>()) else { return };
        let size = host::length(c.cmsg_len);
        if size < size_of::<cmsghdr>() || size > len - at {
            return;
        }
        if c.cmsg_level == libc::SOL_SOCKET && c.cmsg_type == libc::SCM_RIGHTS {
            let first = control.wrapping_add(at + size_of::<cmsghdr>()).cast::<c_int>();
            (0..(size - size_of::<cmsghdr>()) / size_of::<c_int>())
                .for_each(|i| drain_one(&batch, first.wrapping_add(i)));
        }
        at = (at + size.next_multiple_of(WORD)).min(len);
    }
}

fn drain_one(batch: &Batch, number: *const c_int) {
    let Ok(passed) = user::read(number) else { return };
    errno::keep(|| match fdtable::get(passed) {
        Kind::Conn(index) => batch.hand_over(arena::conn(index), passed, Reason::Passed),
        Kind::Set(index) => shared::hand_over(index, batch, Reason::Passed),
        _ => {}
    });
}
