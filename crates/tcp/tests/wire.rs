//! Frames: what is written is read as it was, and what is damaged or not understood is not read at all.

use proptest::prelude::*;
use sidestep_tcp::{
    Checksums, Fields, Flags, FrameError, Headers, Link, MixedFamilies, Segment, Seq, Timestamps, Tuple, WriteError,
    complete_checksum,
};

const LINK: Link = Link {
    local_mac: [2, 0, 0, 0, 0, 1],
    remote_mac: [2, 0, 0, 0, 0, 2],
    traffic_class: 0xff,
    hops: 64,
    flow_label: 0xfff_ffff,
};

fn tuple(is_v4: bool) -> Tuple {
    let [local, remote] =
        if is_v4 { ["192.0.2.1:80", "198.51.100.7:40000"] } else { ["[2001:db8::1]:80", "[2001:db8::2]:40000"] };
    Tuple::new(local.parse().expect("an address"), remote.parse().expect("an address"))
}

fn write(is_v4: bool, fields: &Fields, payload: &[u8]) -> Vec<u8> {
    let headers = Headers::new(tuple(is_v4), &LINK).expect("one family");
    let mut frame = vec![0xee; 2048];
    let (first, second) = payload.split_at(payload.len() / 3);
    let len = headers.write(&mut frame, fields, [first, second]).expect("room");
    frame.truncate(len);
    frame
}

fn fields() -> Fields {
    let timestamps = Some(Timestamps { value: 0x0102_0304, echo: 0x0506_0708 });
    Fields { seq: Seq(1), ack: Seq(2), flags: Flags::ACK, window: 3, timestamps }
}

fn read(frame: &[u8]) -> Result<Segment<'_>, FrameError> {
    Segment::parse(frame, Checksums::Complete)
}

/// The checksums were computed by another program, word by word.
#[test]
fn every_byte_of_a_frame() {
    let fields = Fields { timestamps: None, flags: Flags::ACK.with(Flags::PSH), ..fields() };
    let tuple = Tuple::new("192.0.2.1:8".parse().expect("an address"), "192.0.2.2:9".parse().expect("an address"));
    let headers = Headers::new(tuple, &Link { traffic_class: 0, ..LINK }).expect("one family");
    let mut frame = [0; 64];
    let len = headers.write(&mut frame, &fields, [b"A", b""]).expect("room");
    let expected = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, // Ethernet
        0x45, 0, 0, 41, 0, 0, 0x40, 0, 64, 6, 0xb6, 0xcb, 192, 0, 2, 1, 192, 0, 2, 2, // IPv4
        0, 8, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 0, 3, 0xea, 0xb0, 0, 0, // TCP
        b'A',
    ];
    assert_eq!(frame[..len], expected);
}

#[test]
fn a_link_says_what_the_ip_header_holds() {
    let v4 = write(true, &fields(), b"");
    assert_eq!((v4[15], v4[22]), (0xfc, 64), "DSCP without ECN, time to live");
    let v6 = write(false, &fields(), b"");
    assert_eq!(v6[14..18], [0x6f, 0xcf, 0xff, 0xff], "version, DSCP without ECN, flow label");
    assert_eq!(v6[21], 64, "hop limit");
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        is_v4 in any::<bool>(), seq in any::<u32>(), ack in any::<u32>(), flags in 0u16..4096, window in any::<u16>(),
        stamps in any::<Option<(u32, u32)>>(), payload in proptest::collection::vec(any::<u8>(), 0..1460), padding in 0usize..9,
    ) {
        let timestamps = stamps.map(|(value, echo)| Timestamps { value, echo });
        let fields = Fields { seq: Seq(seq), ack: Seq(ack), flags: Flags(flags), window, timestamps };
        let mut frame = write(is_v4, &fields, &payload);
        frame.extend(std::iter::repeat_n(0x77, padding));
        let segment = read(&frame).expect("a segment");
        prop_assert_eq!(segment.tuple, tuple(is_v4).reversed());
        prop_assert_eq!((segment.seq, segment.ack, segment.flags, segment.window), (Seq(seq), Seq(ack), Flags(flags), window));
        prop_assert_eq!(segment.options.timestamps, timestamps);
        prop_assert_eq!(segment.payload, &payload[..]);
        prop_assert_eq!((segment.mac, segment.is_marked), (LINK.remote_mac, false));
    }

    /// One changed bit is found, but in those fields that no checksum covers: Ethernet's addresses, and of IPv6 the traffic
    /// class, the flow label and the hop limit.
    #[test]
    fn a_changed_bit_is_found(is_v4 in any::<bool>(), at in 12usize..120, bit in 0u32..8, payload in proptest::collection::vec(any::<u8>(), 60)) {
        let mut frame = write(is_v4, &fields(), &payload);
        let at = at % frame.len();
        prop_assume!(at >= 12 && (is_v4 || !(14..18).contains(&at) && at != 21));
        frame[at] ^= 1 << bit;
        prop_assert!(read(&frame).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), v4 in any::<Option<bool>>()) {
        let mut bytes = bytes;
        if let (Some(v4), true) = (v4, bytes.len() > 14) {
            bytes[12..15].copy_from_slice(if v4 { &[0x08, 0x00, 0x45] } else { &[0x86, 0xdd, 0x60] });
        }
        for checksums in [Checksums::Complete, Checksums::MayBePartial, Checksums::Verified] {
            if let Ok(segment) = Segment::parse(&bytes, checksums) {
                prop_assert!(segment.payload.len() + 54 <= bytes.len());
            }
        }
        let _ = complete_checksum(&mut bytes);
    }

    #[test]
    fn a_frame_that_is_cut_is_refused(is_v4 in any::<bool>(), payload in proptest::collection::vec(any::<u8>(), 1..60)) {
        let frame = write(is_v4, &fields(), &payload);
        for len in 0..frame.len() {
            prop_assert!(Segment::parse(&frame[..len], Checksums::Verified).is_err());
        }
    }
}

/// Leaves the checksum as Linux leaves it to a device.
fn make_partial(frame: &mut [u8], is_v4: bool) {
    let (addresses, tcp) = if is_v4 { (26..34, 34) } else { (22..54, 54) };
    let sum: u32 = frame[addresses].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let mut sum = sum + 6 + (frame.len() - tcp) as u32;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    frame[tcp + 16..tcp + 18].copy_from_slice(&(sum as u16).to_be_bytes());
}

#[test]
fn a_partial_checksum_is_accepted_where_it_may_be_and_can_be_completed() {
    for is_v4 in [true, false] {
        let complete = write(is_v4, &fields(), b"payload");
        let mut frame = complete.clone();
        make_partial(&mut frame, is_v4);
        assert!(matches!(read(&frame), Err(FrameError::Damaged(_))));
        assert_eq!(Segment::parse(&frame, Checksums::MayBePartial).expect("a segment").payload, b"payload");
        complete_checksum(&mut frame).expect("a segment");
        assert_eq!(frame, complete);
        complete_checksum(&mut frame).expect("a segment");
        assert_eq!(frame, complete);
    }
}

#[test]
fn a_wrong_checksum_is_not_completed() {
    let mut frame = write(true, &fields(), b"payload");
    *frame.last_mut().expect("a byte") ^= 1;
    let damaged = frame.clone();
    assert!(matches!(complete_checksum(&mut frame), Err(FrameError::Damaged(_))));
    assert_eq!(frame, damaged);
    assert!(Segment::parse(&frame, Checksums::MayBePartial).is_err());
    assert!(Segment::parse(&frame, Checksums::Verified).is_ok(), "the device has verified it");
}

/// A change of a frame, and whether the kernel should get it.
type Case = (bool, fn(&mut [u8]), bool);

#[test]
fn what_is_not_plain_tcp_is_not_read() {
    let cases: [Case; 12] = [
        (true, |it| it[12..14].copy_from_slice(&[0x81, 0x00]), true),
        (true, |it| it[12..14].copy_from_slice(&[0x08, 0x06]), true),
        (true, |it| it[14] = 0x46, true),
        (true, |it| it[14] = 0x44, false),
        (true, |it| it[14] = 0x65, false),
        (true, |it| it[20] |= 0x20, true),
        (true, |it| it[21] = 1, true),
        (true, |it| it[23] = 17, true),
        (false, |it| it[14] = 0x40, false),
        (false, |it| it[20] = 0, true),
        (false, |it| it[66] = 0x40, false),
        (false, |it| it[66] = 0xf0, false),
    ];
    for (n, (is_v4, change, is_for_kernel)) in cases.into_iter().enumerate() {
        let mut frame = write(is_v4, &fields(), b"");
        change(&mut frame);
        let error = Segment::parse(&frame, Checksums::Verified).expect_err("it is not read");
        assert_eq!(matches!(error, FrameError::NotUnderstood(_)), is_for_kernel, "{n}: {error}");
    }
}

#[test]
fn an_ipv6_packet_never_belongs_to_an_ipv4_connection() {
    for at in [22, 38] {
        let mut frame = write(false, &fields(), b"");
        frame[at..at + 12].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        assert!(matches!(Segment::parse(&frame, Checksums::Verified), Err(FrameError::Damaged(_))));
    }
}

#[test]
fn a_router_s_mark_is_seen() {
    let mut frame = write(false, &fields(), b"");
    frame[15] |= 0x30;
    assert!(read(&frame).expect("a segment").is_marked);
    frame[15] &= !0x10;
    assert!(!read(&frame).expect("a segment").is_marked, "ECN-capable is no mark");
}

#[test]
fn what_does_not_fit_is_not_written() {
    let headers = Headers::new(tuple(true), &LINK).expect("one family");
    let mut frame = [0; 70];
    assert_eq!(headers.write(&mut frame, &fields(), [b"12345", b""]), Err(WriteError::Room { need: 71 }));
    assert_eq!(headers.write(&mut frame, &fields(), [b"123", b"4"]), Ok(70));
    let long = vec![0; 70_000];
    let mut room = vec![0; 80_000];
    assert_eq!(headers.write(&mut room, &fields(), [&long, b""]), Err(WriteError::Room { need: 70_066 }));
}

#[test]
fn a_packet_has_one_family() {
    let tuple = Tuple { remote: tuple(false).remote, ..tuple(true) };
    assert_eq!(Headers::new(tuple, &LINK).map(|_| ()), Err(MixedFamilies));
}
