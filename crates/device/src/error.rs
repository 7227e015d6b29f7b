//! The error type.

use rustix::io::Errno;
use std::net::SocketAddr;

/// A result with an [`Error`] of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What failed, on which device, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no device of this name in the thread's network namespace.
    #[error("no device {device} in this network namespace")]
    NoDevice {
        /// Its name.
        device: String,
        /// The kernel's error.
        source: Errno,
    },
    /// Another XDP program is attached to the device.
    #[error("device {device} has an XDP program already, with id {id}: detach it, or leave this device to it")]
    ForeignProgram {
        /// Name of the device.
        device: String,
        /// The program's id, as bpftool-prog(8) shows it.
        id: u32,
    },
    /// The kernel did not load the programs.
    #[error("load the device's programs (this takes CAP_BPF and CAP_NET_ADMIN)")]
    Load(#[source] libbpf_rs::Error),
    /// The device of the stack's own, to which frames are diverted, was not made.
    #[error("{doing}")]
    Inlet {
        /// The step.
        doing: &'static str,
        /// The kernel's error.
        source: Errno,
    },
    /// The kernel did not attach the program.
    #[error("attach the program to device {device} by {mode}")]
    Attach {
        /// Name of the device.
        device: String,
        /// The name of the place.
        mode: &'static str,
        /// The kernel's error.
        source: Errno,
    },
    /// An option is out of its range.
    #[error("{0} must be a power of two from 64 to 32768")]
    Frames(&'static str),
    /// A step of making or finding a queue's AF_XDP socket failed.
    #[error("queue {queue} of device {device}: {doing}")]
    Queue {
        /// Name of the device.
        device: String,
        /// Number of the queue.
        queue: u32,
        /// The step.
        doing: &'static str,
        /// The kernel's error.
        source: Errno,
    },
    /// Another process still drives the queue.
    #[error("another process drives this queue: end it, and wait for its end, before its queues are taken over")]
    InUse,
    /// Descriptors that were passed are not those of a device.
    #[error("these descriptors are not a device's: {0}")]
    NotADevice(&'static str),
    /// A frame could not be sent since the device is down or gone. Submitted frames wait until it is up.
    #[error("the device cannot send: give its connections back")]
    CannotSend(#[source] Errno),
    /// The kernel has refused another call about frames.
    #[error("{doing}")]
    Call {
        /// What was being done.
        doing: &'static str,
        /// The kernel's error.
        source: Errno,
    },
    /// A frame is too long to be injected.
    #[error("a frame of {length} bytes is too long to be injected: split it into frames of at most {limit} bytes")]
    TooLong {
        /// Its length in bytes.
        length: usize,
        /// The longest that can be injected, in bytes.
        limit: usize,
    },
    /// The table of taken connections is full.
    #[error("{remote} was not taken: the table of taken connections is full")]
    Full {
        /// The connection's remote end.
        remote: SocketAddr,
    },
}

/// Adds what was being done to an error of the kernel.
pub(crate) trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T>;
}

impl<T> Doing<T> for rustix::io::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T> {
        self.map_err(|source| Error::Call { doing, source })
    }
}

/// The outcome of a call of libbpf.
pub(crate) fn errno(outcome: i32) -> rustix::io::Result<()> {
    if outcome < 0 { Err(Errno::from_raw_os_error(outcome.saturating_neg())) } else { Ok(()) }
}
