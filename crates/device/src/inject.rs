//! Frames into the kernel.

use crate::error::{Error, Result, errno};
use crate::layout::{CHUNK, HEADROOM};
use libbpf_rs::libbpf_sys::{BPF_F_TEST_XDP_LIVE_FRAMES, bpf_prog_test_run_opts, bpf_test_run_opts};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What the kernel reserves behind and before a frame in its page, at most: `struct skb_shared_info`, and `struct xdp_page_head`.
const RESERVED: usize = 320 + 192;

/// Hands frames to the kernel as if the device had just received them.
pub struct Injector {
    program: OwnedFd,
    device: u32,
}

/// `struct xdp_md`
#[repr(C)]
#[derive(Default)]
struct Context {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_ifindex: u32,
    rx_queue_index: u32,
    egress_ifindex: u32,
}

impl Injector {
    /// The longest frame in bytes. A longer one, such as several segments that the kernel has joined, must be split.
    pub const LIMIT: usize = CHUNK - HEADROOM - RESERVED;

    pub(crate) fn new(program: OwnedFd, device: u32) -> Injector {
        Injector { program, device }
    }

    pub(crate) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Hands one frame over, from its Ethernet header on. It goes the way of received frames, checksums included, so these must be
    /// complete. Unless the device's program runs in the driver, the frame meets it again: remove its connection from
    /// [`crate::Taken`] first, or it comes back.
    ///
    /// Call it in the device's network namespace. It takes some 20 microseconds.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`]; [`Error::Call`] if the device is gone, or is not in the thread's network namespace.
    pub fn inject(&self, frame: &[u8]) -> Result<()> {
        if frame.len() > Self::LIMIT {
            return Err(Error::TooLong { length: frame.len(), limit: Self::LIMIT });
        }
        let length = frame.len() as u32;
        let context = Context { data_end: length, ingress_ifindex: self.device, ..Context::default() };
        let mut options = bpf_test_run_opts {
            sz: size_of::<bpf_test_run_opts>() as _,
            data_in: frame.as_ptr().cast(),
            data_size_in: length,
            ctx_in: std::ptr::from_ref(&context).cast(),
            ctx_size_in: size_of::<Context>() as u32,
            repeat: 1,
            flags: BPF_F_TEST_XDP_LIVE_FRAMES,
            ..Default::default()
        };
        // SAFETY: frame and context have the sizes that `options` says, and live during the call, which writes to neither.
        let outcome = unsafe { bpf_prog_test_run_opts(self.program.as_raw_fd(), &mut options) };
        let doing = "hand a frame to the kernel (call it in the device's network namespace)";
        errno(outcome).map_err(|source| Error::Call { doing, source })
    }
}
