//! Back into the kernel, on the same descriptor.

use crate::buffers::{Buffers, Grown};
use crate::guard;
use crate::intrusion::{end_intruder, end_listening, expel};
use crate::kernel::{CallError, named};
use crate::names::Names;
use crate::options;
use crate::queues;
use crate::repair::{self, Queue};
use crate::state::{State, Window};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{bind, connect, getsockname};
use std::net::SocketAddr;

/// The bytes of both queues, each in two parts, since a ring has its end somewhere in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues<'a> {
    /// Bytes that the peer knows to have arrived and the program has not read. They end at `rcv_nxt`.
    pub unread: [&'a [u8]; 2],
    /// Bytes from `snd_una` on. Those before `snd_nxt` have been sent; the kernel sends the others.
    pub unacknowledged: [&'a [u8]; 2],
}

impl<'a> Queues<'a> {
    /// Queues whose bytes lie in one piece each.
    pub fn new(unread: &'a [u8], unacknowledged: &'a [u8]) -> Queues<'a> {
        Queues { unread: [unread, &[]], unacknowledged: [unacknowledged, &[]] }
    }
}

/// How a state contradicts itself or the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// `snd_nxt` lies beyond the bytes of the send queue.
    #[error("more bytes are in flight than the send queue holds")]
    InFlight,
    /// More than sequence numbers can count.
    #[error("the receive queue has more than 4 GiB")]
    Unread,
    /// One address of IPv4, and one of IPv6.
    #[error("the addresses belong to different families")]
    Families,
    /// More than 65535 << 14 bytes (RFC 7323).
    #[error("a window is larger than TCP can announce")]
    Window,
    /// Not what a take can have found.
    #[error("the MSS is not between 88 and 65535")]
    Mss,
}

/// Why a connection was not given back, and what the socket is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GiveBackError {
    /// State and queues contradict each other. The socket has not been touched.
    #[error("the connection's state is impossible: {0}")]
    Impossible(#[from] Contradiction),
    /// The socket is parked, as it was: try again.
    #[error("the socket is still parked: {0}")]
    Parked(#[source] CallError),
    /// The kernel has forgotten the connection. The socket is in repair mode and sends nothing. Try again with the same state,
    /// or [`abandon`] it.
    #[error("the connection is not in the kernel yet: {0}")]
    Detached(#[source] CallError),
    /// The kernel carries the connection.
    #[error("the kernel carries the connection, but not all was restored ({unqueued} bytes are not queued): {source}")]
    Live {
        /// So many bytes at the end of [`Queues::unacknowledged`] are not in the send queue. Send them by send(2), before the
        /// program does.
        unqueued: usize,
        /// What failed; if it is not send(2), some of the socket's options are not as they were.
        source: CallError,
    },
}

/// Gives a parked connection back to the kernel. The socket is the same open file as before: descriptors, epoll registrations and
/// almost all options survive (the crate's documentation names the others).
///
/// The caller keeps incoming packets away from the socket until the call has returned; no thread is in a call on the socket, and
/// none polls it: while the call runs, pollers see POLLERR and POLLHUP, and a blocked read(2) fails. When repair mode ends, the
/// kernel sends a window probe (a segment without data and with a sequence number before `snd_una`), which the peer answers with
/// an acknowledgement. Unread bytes raise no edge for epoll(7).
///
/// The call works in any network namespace: bind(2) and connect(2) act in the socket's own. It needs CAP_NET_ADMIN in the user
/// namespace of that, CAP_NET_BIND_SERVICE there if the local port is a privileged one, and CAP_NET_ADMIN in the initial user
/// namespace if the queues hold more than the socket's buffers. BPF programs and security modules see a bind(2) and a connect(2)
/// by the caller.
pub fn give_back(fd: impl AsFd, state: &State, queues: &Queues) -> Result<(), GiveBackError> {
    let buffers = Buffers::read(&fd).map_err(GiveBackError::Parked)?;
    give_back_prepared(fd, state, queues, buffers)
}

/// As [`give_back`], by a caller that may be killed, and has noted the socket's buffers where another process finds them.
pub fn give_back_prepared(
    fd: impl AsFd,
    state: &State,
    queues: &Queues,
    buffers: Buffers,
) -> Result<(), GiveBackError> {
    give(fd.as_fd(), state, queues, Grown::since(buffers))
}

/// As [`give_back`], after a process was killed within it while the socket was still parked. `buffers`: what that process has noted.
pub fn give_back_again(fd: impl AsFd, state: &State, queues: &Queues, buffers: Buffers) -> Result<(), GiveBackError> {
    give(fd.as_fd(), state, queues, Grown::found(buffers))
}

fn give(fd: BorrowedFd, state: &State, queues: &Queues, mut grown: Grown) -> Result<(), GiveBackError> {
    let plan = Plan::new(state, queues)?;
    disconnect(fd, state.saved.reuse_address).map_err(GiveBackError::Parked)?;
    if let Err(source) = plan.rebuild(fd, &mut grown).and_then(|()| plan.go_live(fd)) {
        // The next try is to find the sizes as they were. If this fails, too, they stay large.
        let _ = grown.restore(fd);
        return Err(GiveBackError::Detached(source));
    }
    let sent = queues::send_unsent(fd, plan.unsent, &mut grown);
    let restored = plan.restore(fd, &grown);
    sent.map_err(|(unqueued, source)| GiveBackError::Live { unqueued, source })?;
    restored.map_err(|source| GiveBackError::Live { unqueued: 0, source })
}

/// Whether the socket is still parked, after a process was killed within [`give_back`]. False: the kernel carries the connection.
pub fn is_parked(fd: impl AsFd) -> Result<bool, CallError> {
    repair::is_on(fd.as_fd())
}

/// Goes on with a [`give_back_prepared`] whose process was killed when the kernel carried the connection already, and the program
/// could not use the socket yet. `state`, `queues` and `buffers` are what that process gave. Bytes that it had not queued are sent,
/// and the socket's options are restored.
pub fn finish(fd: impl AsFd, state: &State, queues: &Queues, buffers: Buffers) -> Result<(), GiveBackError> {
    let fd = fd.as_fd();
    let plan = Plan::new(state, queues)?;
    let queued = queues::queued_since(fd).map_err(|source| GiveBackError::Live { unqueued: 0, source })?;
    let mut grown = Grown::found(buffers);
    let sent = queues::send_unsent(fd, behind(queues.unacknowledged, queued), &mut grown);
    let restored = plan.restore(fd, &grown);
    sent.map_err(|(unqueued, source)| GiveBackError::Live { unqueued, source })?;
    restored.map_err(|source| GiveBackError::Live { unqueued: 0, source })
}

/// Sends bytes on a connection that the kernel carries, behind those of a [`give_back`]. The send buffer grows as needed for them, and is
/// then as large as before. Returns how many of `bytes` were put into the send queue.
pub fn send_behind(fd: impl AsFd, bytes: &[u8]) -> usize {
    let fd = fd.as_fd();
    let Ok(before) = Buffers::read(fd) else { return 0 };
    let mut grown = Grown::since(before);
    let left = queues::send_unsent(fd, [bytes, &[]], &mut grown).map_or_else(|(left, _)| left, |()| 0);
    // A buffer that stays large does no harm.
    let _ = grown.restore(fd);
    bytes.len() - left
}

/// The parts without their first `skip` bytes.
fn behind([first, second]: [&[u8]; 2], skip: u64) -> [&[u8]; 2] {
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    let of_first = skip.min(first.len());
    [&first[of_first..], &second[(skip - of_first).min(second.len())..]]
}

/// Makes the queues of a parked socket empty, so that its timers have nothing to send: a parked socket sends bytes in flight again
/// and again, and the peer answers them. The connection stays parked. The caller keeps the bytes ([`crate::Taken`]) for
/// [`give_back`]. Pollers see what they see during a give-back.
pub fn empty(fd: impl AsFd, state: &State) -> Result<(), GiveBackError> {
    let fd = fd.as_fd();
    let snd_wnd = state.window.snd_wnd.saturating_sub(state.in_flight());
    let window = Window { snd_wnd, ..state.window };
    let ahead = State { snd_una: state.snd_nxt, window, ..*state };
    let queues = Queues::new(&[], &[]);
    let plan = Plan::new(&ahead, &queues)?;
    // Without bytes nothing grows.
    let mut grown = Grown::since(Buffers::read(fd).map_err(GiveBackError::Parked)?);
    disconnect(fd, state.saved.reuse_address).map_err(GiveBackError::Parked)?;
    plan.rebuild(fd, &mut grown).map_err(GiveBackError::Detached)
}

/// Gives up a connection that is parked or detached. The program finds its socket closed with ECONNABORTED. No packet is sent: the
/// kernel answers the peer's next segment with a reset, if that segment reaches it.
pub fn abandon(fd: impl AsFd) -> Result<(), CallError> {
    let fd = fd.as_fd();
    if end_listening(fd)? {
        return guard::open(fd);
    }
    disconnect(fd, false)?;
    let opened = guard::open(fd);
    repair::turn_off_quietly(fd)?;
    opened
}

/// Closes the socket, in repair mode, without which connect(AF_UNSPEC) would reset the connection.
fn disconnect(fd: BorrowedFd, reuse_address: bool) -> Result<(), CallError> {
    without_conflicts(fd, reuse_address, || repair::disconnect(fd))
}

/// Makes calls of a give-back in repair mode, while the kernel ignores conflicts of bind(2) and listen(2) (SK_FORCE_REUSE): by that the
/// agent's BPF programs know that no connection ends or begins. With the next call conflicts count again, as SO_REUSEADDR has them.
fn without_conflicts(
    fd: BorrowedFd,
    reuse_address: bool,
    calls: impl FnOnce() -> Result<(), CallError>,
) -> Result<(), CallError> {
    repair::turn_on(fd)?;
    let done = calls();
    options::SO_REUSEADDR.set(fd, reuse_address.into())?;
    done
}

/// The largest field, and the largest shift (RFC 7323).
const LARGEST_WINDOW: u32 = 0xffff << 14;

/// A connection to rebuild, with the bytes at their places.
struct Plan<'a> {
    state: &'a State,
    unread: [&'a [u8]; 2],
    /// Sequence number of the first byte of `unread`.
    first_unread: u32,
    sent: [&'a [u8]; 2],
    unsent: [&'a [u8]; 2],
}

impl<'a> Plan<'a> {
    fn new(state: &'a State, queues: &Queues<'a>) -> Result<Plan<'a>, Contradiction> {
        let [first, second] = queues.unacknowledged;
        let in_flight = state.in_flight() as usize;
        if in_flight > first.len().saturating_add(second.len()) {
            return Err(Contradiction::InFlight);
        }
        if state.local.is_ipv4() != state.remote.is_ipv4() {
            return Err(Contradiction::Families);
        }
        let Window { snd_wnd, max_window, rcv_wnd, .. } = state.window;
        if [snd_wnd, max_window, rcv_wnd].iter().any(|window| *window > LARGEST_WINDOW) {
            return Err(Contradiction::Window);
        }
        if !(repair::SMALLEST_MSS..=u32::from(u16::MAX)).contains(&state.mss) {
            return Err(Contradiction::Mss);
        }
        let unread: usize = queues.unread.iter().map(|part| part.len()).sum();
        let unread = u32::try_from(unread).map_err(|_| Contradiction::Unread)?;
        let (sent_first, unsent_first) = first.split_at(in_flight.min(first.len()));
        let (sent_second, unsent_second) = second.split_at(in_flight - sent_first.len());
        Ok(Plan {
            state,
            unread: queues.unread,
            first_unread: state.rcv_nxt.wrapping_sub(unread),
            sent: [sent_first, sent_second],
            unsent: [unsent_first, unsent_second],
        })
    }

    /// Makes a closed socket in repair mode a connection again, still in repair mode. No packet is sent.
    fn rebuild(&self, fd: BorrowedFd, grown: &mut Grown) -> Result<(), CallError> {
        let state = self.state;
        repair::set_start_of_queue(fd, Queue::Send, state.snd_una)?;
        repair::set_start_of_queue(fd, Queue::Receive, self.first_unread)?;
        repair::expect_mss(fd, state.mss)?;
        without_conflicts(fd, state.saved.reuse_address, || {
            bind_again(fd, &state.local)?;
            connect_again(fd, &state.local, &state.remote)
        })?;
        repair::expect_no_mss(fd)?;
        repair::set_negotiated(fd, state.mss, state.scales, state.sack, state.timestamps.is_some())?;
        if let Some(clock) = state.timestamps {
            repair::set_timestamp_clock(fd, clock)?;
        }
        queues::fill_unread(fd, self.unread, grown)?;
        queues::fill_sent(fd, self.sent, grown)?;
        repair::set_window(fd, &state.window)
    }

    /// Ends repair mode. A program that has made the socket another connection meanwhile does not get that: the peer has not agreed.
    fn go_live(&self, fd: BorrowedFd) -> Result<(), CallError> {
        guard::open(fd)?;
        repair::turn_off(fd)?;
        let State { local, remote, saved, .. } = *self.state;
        expel(fd, &[saved.names, Names { local, remote }])
    }

    /// The program's own options again.
    fn restore(&self, fd: BorrowedFd, grown: &Grown) -> Result<(), CallError> {
        grown.restore(fd)?;
        self.state.saved.restore_parked(fd)?;
        self.state.saved.restore_disconnected(fd)
    }
}

/// A port that the program has bound itself, or an earlier give-back, is held through connect(AF_UNSPEC), and cannot be bound
/// again. Other ports are free meanwhile. getsockname(2) shows both alike.
fn bind_again(fd: BorrowedFd, local: &SocketAddr) -> Result<(), CallError> {
    match bind(fd, local) {
        Err(Errno::INVAL) if is_bound(fd, local) => Ok(()),
        result => named("bind(2)", result),
    }
}

/// Somebody else may have made a connection with these addresses meanwhile, if the port was free: that one ends.
fn connect_again(fd: BorrowedFd, local: &SocketAddr, remote: &SocketAddr) -> Result<(), CallError> {
    for _ in 0..INTRUDERS {
        match connect(fd, remote) {
            Err(Errno::ADDRNOTAVAIL) if end_intruder(fd, local, remote) => {}
            result => return named("connect(2)", result),
        }
    }
    named("connect(2)", Err(Errno::ADDRNOTAVAIL))
}

/// So often somebody else may be faster.
const INTRUDERS: usize = 50;

fn is_bound(fd: BorrowedFd, local: &SocketAddr) -> bool {
    let found = getsockname(fd).and_then(SocketAddr::try_from);
    // connect(AF_UNSPEC) forgets an address that the socket was not bound to; connect(2) finds it again.
    found.is_ok_and(|found| found.port() == local.port() && (found.ip() == local.ip() || found.ip().is_unspecified()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saved::Saved;

    fn state(in_flight: u32) -> State {
        let window = Window { snd_wl1: 0, snd_wnd: 0, max_window: 0, rcv_wnd: 0, rcv_wup: 0 };
        let at = SocketAddr::from(([127, 0, 0, 1], 1));
        let saved = Saved {
            names: Names { local: at, remote: at },
            reuse_address: false,
            keepalive: None,
            window_clamp: 0,
            rto_min_us: None,
            delack_max_us: None,
        };
        let snd_una = u32::MAX - 1;
        let snd_nxt = snd_una.wrapping_add(in_flight);
        let (rcv_nxt, mss) = (1, 536);
        let (local, remote, scales, sack, timestamps) = (at, at, None, false, None);
        State { local, remote, snd_una, snd_nxt, rcv_nxt, window, mss, scales, sack, timestamps, saved }
    }

    #[test]
    fn the_send_queue_is_cut_at_snd_nxt_wherever_its_parts_meet() {
        let bytes = b"abcdefgh";
        for cut in 0..=bytes.len() {
            for in_flight in 0..=bytes.len() {
                let state = state(in_flight as u32);
                let parts = [&bytes[..cut], &bytes[cut..]];
                let plan =
                    Plan::new(&state, &Queues { unread: [b"xy", b"z"], unacknowledged: parts }).expect("possible");
                assert_eq!(plan.sent.concat(), bytes[..in_flight]);
                assert_eq!(plan.unsent.concat(), bytes[in_flight..]);
                assert_eq!(plan.first_unread, u32::MAX - 1);
            }
        }
    }

    #[test]
    fn what_is_behind_a_position_may_lie_in_either_part() {
        let bytes = b"abcdefgh";
        for cut in 0..=bytes.len() {
            for skip in 0..bytes.len() + 3 {
                let left = behind([&bytes[..cut], &bytes[cut..]], skip as u64).concat();
                assert_eq!(left, bytes[skip.min(bytes.len())..], "cut at {cut}");
            }
        }
    }

    #[test]
    fn more_in_flight_than_queued_is_impossible() {
        let refused = Plan::new(&state(3), &Queues::new(b"", b"ab")).map(|_| ());
        assert_eq!(refused, Err(Contradiction::InFlight));
    }

    #[test]
    fn what_tcp_cannot_announce_is_impossible() {
        let refusal = |state: &State| Plan::new(state, &Queues::new(b"", b"")).map(|_| ());
        let mut large = state(0);
        (large.window.rcv_wnd, large.mss) = (LARGEST_WINDOW, 65535);
        assert_eq!(refusal(&large), Ok(()));
        large.window.rcv_wnd += 1;
        assert_eq!(refusal(&large), Err(Contradiction::Window));
        for mss in [0, 87, 65536] {
            assert_eq!(refusal(&State { mss, ..state(0) }), Err(Contradiction::Mss));
        }
    }

    #[test]
    fn mixed_families_are_impossible() {
        let state = State { remote: "[::1]:1".parse().expect("an address"), ..state(0) };
        assert_eq!(Plan::new(&state, &Queues::new(b"", b"")).map(|_| ()), Err(Contradiction::Families));
    }
}
