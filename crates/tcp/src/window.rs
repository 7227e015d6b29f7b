//! The window that this end promises (RFC 9293, sections 3.8.6.2.2 and 3.10.7.4; RFC 7323, section 2.4).

use crate::{Agreed, Progress, Seq};

/// What a segment promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The field of its header.
    pub field: u16,
    /// The new value of [`Progress::rcv_edge`].
    pub edge: Seq,
}

/// The end of the room in the receive ring. `read`: the next byte that the program reads. `None`: the program cannot be there.
#[inline]
pub fn room_end(agreed: &Agreed, progress: &Progress, read: Seq) -> Option<Seq> {
    let end = read.plus(agreed.receive_ring);
    // The program reads only what has arrived, and never goes back behind the room that was promised.
    let is_possible = !read.is_after(progress.rcv_nxt) && !end.is_before(progress.rcv_edge);
    is_possible.then_some(end)
}

/// What a segment that leaves now promises. A promise is never taken back: the receive ring has room up to the old edge in any
/// case. The window field counts in steps, and a window that is rounded down may end less than a step before the edge; data up
/// to the edge is accepted nevertheless (RFC 7323, section 2.4).
#[inline]
pub fn promise(agreed: &Agreed, progress: &Progress, end: Seq) -> Promise {
    let edge = if is_worth_it(agreed, progress, end) { end } else { progress.rcv_edge };
    let step = 1u32 << agreed.receive_scale;
    let width = edge.since(progress.rcv_nxt);
    let room = end.since(progress.rcv_nxt);
    let up = width.next_multiple_of(step);
    let rounded = if up <= room { up } else { width - width % step };
    let field = (rounded / step).min(u32::from(u16::MAX));
    Promise { field: field as u16, edge: progress.rcv_edge.max(progress.rcv_nxt.plus(field * step)) }
}

/// Whether the edge can move by so much that the peer does not send ever smaller segments (silly window syndrome).
fn is_worth_it(agreed: &Agreed, progress: &Progress, end: Seq) -> bool {
    end.since(progress.rcv_edge) >= agreed.mss.min(agreed.receive_ring / 2).max(1)
}

/// The largest window that this end can promise.
fn largest(agreed: &Agreed) -> u32 {
    agreed.receive_ring.min(u32::from(u16::MAX) << agreed.receive_scale)
}

/// Whether the program has read so much that the peer is told at once: two segments, if the peer sees no more than half of the
/// largest window. A peer that sees more is not held up.
#[inline]
pub fn update_is_due(agreed: &Agreed, progress: &Progress, end: Seq) -> bool {
    let opened = promise(agreed, progress, end).edge.since(progress.rcv_edge);
    is_short(agreed, progress) && opened >= (2 * agreed.mss).min(largest(agreed) / 2).max(1)
}

/// Whether the peer sees no more than half of the largest window.
#[inline]
pub fn is_short(agreed: &Agreed, progress: &Progress) -> bool {
    progress.rcv_edge.since(progress.rcv_nxt) <= largest(agreed) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(receive_ring: u32, receive_scale: u8) -> Agreed {
        Agreed { receive_ring, receive_scale, mss: 100, ..Agreed::default() }
    }

    fn promised(rcv_nxt: u32, rcv_edge: u32) -> Progress {
        Progress { rcv_nxt: Seq(rcv_nxt), rcv_edge: Seq(rcv_edge), ..Progress::default() }
    }

    #[test]
    fn the_window_is_the_room_in_the_ring() {
        let end = room_end(&agreed(1000, 0), &promised(0, 0), Seq(0)).expect("a position");
        assert_eq!(promise(&agreed(1000, 0), &promised(0, 0), end), Promise { field: 1000, edge: Seq(1000) });
    }

    #[test]
    fn the_edge_stays_until_it_can_move_by_a_segment() {
        let progress = promised(200, 1000);
        assert_eq!(promise(&agreed(1000, 0), &progress, Seq(1099)), Promise { field: 800, edge: Seq(1000) });
        assert_eq!(promise(&agreed(1000, 0), &progress, Seq(1100)), Promise { field: 900, edge: Seq(1100) });
    }

    #[test]
    fn rounding_goes_up_into_free_room_only() {
        let progress = promised(201, 1000);
        let up = promise(&agreed(1024, 4), &progress, Seq(1005));
        assert_eq!(up, Promise { field: 50, edge: Seq(1001) });
        let down = promise(&agreed(1024, 4), &progress, Seq(1000));
        assert_eq!(down, Promise { field: 49, edge: Seq(1000) }, "the promise stands");
    }

    #[test]
    fn the_field_is_never_too_large() {
        let (agreed, progress) = (agreed(1 << 30, 4), promised(0, 0));
        assert_eq!(promise(&agreed, &progress, Seq(1 << 30)), Promise { field: u16::MAX, edge: Seq(0xffff << 4) });
    }

    #[test]
    fn the_program_is_where_it_can_be() {
        let (agreed, progress) = (agreed(1000, 0), promised(500, 1200));
        assert_eq!(room_end(&agreed, &progress, Seq(500)), Some(Seq(1500)));
        assert_eq!(room_end(&agreed, &progress, Seq(200)), Some(Seq(1200)));
        assert_eq!(room_end(&agreed, &progress, Seq(501)), None, "not beyond what has arrived");
        assert_eq!(room_end(&agreed, &progress, Seq(199)), None, "not behind the room that was promised");
    }

    #[test]
    fn a_window_that_opens_is_told() {
        let agreed = agreed(1000, 0);
        assert!(update_is_due(&agreed, &promised(900, 1000), Seq(1200)));
        assert!(!update_is_due(&agreed, &promised(900, 1000), Seq(1199)));
        assert!(!update_is_due(&agreed, &promised(499, 1000), Seq(1400)), "the peer is not held up");
    }

    #[test]
    fn a_full_ring_reopens_whatever_its_size() {
        for ring in [1, 2, 7, 100, 5000] {
            let progress = promised(ring, ring);
            let end = room_end(&agreed(ring, 0), &progress, Seq(ring)).expect("a position");
            assert!(update_is_due(&agreed(ring, 0), &progress, end), "{ring}");
        }
    }
}
