//! The options of TCP_REPAIR, with their types.

use crate::kernel::{CallError, SocketOption, named};
use crate::options::{self, REPAIR_OFF, REPAIR_OFF_QUIETLY, REPAIR_ON};
use crate::state::{Scales, TimestampClock, Window};
use rustix::fd::BorrowedFd;
use rustix::time::{ClockId, clock_gettime};

/// A queue that the other options refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    None = 0,
    Receive = 1,
    Send = 2,
}

/// Turns repair mode on. From then on the kernel ignores conflicts of bind(2) and listen(2), too: the caller sets SO_REUSEADDR in the
/// next call, which ends that. EPERM: the socket listens.
pub(crate) fn turn_on(fd: BorrowedFd) -> Result<(), CallError> {
    options::TCP_REPAIR.set(fd, REPAIR_ON)
}

/// Whether the socket is in repair mode.
pub(crate) fn is_on(fd: BorrowedFd) -> Result<bool, CallError> {
    Ok(options::TCP_REPAIR.get(fd)? != 0)
}

/// Turns repair mode off. The kernel sends a window probe, which makes the peer say what it has and what it accepts. Clears
/// SO_REUSEADDR.
pub(crate) fn turn_off(fd: BorrowedFd) -> Result<(), CallError> {
    options::TCP_REPAIR.set(fd, REPAIR_OFF)
}

/// Turns repair mode off without a packet. Clears SO_REUSEADDR.
pub(crate) fn turn_off_quietly(fd: BorrowedFd) -> Result<(), CallError> {
    options::TCP_REPAIR.set(fd, REPAIR_OFF_QUIETLY)
}

/// Selects a queue. While the send queue is selected the kernel marks bytes as sent that it does not send: select it for a
/// moment only.
pub(crate) fn select(fd: BorrowedFd, queue: Queue) -> Result<(), CallError> {
    options::TCP_REPAIR_QUEUE.set(fd, queue as i32)
}

/// The sequence number after the last byte of the queue.
pub(crate) fn end_of_queue(fd: BorrowedFd, queue: Queue) -> Result<u32, CallError> {
    select(fd, queue)?;
    options::TCP_QUEUE_SEQ.get(fd)
}

/// Sets the sequence number of the first byte of the queue. The socket must be closed.
pub(crate) fn set_start_of_queue(fd: BorrowedFd, queue: Queue, seq: u32) -> Result<(), CallError> {
    select(fd, queue)?;
    options::TCP_QUEUE_SEQ.set(fd, seq)
}

pub(crate) fn window(fd: BorrowedFd) -> Result<Window, CallError> {
    let [snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup] = options::TCP_REPAIR_WINDOW.get(fd)?;
    Ok(Window { snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup })
}

pub(crate) fn set_window(fd: BorrowedFd, window: &Window) -> Result<(), CallError> {
    let Window { snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup } = *window;
    options::TCP_REPAIR_WINDOW.set(fd, [snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup])
}

/// What TCP_MAXSEG accepts. A peer may announce any other size.
pub(crate) const SMALLEST_MSS: u32 = 88;
const LARGEST_MSS: u32 = 32767;

/// Makes connect(2) compute the size of segments from the peer's MSS. Without it, connect(2) assumes the smallest for good.
pub(crate) fn expect_mss(fd: BorrowedFd, mss: u32) -> Result<(), CallError> {
    options::TCP_MAXSEG.set(fd, mss.min(LARGEST_MSS))
}

/// Forgets [`expect_mss`].
pub(crate) fn expect_no_mss(fd: BorrowedFd) -> Result<(), CallError> {
    options::TCP_MAXSEG.set(fd, 0)
}

/// Kinds of TCP options (netinet/tcp.h).
const TCPOPT_MAXSEG: u32 = 2;
const TCPOPT_WINDOW: u32 = 3;
const TCPOPT_SACK_PERMITTED: u32 = 4;
const TCPOPT_TIMESTAMP: u32 = 8;

/// Sets what the handshake had agreed on.
pub(crate) fn set_negotiated(
    fd: BorrowedFd,
    mss: u32,
    scales: Option<Scales>,
    sack: bool,
    timestamps: bool,
) -> Result<(), CallError> {
    // Without this option the kernel keeps the scale that connect(2) has chosen, and announces windows in its units. Scales of
    // zero mean the same on the wire as no scales.
    let Scales { send, receive } = scales.unwrap_or(Scales { send: 0, receive: 0 });
    let shifts = u32::from(receive) << 16 | u32::from(send);
    set_tcp_options(fd, [[TCPOPT_MAXSEG, mss], [TCPOPT_WINDOW, shifts]])?;
    if sack {
        set_tcp_options(fd, [[TCPOPT_SACK_PERMITTED, 0]])?;
    }
    if timestamps {
        set_tcp_options(fd, [[TCPOPT_TIMESTAMP, 0]])?;
    }
    Ok(())
}

fn set_tcp_options<const N: usize>(fd: BorrowedFd, pairs: [[u32; 2]; N]) -> Result<(), CallError> {
    const { assert!(N > 0) };
    SocketOption::new(libc::IPPROTO_TCP, libc::TCP_REPAIR_OPTIONS, "TCP_REPAIR_OPTIONS").set(fd, pairs)
}

/// Reads the clock of the timestamps option.
pub(crate) fn timestamp_clock(fd: BorrowedFd) -> Result<TimestampClock, CallError> {
    // The earlier time gives the larger offset, which is never behind the kernel's. The kernel clears the value's lowest bit.
    let now = now_ms();
    let value = options::TCP_TIMESTAMP.get(fd)? | 1;
    Ok(TimestampClock { offset: value.wrapping_sub(now) })
}

/// Sets the clock so that no later segment has an earlier timestamp than one that was sent with `clock` before.
pub(crate) fn set_timestamp_clock(fd: BorrowedFd, clock: TimestampClock) -> Result<(), CallError> {
    options::TCP_TIMESTAMP.set(fd, even_after(now_ms().wrapping_add(clock.offset)))
}

/// The kernel takes the lowest bit for the clock's unit: 0 means milliseconds.
fn even_after(value: u32) -> u32 {
    value.wrapping_add(2) & !1
}

fn now_ms() -> u32 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec.wrapping_mul(1000).wrapping_add(now.tv_nsec / 1_000_000)) as u32
}

/// Closes the socket, whose descriptor stays. In repair mode no packet is sent; otherwise the peer receives a reset.
pub(crate) fn disconnect(fd: BorrowedFd) -> Result<(), CallError> {
    named("connect(AF_UNSPEC)", rustix::net::connect_unspec(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_timestamp_is_even_and_later() {
        for value in [0, 1, 2, 3, 1000, u32::MAX - 2, u32::MAX - 1, u32::MAX] {
            let restored = even_after(value);
            assert_eq!(restored & 1, 0, "{value}");
            assert!((1..=2).contains(&restored.wrapping_sub(value)), "{value} -> {restored}");
        }
    }
}
