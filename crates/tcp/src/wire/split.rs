//! Joined segments, apart again.

use super::checksum::{add, fold};
use super::parse::{Checksums, ETHERNET_LEN, Flags, FrameError, Packet, Segment};

/// Splits a frame of joined segments, as generic receive offload makes them, into frames of at most `limit` bytes, with complete
/// checksums. A frame that is short enough comes back as one. `limit`: more than the headers' length.
///
/// # Errors
///
/// [`FrameError`]: the frame is no TCP segment, or its checksum is wrong: the pieces would hide that.
pub fn split(frame: &[u8], limit: usize) -> Result<Vec<Vec<u8>>, FrameError> {
    let packet = Packet::parse(frame)?;
    packet.verify(Checksums::MayBePartial)?;
    let Segment { seq, flags, payload, .. } = packet.segment()?;
    let headers = packet.tcp_at() + packet.tcp_header_len();
    let room = limit.saturating_sub(headers).max(1);
    let pieces = payload.len().div_ceil(room).max(1);
    let piece = |number: usize| {
        let (from, to) = (number * room, payload.len().min((number + 1) * room));
        let mut piece = frame[..headers].to_vec();
        piece.extend_from_slice(&payload[from..to]);
        let seq = seq.plus(from as u32);
        let at_end = if number + 1 == pieces { Flags::default() } else { Flags::FIN.with(Flags::PSH) };
        rewrite(&mut piece, packet.tcp_at(), seq.0, Flags(flags.0 & !at_end.0));
        if from > 0 {
            move_urgent(&mut piece[packet.tcp_at()..], from);
        }
        let (checksum, at) = Packet::parse(&piece)?.due_checksum();
        piece[at..at + 2].copy_from_slice(&checksum);
        Ok(piece)
    };
    (0..pieces).map(piece).collect()
}

/// Sets what differs from piece to piece: lengths, sequence number and flags.
fn rewrite(frame: &mut [u8], tcp_at: usize, seq: u32, flags: Flags) {
    let len = frame.len() - ETHERNET_LEN;
    let ip = &mut frame[ETHERNET_LEN..tcp_at];
    if ip[0] >> 4 == 4 {
        ip[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        ip[10..12].fill(0);
        let sum = !fold(add(0, ip));
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        let payload = (len - ip.len()) as u16;
        ip[4..6].copy_from_slice(&payload.to_be_bytes());
    }
    let tcp = &mut frame[tcp_at..];
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    tcp[13] = flags.0 as u8;
}

/// Where the urgent pointer is in a TCP header.
const URGENT_POINTER: std::ops::Range<usize> = 18..20;

/// The urgent pointer counts from the first byte of a segment to the one behind the urgent byte. Here the segment begins `from` bytes
/// later. A piece behind the urgent byte has none: its pointer would make another byte urgent, which the kernel takes out of the stream.
fn move_urgent(tcp: &mut [u8], from: usize) {
    let pointer = usize::from(u16::from_be_bytes([tcp[URGENT_POINTER.start], tcp[URGENT_POINTER.start + 1]]));
    let moved = pointer.saturating_sub(from) as u16;
    tcp[URGENT_POINTER].copy_from_slice(&moved.to_be_bytes());
    if moved == 0 {
        tcp[13] &= !(Flags::URG.0 as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    /// A segment with options, a FIN and so many bytes.
    fn frame(v6: bool, len: usize) -> Vec<u8> {
        frame_with(v6, len, None)
    }

    /// Likewise, with this urgent pointer.
    fn frame_with(v6: bool, len: usize, urgent: Option<u16>) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6]);
        let builder =
            if v6 { builder.ipv6([3; 16], [4; 16], 64) } else { builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64) };
        let builder = builder.tcp(80, 4000, u32::MAX - 50, 1000).ack(7).fin().psh();
        let builder = builder.options_raw(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]).expect("options");
        let builder = match urgent {
            Some(pointer) => builder.urg(pointer),
            None => builder,
        };
        let payload: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
        let mut frame = Vec::new();
        builder.write(&mut frame, &payload).expect("a frame");
        frame
    }

    #[test]
    fn pieces_carry_the_same_bytes_and_the_end_is_in_the_last_one() {
        for v6 in [false, true] {
            for len in [0, 1, 99, 100, 101, 1000] {
                let whole = frame(v6, len);
                let original = Segment::parse(&whole, Checksums::Complete).expect("a segment");
                let headers = whole.len() - len;
                let pieces = split(&whole, headers + 100).expect("pieces");
                assert_eq!(pieces.len(), len.div_ceil(100).max(1));
                let mut bytes = Vec::new();
                for (number, piece) in pieces.iter().enumerate() {
                    assert!(piece.len() <= headers + 100);
                    let segment = Segment::parse(piece, Checksums::Complete).expect("a right piece");
                    assert_eq!(segment.seq, original.seq.plus(bytes.len() as u32));
                    let same = (segment.tuple, segment.ack, segment.window, segment.options);
                    assert_eq!(same, (original.tuple, original.ack, original.window, original.options));
                    assert_eq!(segment.flags.has(Flags::FIN.with(Flags::PSH)), number + 1 == pieces.len());
                    bytes.extend_from_slice(segment.payload);
                }
                assert_eq!(bytes, original.payload);
            }
        }
    }

    #[test]
    fn the_urgent_byte_stays_where_it_is() {
        for v6 in [false, true] {
            let headers = frame(v6, 0).len();
            for pointer in [1, 99, 100, 101, 250, 300, 700] {
                let pieces = split(&frame_with(v6, 300, Some(pointer)), headers + 100).expect("pieces");
                let told = pieces.iter().zip([0, 100, 200]).map(|(piece, from)| {
                    let segment = Segment::parse(piece, Checksums::Complete).expect("a right piece");
                    let tcp = &piece[headers - 32..headers];
                    let pointer = u16::from_be_bytes([tcp[18], tcp[19]]);
                    assert!(segment.flags.has(Flags::URG) || pointer == 0);
                    segment.flags.has(Flags::URG).then_some(from + pointer)
                });
                let expected = [0, 100, 200].map(|from| (from < pointer).then_some(pointer));
                assert_eq!(told.collect::<Vec<_>>(), expected, "{pointer}");
            }
        }
    }

    #[test]
    fn a_damaged_frame_is_not_made_whole() {
        let mut whole = frame(false, 500);
        let last = whole.len() - 1;
        whole[last] ^= 1;
        assert!(matches!(split(&whole, 200), Err(FrameError::Damaged(_))));
    }
}
