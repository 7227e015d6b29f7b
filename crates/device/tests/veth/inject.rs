//! Frames that are handed to the kernel.

use crate::frames::*;
use crate::receive::take;
use crate::wire::{HERE, PATIENCE, THERE, Wire, at, next_frame};
use etherparse::{IpHeaders, SlicedPacket, TransportSlice};
use sidestep_device::{Error, Injector, Tuple};
use std::net::{TcpListener, UdpSocket};
use std::time::Instant;

/// The kernel's answer to a SYN of `there`, if the frame is one: its ports and acknowledgement number.
fn syn_ack(frame: &[u8]) -> Option<[u32; 3]> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(TransportSlice::Tcp(tcp)) = packet.transport else { return None };
    let is_answer = tcp.syn() && tcp.ack();
    is_answer.then(|| [tcp.source_port().into(), tcp.destination_port().into(), tcp.acknowledgment_number()])
}

fn answer(wire: &Wire, headers: IpHeaders, ethertype: u16, listen: &str) -> [u32; 3] {
    let _listener = wire.here.run(|| TcpListener::bind(at(listen)).unwrap());
    let device = wire.open();
    let there = wire.packets(&wire.there).only(ethertype);
    let frame = ethernet(&syn(headers, [4444, 8080]));
    wire.here.run(|| device.injector.inject(&frame)).unwrap();
    loop {
        let frame = there.receive(PATIENCE).expect("the kernel answers");
        if let Some(answer) = syn_ack(&frame) {
            return answer;
        }
    }
}

#[test]
fn the_kernel_answers_an_injected_syn() {
    let wire = Wire::new();
    assert_eq!(answer(&wire, four(), 0x0800, "10.0.0.1:8080"), [8080, 4444, 1001]);
    assert_eq!(answer(&wire, six(), 0x86dd, "[fd00::1]:8080"), [8080, 4444, 1001]);
}

/// In generic mode an injected frame of a taken connection meets the program.
#[test]
fn an_injected_frame_of_a_taken_connection_comes_back() {
    let wire = Wire::new();
    let mut device = wire.open();
    take(&device);
    let frame = ethernet(&taken(four(), b"again"));
    wire.here.run(|| device.injector.inject(&frame)).unwrap();
    assert_eq!(next_frame(&mut device, 0), frame);
}

#[test]
fn the_longest_frame_arrives_and_a_longer_one_is_refused() {
    let wire = Wire::with(1, 9000);
    let mut device = wire.open();
    take(&device);
    let payload = vec![5; Injector::LIMIT - 14 - 40];
    let mut frame = ethernet(&taken(four(), &payload));
    assert_eq!(frame.len(), Injector::LIMIT);
    wire.here.run(|| device.injector.inject(&frame)).unwrap();
    assert_eq!(next_frame(&mut device, 0), frame);
    frame.push(0);
    let refused = wire.here.run(|| device.injector.inject(&frame)).unwrap_err();
    assert!(matches!(refused, Error::TooLong { limit: Injector::LIMIT, .. }), "{refused}");
}

#[test]
fn an_injected_frame_is_received_once_and_costs_microseconds() {
    const COUNT: usize = 2000;
    let wire = Wire::new();
    let device = wire.open();
    let socket = wire.here.run(|| UdpSocket::bind("10.0.0.1:9999").unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut costs: Vec<u128> = wire.here.run(|| {
        (0..COUNT as u32)
            .map(|number| {
                let frame = ethernet(&datagram(four(), [1, 9999], &number.to_be_bytes()));
                let began = Instant::now();
                device.injector.inject(&frame).unwrap();
                let cost = began.elapsed().as_nanos();
                let mut received = [0; 8];
                assert_eq!(socket.recv(&mut received).unwrap(), 4);
                assert_eq!(received[..4], number.to_be_bytes());
                cost
            })
            .collect()
    });
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 8]).is_err(), "nothing comes twice");
    costs.sort_unstable();
    println!("figure: inject: median {} ns, p99 {} ns", costs[COUNT / 2], costs[COUNT * 99 / 100]);
    assert!(costs[COUNT / 2] < 1_000_000);
}

/// What a worker does with the frame that it gives a connection back for.
#[test]
fn a_frame_that_came_to_user_space_goes_on_into_the_kernel() {
    let wire = Wire::new();
    let mut device = wire.open();
    let _listener = wire.here.run(|| TcpListener::bind("10.0.0.1:8080").unwrap());
    let tuple = Tuple::new(at("10.0.0.1:8080"), at("10.0.0.2:4444"));
    device.taken.add(&tuple).unwrap();
    sidestep_device::wait_for_programs();
    let there = wire.packets(&wire.there).only(0x0800);
    there.send(&ethernet(&syn(four(), [4444, 8080])));
    let frame = next_frame(&mut device, 0);
    assert_eq!(frame[..12], [HERE, THERE].concat());
    device.taken.remove(&tuple).unwrap();
    wire.here.run(|| device.injector.inject(&frame)).unwrap();
    assert_eq!(syn_ack(&there.receive(PATIENCE).unwrap()), Some([8080, 4444, 1001]));
}
