//! What the device's programs do to each kind of frame. No device is needed: the kernel runs it on frames of ours.

use crate::frames::*;
use crate::wire::at;
use etherparse::{Ipv6Extensions, Ipv6RawExtHeader};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, ProgramInput};
use sidestep_bpf::device::{DeviceSkel, DeviceSkelBuilder};
use std::mem::MaybeUninit;

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// To the kernel.
    Pass,
    /// To user space: there is no socket here, so XDP drops it.
    Deliver,
    Drop,
}

use Fate::{Deliver, Drop, Pass};

/// The table's value of a connection that user space has taken.
const DELIVERED: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];

/// The table's key, as crates/bpf/src/taken.h has it.
fn key(local: &str, remote: &str, vlan: u16) -> Vec<u8> {
    let word = |text: &str| match at(text).ip() {
        std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        std::net::IpAddr::V6(ip) => ip.octets(),
    };
    let mut key = [word(local), word(remote)].concat();
    key.extend(at(local).port().to_be_bytes());
    key.extend(at(remote).port().to_be_bytes());
    key.extend(vlan.to_ne_bytes());
    key.extend([0, 0]);
    key
}

fn load(object: &mut MaybeUninit<libbpf_rs::OpenObject>) -> DeviceSkel<'_> {
    let mut open = DeviceSkelBuilder::default().open(object).unwrap();
    open.maps.taken.set_max_entries(65536).unwrap();
    open.load().expect("load the programs (needs root)")
}

fn take(skeleton: &DeviceSkel, vlan: u16) {
    for (local, remote) in [("10.0.0.1:80", "10.0.0.2:4000"), ("[fd00::1]:80", "[fd00::2]:4000")] {
        skeleton.maps.taken.update(&key(local, remote, vlan), &DELIVERED, MapFlags::ANY).unwrap();
    }
}

/// By XDP, which cannot tell what is delivered from what is dropped.
fn by_xdp(skeleton: &DeviceSkel, frame: &[u8]) -> Fate {
    let input = ProgramInput { data_in: Some(frame), ..ProgramInput::default() };
    match skeleton.progs.deliver_taken.test_run(input).unwrap().return_value {
        1 => Drop,
        2 => Pass,
        other => panic!("{other} for {frame:02x?}"),
    }
}

/// By tc: `TCX_NEXT`, `TCX_DROP`, `TCX_REDIRECT` of linux/bpf.h. None: the kernel runs no such program on a frame whose IP header is
/// cut.
fn by_tc(skeleton: &DeviceSkel, frame: &[u8]) -> Option<Fate> {
    let input = ProgramInput { data_in: Some(frame), ..ProgramInput::default() };
    match skeleton.progs.divert_taken.test_run(input) {
        Ok(done) => match done.return_value {
            u32::MAX => Some(Pass),
            2 => Some(Drop),
            7 => Some(Deliver),
            other => panic!("{other} for {frame:02x?}"),
        },
        Err(error) if error.kind() == ErrorKind::InvalidInput && frame.len() < 14 + 40 => None,
        Err(error) => panic!("{error} for {frame:02x?}"),
    }
}

/// Both programs decide alike.
fn run(skeleton: &DeviceSkel, frame: &[u8]) -> Fate {
    let xdp = by_xdp(skeleton, frame);
    let Some(fate) = by_tc(skeleton, frame) else { return xdp };
    assert_eq!(xdp, if fate == Deliver { Drop } else { fate }, "{frame:02x?}");
    fate
}

fn options(bytes: &[u8]) -> etherparse::IpHeaders {
    four_with(|header| header.options = bytes.try_into().unwrap())
}

fn extensions() -> Ipv6Extensions {
    let options = Ipv6RawExtHeader::new_raw(etherparse::IpNumber::TCP, &[1, 4, 0, 0, 0, 0]).unwrap();
    Ipv6Extensions {
        hop_by_hop_options: Some(options.clone()),
        destination_options: Some(options),
        ..Ipv6Extensions::default()
    }
}

fn fragment(offset: u16) -> Ipv6Extensions {
    Ipv6Extensions { fragment: Some(fragment_header(offset)), ..Ipv6Extensions::default() }
}

#[test]
fn frames_of_taken_connections_are_delivered_and_others_pass() {
    let mut object = MaybeUninit::uninit();
    let skeleton = load(&mut object);
    take(&skeleton, 0);
    let offset =
        |offset| four_with(|header| header.fragment_offset = etherparse::IpFragOffset::try_new(offset).unwrap());
    let priority = |packet: &[u8]| tagged(&[[0x8100, 0x6000]], packet);
    let cases = [
        ("IPv4", ethernet(&taken(four(), b"x")), Deliver),
        ("IPv4 without payload", ethernet(&taken(four(), b"")), Deliver),
        ("IPv6", ethernet(&taken(six(), b"x")), Deliver),
        ("another local port", ethernet(&segment(four(), [4000, 81], b"x")), Pass),
        ("another remote port", ethernet(&segment(six(), [4001, 80], b"x")), Pass),
        ("ports exchanged", ethernet(&segment(four(), [80, 4000], b"x")), Pass),
        ("another address", ethernet(&taken(four_with(|header| header.source[3] = 3), b"x")), Pass),
        ("UDP", ethernet(&datagram(four(), [4000, 80], b"x")), Pass),
        ("UDP by IPv6", ethernet(&datagram(six(), [4000, 80], b"x")), Pass),
        ("options", ethernet(&taken(options(&[1, 1, 1, 1]), b"x")), Deliver),
        ("all options", ethernet(&taken(options(&[1; 40]), b"x")), Deliver),
        ("first fragment", ethernet(&taken(four_with(|header| header.more_fragments = true), b"x")), Deliver),
        ("later fragment", ethernet(&taken(offset(8), b"x")), Pass),
        ("extension headers", ethernet(&taken(six_with(extensions()), b"x")), Deliver),
        ("first fragment by IPv6", ethernet(&taken(six_with(fragment(0)), b"x")), Deliver),
        ("later fragment by IPv6", ethernet(&taken(six_with(fragment(8)), b"x")), Pass),
        ("eight headers", ethernet(&behind_headers(8)), Deliver),
        ("nine headers", ethernet(&behind_headers(9)), Drop),
        ("priority tag", priority(&taken(four(), b"x")), Deliver),
        ("priority tag by IPv6", priority(&taken(six(), b"x")), Deliver),
        ("VLAN that is not taken", tagged(&[[0x8100, 7]], &taken(four(), b"x")), Pass),
        ("four tags", tagged(&[[0x8100, 0]; 4], &taken(four(), b"x")), Deliver),
        ("five tags", tagged(&[[0x8100, 0]; 5], &taken(four(), b"x")), Drop),
        ("two VLANs", tagged(&[[0x88a8, 7], [0x8100, 7]], &taken(four(), b"x")), Pass),
        ("ICMP error", ethernet(&icmp_error_v4()), Deliver),
        ("ICMPv6 error", ethernet(&icmp_error_v6()), Deliver),
        ("ping", ethernet(&ping(four())), Pass),
        ("ping by IPv6", ethernet(&ping(six())), Pass),
        ("ICMPv6 error about nothing", ethernet(&icmp_error_without_quote()), Pass),
        ("unknown EtherType", experimental([0; 6], [0; 6], 0, 60), Pass),
        ("header only", vec![0; 14], Pass),
    ];
    for (name, frame, expected) in cases {
        assert_eq!(run(&skeleton, &frame), expected, "{name}");
    }
}

/// Inside there may be the same addresses and ports: of another network.
#[test]
fn what_is_inside_of_a_tunnel_passes() {
    let mut object = MaybeUninit::uninit();
    let skeleton = load(&mut object);
    take(&skeleton, 0);
    let inside = taken(four(), b"x");
    let vxlan = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &ethernet(&inside)].concat();
    let cases = [
        ("IPIP", around(4, &inside)),
        ("IPIP around IPv6", around(41, &taken(six(), b"x"))),
        ("GRE", around(47, &[&[0, 0, 8, 0][..], &inside].concat())),
        ("GRE around Ethernet", around(47, &[&[0, 0, 0x65, 0x58][..], &ethernet(&inside)].concat())),
        ("ESP", around(50, &inside)),
        (
            "AH",
            around(
                51,
                &[&[6, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &inside[20..]]
                    .concat(),
            ),
        ),
        ("VXLAN", datagram(four(), [40000, 4789], &vxlan)),
        ("VXLAN by IPv6", datagram(six(), [40000, 4789], &vxlan)),
        ("VXLAN between the connection's ports", datagram(four(), [4000, 80], &vxlan)),
    ];
    for (name, packet) in cases {
        assert_eq!(run(&skeleton, &ethernet(&packet)), Pass, "{name}");
    }
}

#[test]
fn connections_of_a_vlan_are_told_from_untagged_ones() {
    let mut object = MaybeUninit::uninit();
    let skeleton = load(&mut object);
    take(&skeleton, 7);
    for packet in [taken(four(), b"x"), taken(six(), b"x"), icmp_error_v4(), icmp_error_v6()] {
        assert_eq!(run(&skeleton, &tagged(&[[0x8100, 0x2007]], &packet)), Deliver);
        assert_eq!(run(&skeleton, &tagged(&[[0x8100, 0], [0x8100, 7]], &packet)), Deliver);
        assert_eq!(run(&skeleton, &tagged(&[[0x8100, 8]], &packet)), Pass);
        assert_eq!(run(&skeleton, &ethernet(&packet)), Pass);
    }
}

/// The programs decide alike about any bytes, and never fail; a frame that is cut before its ports is no segment.
#[test]
fn broken_frames_do_no_harm() {
    let mut object = MaybeUninit::uninit();
    let skeleton = load(&mut object);
    take(&skeleton, 0);
    let whole: Vec<Vec<u8>> = [
        taken(four(), b"payload"),
        taken(options(&[1; 40]), b"payload"),
        taken(six_with(extensions()), b"payload"),
        icmp_error_v4(),
        icmp_error_v6(),
        behind_headers(5),
    ]
    .iter()
    .flat_map(|packet| [ethernet(packet), tagged(&[[0x8100, 0], [0x88a8, 0]], packet)])
    .collect();
    for frame in &whole {
        let actions: Vec<Fate> = (14..=frame.len()).map(|length| run(&skeleton, &frame[..length])).collect();
        let passed = actions.iter().take_while(|action| **action == Pass).count();
        assert!(passed >= 14 + 20 + 4 - 14, "a frame of {passed} bytes");
        assert!(actions[passed..].iter().all(|action| *action == Deliver) && passed < actions.len());
    }
    // A linear congruential generator, so that a failure can be repeated.
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for _ in 0..40_000 {
        let mut frame = whole[random(whole.len())].clone();
        for _ in 0..=random(4) {
            let at = 12 + random(frame.len() - 12);
            frame[at] = random(256) as u8;
        }
        run(&skeleton, &frame);
    }
}

fn cost(program: &impl Fn(ProgramInput) -> std::time::Duration, frame: &[u8]) -> u128 {
    let input = || ProgramInput { data_in: Some(frame), repeat: 200_000, ..ProgramInput::default() };
    (0..5).map(|_| program(input()).as_nanos()).min().unwrap()
}

/// Traffic that is not taken must lose nothing that can be measured. A packet costs the kernel some microseconds.
#[test]
fn a_frame_that_passes_costs_less_than_a_microsecond() {
    let mut object = MaybeUninit::uninit();
    let skeleton = load(&mut object);
    for port in 0..1000u16 {
        let remote = format!("10.0.0.2:{}", 10_000 + port);
        skeleton.maps.taken.update(&key("10.0.0.1:80", &remote, 0), &DELIVERED, MapFlags::ANY).unwrap();
    }
    let cases = [
        ("TCP, not taken", ethernet(&taken(four(), b"x"))),
        ("TCP by IPv6, not taken", ethernet(&taken(six(), b"x"))),
        ("TCP in a VLAN, not taken", tagged(&[[0x8100, 7]], &taken(four(), b"x"))),
        ("UDP", ethernet(&datagram(four(), [1, 2], b"x"))),
        ("taken", ethernet(&segment(four(), [10_500, 80], b"x"))),
    ];
    let by_xdp = |input: ProgramInput| skeleton.progs.deliver_taken.test_run(input).unwrap().duration;
    let by_tc = |input: ProgramInput| skeleton.progs.divert_taken.test_run(input).unwrap().duration;
    for (name, frame) in cases {
        for (kind, nanoseconds) in [("XDP", cost(&by_xdp, &frame)), ("tc", cost(&by_tc, &frame))] {
            println!("figure: program, {kind}, {name}: {nanoseconds} ns");
            assert!(nanoseconds < 1000, "{kind}, {name}: {nanoseconds} ns");
        }
    }
}
