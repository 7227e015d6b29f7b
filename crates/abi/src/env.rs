//! Names of the variables that carry settings into a preloaded process. One list: `sidestep run`, the library
//! and the configuration file all speak of these.

/// `off` switches the library off altogether.
pub const SWITCH: &str = "SIDESTEP";
/// Address of the broker: `@name` (abstract) or a path. Default: [`default_broker`].
pub const BROKER: &str = "SIDESTEP_BROKER";
/// `auto`, `off` or a number of microseconds.
pub const SPIN: &str = "SIDESTEP_SPIN";
/// `auto`, `BYTES` or `Nops`: how much traffic makes a connection worth an upgrade.
pub const UPGRADE_AFTER: &str = "SIDESTEP_UPGRADE_AFTER";
/// Bytes of one ring (one direction of one connection), a power of two.
pub const RING_SIZE: &str = "SIDESTEP_RING_SIZE";
/// File to which each process appends one JSON line when it exits.
pub const REPORT: &str = "SIDESTEP_REPORT";
/// Anything but empty: the library logs errors with the broker and links to stderr.
pub const LOG: &str = "SIDESTEP_LOG";
/// `follow` (looked at before the kernel gets it) or `refuse` (cannot be set up): io_uring through libc's syscall().
pub const IO_URING: &str = "SIDESTEP_IO_URING";
/// Test aid: a direction that has carried this many bytes by one carrier changes to the other.
pub const FLIP: &str = "SIDESTEP_FLIP";
/// Test aid. `sync`: an operation on an offered connection waits until the broker has decided.
pub const PAIRING: &str = "SIDESTEP_PAIRING";

/// By [`UPGRADE_AFTER`]'s default, `auto`, a connection is worth an upgrade after so many operations in quick succession.
///
/// These are four requests with their answers. A client that asks once or twice never pays for an upgrade.
pub const QUICK_OPS: u32 = 8;
/// After so many operations, however far apart, a connection is offered passively: the other end may gain by a ring.
pub const PASSIVE_OPS: u32 = 64;
/// Operations that are no further apart than this, in microseconds, are in quick succession, be they of one connection or of one
/// thread. So are all those of a busy thread.
/// Where messages are rarer, both ends sleep before each message, and its cost is the wake-up, by either carrier.
pub const QUICK_US: u64 = 250;
/// Default of [`RING_SIZE`], in bytes.
pub const DEFAULT_RING_SIZE: u32 = 256 * 1024;
/// Smallest and largest ring, in bytes.
pub const RING_SIZES: core::ops::RangeInclusive<u32> = 4096..=16 * 1024 * 1024;

/// Prefix of the abstract address of a user's broker; the decimal effective uid follows.
pub const BROKER_PREFIX: &str = "@sidestep-";
