//! The effect of one submission queue entry on connections and epoll sets.

use crate::fdtable::{self, Kind};
use crate::wait::{self, sets};
use crate::{arena, attach, drain, errno, life::begin, life::numbers, passed, user};
use core::ffi::{c_int, c_uint};
use libc::{EPOLL_CTL_ADD, epoll_event};
use sidestep_abi::Reason;

/// Operations (IORING_OP_*) that need special treatment.
mod op {
    pub const NOP: u8 = 0;
    pub const SENDMSG: u8 = 9;
    pub const CLOSE: u8 = 19;
    pub const FILES_UPDATE: u8 = 20;
    pub const EPOLL_CTL: u8 = 29;
    pub const SPLICE: u8 = 30;
    pub const TEE: u8 = 33;
    pub const SENDMSG_ZC: u8 = 48;
    /// Operations without a descriptor, or that do not use it: timers, cancelling, buffers, messages to rings, new sockets,
    /// waiting for processes and futexes.
    pub const WITHOUT: [u8; 15] = [0, 7, 11, 12, 14, 15, 25, 31, 32, 40, 45, 50, 51, 52, 53];
}

/// IOSQE_FIXED_FILE: the descriptor is an index into the registered ones, which were handled when registered ([`Fixed`]).
const FIXED_FILE: u8 = 1;
/// IOSQE_IO_DRAIN, IOSQE_IO_LINK, IOSQE_IO_HARDLINK: the order of entries matters.
const DRAIN: u8 = 1 << 1;
const LINKS: u8 = 1 << 2 | 1 << 3;
/// SPLICE_F_FD_IN_FIXED, of the splice operation.
const IN_FIXED: u32 = 1 << 31;

/// struct io_uring_sqe, without the fields that are not needed here.
#[derive(Clone, Copy)]
#[repr(C)]
struct Sqe {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: c_int,
    offset: u64,
    address: u64,
    len: u32,
    op_flags: u32,
    user_data: u64,
    buffer: u16,
    personality: u16,
    other_fd: c_int,
    rest: [u64; 2],
}

const _: () = assert!(size_of::<Sqe>() == 64);

/// What earlier entries mean for the next one.
#[derive(Default)]
pub struct Neighbours {
    /// The previous entry is linked to this one.
    linked: bool,
}

/// An entry that is about to be submitted.
pub struct Entry {
    place: *mut Sqe,
    sqe: Sqe,
}

impl Entry {
    /// # Safety
    /// `place` is an entry of a mapped ring.
    pub unsafe fn at(place: *mut u8) -> Entry {
        let place = place.cast::<Sqe>();
        // SAFETY: by contract; the kernel aligns entries.
        Entry { place, sqe: unsafe { place.read_volatile() } }
    }

    /// Prepares connections and sets, so that the kernel can do what the entry asks for.
    pub fn foresee(&self, neighbours: &mut Neighbours) {
        let linked = core::mem::replace(&mut neighbours.linked, self.sqe.flags & LINKS != 0);
        match self.sqe.opcode {
            op::EPOLL_CTL => self.change_interest(linked || self.sqe.flags & (LINKS | DRAIN) != 0),
            op::CLOSE => self.close(),
            op::FILES_UPDATE => Fixed { at: self.sqe.address as *const c_int, n: self.sqe.len }.leave_to_kernel(),
            code => {
                if matches!(code, op::SENDMSG | op::SENDMSG_ZC) {
                    passed::drain_to_kernel(self.sqe.address as *const libc::msghdr);
                }
                if matches!(code, op::SPLICE | op::TEE) && self.sqe.op_flags & IN_FIXED == 0 {
                    give_to_kernel(self.sqe.other_fd);
                }
                if !op::WITHOUT.contains(&code) && self.sqe.flags & FIXED_FILE == 0 {
                    give_to_kernel(self.sqe.fd);
                }
            }
        }
    }

    /// epoll_ctl(2): done here for sets that the library manages, unless the kernel must decide when to do it.
    fn change_interest(&self, in_order: bool) {
        let (set, fd, op) = (self.sqe.fd, self.sqe.offset as c_int, self.sqe.len as c_int);
        let Kind::Set(index) = fdtable::get(set) else {
            // The set was made out of our sight, so its waits cannot hear doorbells.
            if let Kind::Conn(conn) = fdtable::get(fd) {
                drain::both(arena::conn(conn), fd, Reason::Foreign);
            }
            return;
        };
        if self.sqe.buffer != 0 || self.sqe.other_fd != 0 {
            return; // the kernel refuses the entry
        }
        if in_order {
            leave_to_kernel(fd); // the library will not know that `fd` is in the set
            return leave_to_kernel(set);
        }
        let event = self.sqe.address as *const epoll_event;
        let native = || {
            // SAFETY: as the program has asked; the kernel checks what it is given.
            unsafe { crate::next::epoll_ctl(set, op, fd, event.cast_mut()) }
        };
        if wait::epoll::ctl(index, op, fd, event, native) == 0 {
            self.replace_by_nothing();
        } else if op != EPOLL_CTL_ADD || errno::get() != libc::EEXIST {
            // The kernel must refuse the entry as it would without us, so a registration set aside must not be in its way.
            wait::epoll::drop_set_aside(sets::get(index), fd);
        }
    }

    /// Replaces the entry by one that succeeds without doing anything.
    fn replace_by_nothing(&self) {
        let Sqe { flags, user_data, personality, .. } = self.sqe;
        let nothing = Sqe {
            opcode: op::NOP,
            flags,
            priority: 0,
            fd: -1,
            offset: 0,
            address: 0,
            len: 0,
            op_flags: 0,
            user_data,
            buffer: 0,
            personality,
            other_fd: 0,
            rest: [0; 2],
        };
        // SAFETY: an entry that the program has handed over, and the kernel has not taken yet.
        unsafe { self.place.write_volatile(nothing) };
    }

    /// The descriptor is about to be closed: what it stands for is followed no longer.
    fn close(&self) {
        let fd = self.sqe.fd;
        if self.sqe.flags & FIXED_FILE != 0 || self.sqe.other_fd != 0 {
            return; // a registered descriptor is closed
        }
        let kind = fdtable::get(fd);
        if kind == Kind::Own {
            // SAFETY: as above. To the program a descriptor of the library is not open.
            unsafe { (&raw mut (*self.place).fd).write_volatile(-1) };
            return;
        }
        leave_to_kernel(fd);
        match kind {
            // If the connection could not return to the kernel in time, it ends as by close().
            Kind::Conn(index) => {
                let c = arena::conn(index);
                if c.is_attached() {
                    attach::demote(index, c);
                }
                numbers::closing(fd).finish();
            }
            Kind::Set(_) | Kind::Ring(_) => numbers::closing(fd).finish(),
            _ => {}
        }
    }
}

/// Moves the connection or set of the descriptor to the kernel, alone and for good.
fn leave_to_kernel(fd: c_int) {
    match fdtable::get(fd) {
        Kind::Conn(index) => drain::to_kernel(arena::conn(index), fd, Reason::KernelFeature),
        Kind::Set(index) => wait::epoll::leave_to_kernel(index, Reason::KernelFeature),
        _ => {}
    }
}

/// As [`leave_to_kernel`], for entries by which the kernel reads.
fn give_to_kernel(fd: c_int) {
    match fdtable::get(fd) {
        Kind::Conn(index) => drain::before_native_receive(arena::conn(index), fd, Reason::KernelFeature),
        _ => leave_to_kernel(fd),
    }
}

/// Descriptors that the program registers with a ring. Later entries name them by index.
pub struct Fixed {
    pub at: *const c_int,
    pub n: c_uint,
}

impl Fixed {
    pub fn leave_to_kernel(&self) {
        let numbers = (0..self.n as usize).map_while(|i| user::read(self.at.wrapping_add(i)).ok());
        numbers.for_each(|fd| {
            errno::keep(|| give_to_kernel(fd));
            begin::named_again(fd); // nobody looks at an index again when the socket is connected
        });
    }
}
