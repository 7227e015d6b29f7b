//! The Internet checksum (RFC 1071).

/// Adds the bytes, as 16-bit words in network order, to a sum. An odd last byte counts as the high byte of a word. No sum can
/// overflow: a frame has less than 2^16 words.
#[inline]
pub fn add(sum: u64, bytes: &[u8]) -> u64 {
    // Words of any order and width do: 2^16 = 1 modulo 2^16 - 1, and swapped bytes give the swapped sum (RFC 1071, section 2).
    let (words, rest) = bytes.as_chunks::<4>();
    let native: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let sum = sum + u64::from(u16::from_be_bytes(fold(native).to_ne_bytes()));
    match *rest {
        [] => sum,
        [a] => sum + word(a, 0),
        [a, b] => sum + word(a, b),
        [a, b, c, ..] => sum + word(a, b) + word(c, 0),
    }
}

#[inline]
fn word(high: u8, low: u8) -> u64 {
    u64::from(u16::from_be_bytes([high, low]))
}

/// The sum with its carries, as 16 bits. The checksum is its complement.
#[inline]
pub fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// The sum of the pseudo-header (RFC 9293, section 3.1; RFC 8200, section 8.1). `addresses`: source and destination, as they
/// stand in the IP header; `len`: bytes of TCP header and payload.
#[inline]
pub fn pseudo(addresses: &[u8], len: usize) -> u64 {
    add(u64::from(PROTOCOL_TCP) + len as u64, addresses)
}

/// TCP's number in the IP header.
pub const PROTOCOL_TCP: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, word by word.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(fold(add(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
    }

    proptest! {
        #[test]
        fn long_steps_sum_up_as_short_ones(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(fold(add(0, &bytes)), plain(&bytes));
        }
    }
}
