//! A program that holds the mutex of its own epoll instance, the lock of a file that it shares, or that of its socket. It makes
//! the kernel access memory that is not there yet, whose pages it supplies itself (userfaultfd; a FUSE file does the same). Needs
//! root.

#![allow(unsafe_code)] // memory that faults, and calls that access it

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags};
use std::net::TcpStream;
use std::thread::JoinHandle;

const PAGE: usize = 4096;

/// As in linux/userfaultfd.h.
const UFFD_API: u64 = 0xAA;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
const MODE_MISSING: u64 = 1;

/// Holds the mutex or lock until it is dropped.
pub struct Held {
    faults: OwnedFd,
    page: usize,
    reader: Option<JoinHandle<()>>,
}

impl Held {
    /// Holds the mutex of an epoll instance.
    pub fn new(set: &OwnedFd) -> Held {
        let ready = eventfd(1, EventfdFlags::CLOEXEC).expect("eventfd");
        epoll::add(set, &ready, EventData::new_u64(0), EventFlags::IN).expect("an epoll instance");
        let set = set.try_clone().expect("dup");
        Held::by(move |page| {
            // SAFETY: room for one event at `page`, which stays mapped until this thread has ended.
            unsafe { libc::epoll_wait(set.as_raw_fd(), page as *mut libc::epoll_event, 1, -1) };
            drop(ready);
        })
    }

    /// Holds the lock of a file in memory, which a writer has during its write.
    pub fn file(file: &OwnedFd) -> Held {
        let file = file.try_clone().expect("dup");
        Held::by(move |page| {
            // SAFETY: one byte at `page`, which stays mapped until this thread has ended.
            unsafe { libc::pwrite(file.as_raw_fd(), page as *const libc::c_void, 1, 0) };
        })
    }

    /// Holds the lock of a socket that has room in its send buffer. In the end it sends a byte, which is 0.
    pub fn socket(socket: &TcpStream) -> Held {
        let socket = socket.try_clone().expect("dup");
        Held::by(move |page| {
            // SAFETY: one byte at `page`, which stays mapped until this thread has ended.
            unsafe { libc::send(socket.as_raw_fd(), page as *const libc::c_void, 1, libc::MSG_NOSIGNAL) };
        })
    }

    fn by(call: impl FnOnce(usize) + Send + 'static) -> Held {
        let (faults, page) = page_of_ours();
        let reader = std::thread::spawn(move || call(page));
        let held = Held { faults, page, reader: Some(reader) };
        let mut fault = [PollFd::new(&held.faults, PollFlags::IN)];
        let limit = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(poll(&mut fault, Some(&limit)), Ok(1), "the reader asks for its page, with the mutex in its hands");
        held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        control(&self.faults, UFFDIO_ZEROPAGE, &mut [self.page as u64, PAGE as u64, 0, 0]);
        self.reader.take().map(JoinHandle::join);
        // SAFETY: our own mapping; the reader has ended.
        unsafe { rustix::mm::munmap(self.page as *mut _, PAGE) }.expect("munmap");
    }
}

/// A page that is not there, and the descriptor that reports an access to it.
fn page_of_ours() -> (OwnedFd, usize) {
    // SAFETY: no memory involved.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
    assert!(fd >= 0, "userfaultfd for faults of the kernel: this test needs root");
    // SAFETY: a descriptor that the kernel has just made for us.
    let faults = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    control(&faults, UFFDIO_API, &mut [UFFD_API, 0, 0]);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let page =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), PAGE, protection, MapFlags::PRIVATE) }.expect("mmap");
    control(&faults, UFFDIO_REGISTER, &mut [page as u64, PAGE as u64, MODE_MISSING, 0]);
    (faults, page as usize)
}

fn control(faults: &OwnedFd, request: libc::c_ulong, words: &mut [u64]) {
    // SAFETY: the request's size is encoded in it, and is that of `words`.
    let done = unsafe { libc::ioctl(faults.as_fd().as_raw_fd(), request, words.as_mut_ptr()) };
    assert_eq!(done, 0, "userfaultfd: {}", std::io::Error::last_os_error());
}
