//! Sequence numbers (RFC 9293, section 3.4).

/// The number of a byte of a stream, modulo 2^32. Two numbers can be compared if they lie less than 2^31 apart.
///
/// A ring whose positions start at the connection's sequence number needs no translation: the number of a byte is its position,
/// cut to 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Seq(
    /// The number, as in the header's field.
    pub u32,
);

impl Seq {
    /// The number `bytes` later.
    #[inline]
    #[must_use]
    pub const fn plus(self, bytes: u32) -> Seq {
        Seq(self.0.wrapping_add(bytes))
    }

    /// The number `bytes` earlier.
    #[inline]
    #[must_use]
    pub const fn minus(self, bytes: u32) -> Seq {
        Seq(self.0.wrapping_sub(bytes))
    }

    /// Bytes from `earlier` to this number, modulo 2^32.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Seq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Bytes from `earlier` to this number; 0 if `earlier` is later.
    #[inline]
    #[must_use]
    pub const fn since_or_zero(self, earlier: Seq) -> u32 {
        if self.is_after(earlier) { self.since(earlier) } else { 0 }
    }

    /// Whether this number comes before `other`.
    #[inline]
    #[must_use]
    pub const fn is_before(self, other: Seq) -> bool {
        (self.since(other) as i32) < 0
    }

    /// Whether this number comes after `other`.
    #[inline]
    #[must_use]
    pub const fn is_after(self, other: Seq) -> bool {
        other.is_before(self)
    }

    /// The later one of two numbers.
    #[inline]
    #[must_use]
    pub const fn max(self, other: Seq) -> Seq {
        if other.is_after(self) { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap() {
        let (last, first) = (Seq(u32::MAX), Seq(0));
        assert!(last.is_before(first) && first.is_after(last) && !first.is_before(last));
        assert!(!first.is_before(first) && !first.is_after(first));
        assert_eq!(last.plus(3), Seq(2));
        assert_eq!(first.minus(1), last);
        assert_eq!(first.since(last), 1);
        assert_eq!(last.max(first), first);
        assert_eq!(first.max(last), first);
    }

    #[test]
    fn a_distance_is_never_negative() {
        assert_eq!(Seq(5).since_or_zero(Seq(u32::MAX)), 6);
        assert_eq!(Seq(u32::MAX).since_or_zero(Seq(5)), 0);
        assert_eq!(Seq(5).since_or_zero(Seq(5)), 0);
    }
}
