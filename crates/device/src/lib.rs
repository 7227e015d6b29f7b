//! AF_XDP on a device: the frames of taken connections come to user space and all others stay with the kernel; frames go out by
//! the device, or into the kernel as if the device had received them. Also: which way packets take to a remote address.
//!
//! This crate does I/O only. It knows frames and the tuples of connections, and no TCP.
//!
//! ```text
//!   network ──> device ── program ── is the tuple in `taken`? ── no ──> kernel
//!                  ^                    │ yes                             ^
//!                  │                    │ (by way of the inlet)           │
//!                  │                    v                                 │
//!               Sender               Receiver                          Injector
//! ```
//!
//! # Where the program runs
//!
//! In the driver, by native XDP, if it has that. Otherwise by tc: only XDP can deliver to AF_XDP sockets, but generic XDP makes the
//! kernel copy each packet of any TCP connection, since its buffers are shared with the sender or in pieces. A program of tc takes them
//! as they are, and redirects those of taken connections to the inlet (src/inlet.rs), a device of our own whose generic XDP program
//! delivers all that comes. Sending is the same in all cases.
//!
//! # Two processes
//!
//! All state is in file descriptors ([`Parts`]) that can be passed to another process. Frames of the UMEM are never listed in a
//! process's own memory: where each frame is follows from the rings alone (src/takeover.rs). So a process that is killed at any
//! instruction loses none, and the next one goes on with the same sockets.
//!
//! # Requirements
//!
//! Linux 6.6: AF_XDP with frames of several chunks (6.6), rings that can be mapped after bind (6.4). To open a device takes CAP_BPF,
//! CAP_NET_ADMIN and CAP_NET_RAW, and CAP_IPC_LOCK or a limit RLIMIT_MEMLOCK above the size of all UMEMs. A process that got the
//! descriptors needs no capability, for frames, [`Taken`] and [`Injector`] alike; only [`path::refresh`], and [`path::resolve`] of
//! an unknown neighbour, take CAP_NET_ADMIN. An inlet is made by /dev/net/tun.
//!
//! # Why rings of our own
//!
//! libxdp and the crates `xsk-rs`, `xdp` and `xdpilone` make the memory and the rings in the process that opens the socket, and list
//! free frames there: none can map the rings of a socket that another process has made. So only the system calls come from a
//! library (rustix), as programs and maps do (libbpf-rs).

mod attach;
mod claim;
mod device;
pub mod error;
mod ethtool;
mod grace;
mod ifreq;
mod inject;
mod inlet;
mod layout;
mod parts;
pub mod path;
mod port;
pub mod probe;
mod program;
mod queue;
mod receive;
mod ring;
mod rings;
mod send;
mod taken;
mod takeover;
mod tuple;
mod umem;
pub mod watch;

pub use attach::Hook;
pub use claim::end_claim;
pub use device::{Device, Mode, Options};
pub use error::{Error, Result};
pub use grace::wait_for_programs;
pub use inject::Injector;
pub use layout::CHUNK;
pub use parts::Parts;
pub use probe::probe;
pub use queue::Queue;
pub use receive::{Batch, Frame, Receiver};
pub use rustix::net::xdp::XdpStatistics as Statistics;
pub use send::{Outgoing, Sender};
pub use taken::Taken;
pub use tuple::Tuple;
