//! The segments in flight. Linux counts its congestion window in segments, so bytes alone would let many small segments leave
//! where it sends few.

use crate::Seq;

/// No more segments are ever in flight. Bulk stays with the kernel.
pub const MOST: usize = 64;

/// The ends of the segments that are sent and not acknowledged, in order.
#[derive(Clone, Debug)]
pub struct Flight {
    ends: [Seq; MOST],
    first: usize,
    count: usize,
    inherited: Inherited,
}

/// Bytes that were in flight when this worker took the connection over. It does not know in how many segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inherited {
    Nothing,
    /// Up to this number.
    To(Seq),
}

impl Flight {
    /// What is in flight when a worker begins.
    pub fn inherited(una: Seq, nxt: Seq) -> Flight {
        let inherited = if una == nxt { Inherited::Nothing } else { Inherited::To(nxt) };
        Flight { ends: [Seq::default(); MOST], first: 0, count: 0, inherited }
    }

    /// Segments in flight. [`MOST`] while there are bytes of an earlier worker.
    #[inline]
    pub fn count(&self) -> usize {
        match self.inherited {
            Inherited::Nothing => self.count,
            Inherited::To(_) => MOST,
        }
    }

    /// Whether a window of `cwnd` segments is full. Of an earlier worker's bytes that is not known.
    #[inline]
    pub fn is_full(&self, cwnd: u32) -> bool {
        self.inherited == Inherited::Nothing && self.count >= cwnd as usize
    }

    /// Whether another segment may leave. `cwnd`: segments.
    #[inline]
    pub fn has_room(&self, cwnd: u32) -> bool {
        self.count() < MOST.min(cwnd as usize)
    }

    /// A segment that ends at `end` leaves. There is room for it.
    #[inline]
    pub fn push(&mut self, end: Seq) {
        debug_assert!(self.count < MOST);
        self.ends[(self.first + self.count) % MOST] = end;
        self.count = MOST.min(self.count + 1);
    }

    /// Everything before `una` is acknowledged.
    #[inline]
    pub fn acknowledge(&mut self, una: Seq) {
        while self.count > 0 && !una.is_before(self.ends[self.first]) {
            self.first = (self.first + 1) % MOST;
            self.count -= 1;
        }
        if let Inherited::To(end) = self.inherited
            && !una.is_before(end)
        {
            self.inherited = Inherited::Nothing;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_counted_one_by_one() {
        let mut flight = Flight::inherited(Seq(0), Seq(0));
        for round in 0..1000u32 {
            flight.push(Seq(2 * round + 1));
            flight.push(Seq(2 * round + 2));
            assert!(!flight.has_room(2) && flight.has_room(3));
            assert!(flight.is_full(2) && !flight.is_full(3));
            flight.acknowledge(Seq(2 * round + 1));
            assert_eq!(flight.count(), 1);
            flight.acknowledge(Seq(2 * round + 2));
            assert_eq!(flight.count(), 0);
        }
    }

    #[test]
    fn an_acknowledgement_inside_of_a_segment_ends_none() {
        let mut flight = Flight::inherited(Seq(0), Seq(0));
        flight.push(Seq(100));
        flight.acknowledge(Seq(99));
        assert_eq!(flight.count(), 1);
    }

    #[test]
    fn there_are_at_most_so_many() {
        let mut flight = Flight::inherited(Seq(0), Seq(0));
        (1..=MOST as u32).for_each(|end| flight.push(Seq(end)));
        assert!(!flight.has_room(u32::MAX));
    }

    #[test]
    fn what_an_earlier_worker_sent_fills_the_window() {
        let mut flight = Flight::inherited(Seq(u32::MAX), Seq(5));
        assert!(!flight.has_room(u32::MAX) && !flight.is_full(1));
        flight.acknowledge(Seq(4));
        assert!(!flight.has_room(u32::MAX));
        flight.acknowledge(Seq(5));
        assert_eq!(flight.count(), 0);
    }
}
