//! Frames that the device receives.

use crate::frames::*;
use crate::wire::{OnDrop, PATIENCE, Wire, at, next_frame, small, until};
use etherparse::{SlicedPacket, TransportSlice};
use sidestep_device::{Device, Hook, Mode, Options, Queue, Tuple};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub fn take(device: &Device) {
    let tuples = [("10.0.0.1:80", "10.0.0.2:4000"), ("[fd00::1]:80", "[fd00::2]:4000")];
    for (local, remote) in tuples {
        for vlan in [0, 7] {
            device.taken.add(&Tuple { vlan, ..Tuple::new(at(local), at(remote)) }).unwrap();
        }
    }
    sidestep_device::wait_for_programs();
}

#[test]
fn frames_of_taken_connections_arrive_byte_for_byte() {
    for hook in [Hook::Ingress, Hook::Generic] {
        let wire = Wire::new();
        let mut device = wire.open_with(&Options { mode: Mode::By(hook), ..small() });
        take(&device);
        let there = wire.packets(&wire.there);
        let packets =
            [taken(four(), b"hello"), taken(six(), &[9; 1400]), icmp_error_v4(), icmp_error_v6(), taken(four(), b"")];
        // Twice as many as there are frames, so that each is used again.
        for _ in 0..26 {
            for packet in &packets {
                for frame in [ethernet(packet), tagged(&[[0x8100, 0x2007]], packet)] {
                    there.send(&frame);
                    assert_eq!(next_frame(&mut device, 0), frame);
                }
            }
        }
        let statistics = device.queues[0].statistics().unwrap();
        assert_eq!((statistics.rx_dropped, statistics.rx_ring_full, statistics.rx_invalid_descs), (0, Some(0), 0));
    }
}

#[test]
fn a_batch_has_the_frames_in_order_and_no_more_than_asked_for() {
    let wire = Wire::new();
    let mut device = wire.open();
    take(&device);
    let there = wire.packets(&wire.there);
    let frames: Vec<Vec<u8>> = (0..40u8).map(|number| ethernet(&taken(four(), &[number; 100]))).collect();
    frames.iter().for_each(|frame| there.send(frame));
    let receiver = &mut device.queues[0].receiver;
    let mut received = Vec::new();
    until("not all frames came", || {
        let batch = receiver.receive(7);
        received.extend(batch.frames().map(|frame| frame.to_vec()));
        assert!(batch.frames().count() <= 7);
        received.len() == frames.len()
    });
    assert_eq!(received, frames);
    assert!(device.queues[0].receiver.receive(1).is_empty());
}

/// A frame of the greatest MTU takes three chunks.
#[test]
fn long_frames_arrive_byte_for_byte() {
    for hook in [Hook::Ingress, Hook::Generic] {
        let wire = Wire::with(1, 9000);
        let mut device = wire.open_with(&Options { mode: Mode::By(hook), ..small() });
        take(&device);
        let there = wire.packets(&wire.there);
        for length in [3000, 3700, 3800, 3900, 4096, 5000, 7900, 8000, 8948] {
            let payload: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let frame = ethernet(&taken(four(), &payload));
            for _ in 0..30 {
                there.send(&frame);
                assert_eq!(next_frame(&mut device, 0), frame, "{length} bytes");
            }
        }
    }
}

/// Segments that the peer's kernel joins for the device to cut (TSO) arrive joined: veth cuts nothing.
#[test]
fn joined_segments_arrive_whole() {
    let wire = Wire::new();
    let listener = wire.here.run(|| TcpListener::bind("10.0.0.1:0").unwrap());
    let mut client = wire.there.run(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    let (server, _) = listener.accept().unwrap();
    let mut device = wire.open_with(&Options { receive_frames: 1024, ..small() });
    device.taken.add(&Tuple::new(server.local_addr().unwrap(), server.peer_addr().unwrap())).unwrap();
    sidestep_device::wait_for_programs();
    // No more than the first window: nobody acknowledges anything.
    let sent: Vec<u8> = (0..14_000u32).map(|at| (at % 253) as u8).collect();
    client.write_all(&sent).unwrap();
    let (mut received, mut longest, mut first) = (vec![None; sent.len()], 0, None);
    until("not all bytes came", || {
        let frame = next_frame(&mut device, 0);
        let (sequence, payload) = payload_of(&frame);
        let at = sequence.wrapping_sub(*first.get_or_insert(sequence)) as usize;
        received[at..at + payload.len()].iter_mut().zip(payload).for_each(|(to, byte)| *to = Some(byte));
        longest = longest.max(frame.len());
        received.iter().all(Option::is_some)
    });
    assert!(received.into_iter().flatten().eq(sent));
    assert!(longest > 1514, "the kernel joins segments; the longest has {longest} bytes");
}

/// Sequence number and payload of a segment.
fn payload_of(frame: &[u8]) -> (u32, Vec<u8>) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(TransportSlice::Tcp(tcp)) = packet.transport else { panic!("no segment: {frame:02x?}") };
    (tcp.sequence_number(), tcp.payload().to_vec())
}

fn talk(wire: &Wire, address: &str) {
    let listener = wire.here.run(|| TcpListener::bind(at(address)).unwrap());
    let mut client = wire.there.run(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    let (mut server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    let sent: Vec<u8> = (0..1_000_000u32).map(|at| (at % 249) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| client.write_all(&sent).unwrap());
        let mut received = vec![0; sent.len()];
        server.read_exact(&mut received).unwrap();
        assert!(received == sent);
    });
    server.write_all(b"bye").unwrap();
    let mut end = [0; 3];
    client.read_exact(&mut end).unwrap();
    assert_eq!(&end, b"bye");
}

#[test]
fn other_connections_stay_with_the_kernel() {
    let wire = Wire::new();
    let mut device = wire.open();
    take(&device);
    talk(&wire, "10.0.0.1:8080");
    talk(&wire, "[fd00::1]:8080");
    assert!(device.queues[0].receiver.receive(1).is_empty());
}

#[test]
fn a_connection_that_is_removed_goes_back_to_the_kernel() {
    let wire = Wire::new();
    let mut device = wire.open();
    let listener = wire.here.run(|| TcpListener::bind("10.0.0.1:0").unwrap());
    let mut client = wire.there.run(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    let (mut server, _) = listener.accept().unwrap();
    let tuple = Tuple::new(server.local_addr().unwrap(), server.peer_addr().unwrap());
    device.taken.add(&tuple).unwrap();
    device.taken.add(&tuple).unwrap();
    sidestep_device::wait_for_programs();
    client.write_all(b"hello").unwrap();
    assert!(next_frame(&mut device, 0).ends_with(b"hello"));
    server.set_nonblocking(true).unwrap();
    assert_eq!(server.read(&mut [0; 8]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "the kernel saw nothing");
    assert!(device.taken.remove(&tuple).unwrap());
    assert!(!device.taken.remove(&tuple).unwrap());
    server.set_nonblocking(false).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    // The peer sends again what nobody has acknowledged.
    let mut received = [0; 5];
    server.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"hello");
}

/// Opens a device with so many queues, and has frames of many connections come by them. Returns the numbers of those that came by each
/// queue of the [`Device`].
fn spread_over_queues(hook: Hook, count: u32) -> Vec<usize> {
    let wire = Wire::with(count, 1500);
    let mut device = wire.open_with(&Options { mode: Mode::By(hook), ..small() });
    let ports = 5000..5060u16;
    for port in ports.clone() {
        device.taken.add(&Tuple::new(at("10.0.0.1:80"), at(&format!("10.0.0.2:{port}")))).unwrap();
    }
    sidestep_device::wait_for_programs();
    let there = wire.packets(&wire.there);
    let sent: BTreeSet<Vec<u8>> = ports.map(|port| ethernet(&segment(four(), [port, 80], b"q"))).collect();
    sent.iter().for_each(|frame| there.send(frame));
    let mut received = vec![BTreeSet::new(); device.queues.len()];
    until("not all frames came", || {
        for (queue, received) in device.queues.iter_mut().zip(&mut received) {
            received.extend(queue.receiver.receive(64).frames().map(|frame| frame.to_vec()));
        }
        received.iter().map(BTreeSet::len).sum::<usize>() == sent.len()
    });
    let counts = received.iter().map(BTreeSet::len).collect();
    assert!(device.queues.iter().map(Queue::number).eq(0..received.len() as u32));
    assert_eq!(received.into_iter().flatten().collect::<BTreeSet<_>>(), sent);
    counts
}

#[test]
fn each_queue_has_its_frames_by_xdp() {
    for (hook, count) in [(Hook::Native, 2), (Hook::Generic, 4)] {
        let counts = spread_over_queues(hook, count);
        assert_eq!(counts.len(), count as usize);
        let used = counts.iter().filter(|frames| **frames > 0).count();
        assert!(used >= 2, "the peer spreads connections over its queues");
    }
}

#[test]
fn frames_of_all_queues_are_diverted_to_one() {
    assert_eq!(spread_over_queues(Hook::Ingress, 4), [60]);
}

#[test]
fn a_queue_that_nobody_reads_drops_what_it_has_no_room_for_and_works_on() {
    let wire = Wire::new();
    let mut device = wire.open();
    take(&device);
    let there = wire.packets(&wire.there);
    let frame = ethernet(&taken(four(), b"flood"));
    for _ in 0..1000 {
        there.send(&frame);
    }
    let receiver = &mut device.queues[0].receiver;
    assert_eq!(receiver.receive(usize::MAX).frames().filter(|received| received.to_vec() == frame).count(), 64);
    there.send(&frame);
    assert_eq!(next_frame(&mut device, 0), frame);
}

/// Segments that the kernel of `here` has received.
fn segments(wire: &Wire) -> u64 {
    wire.here.run(|| {
        let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        let [names, values] =
            [0, 1].map(|line| text.lines().filter(|line| line.starts_with("Tcp:")).nth(line).unwrap());
        let found = names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == "InSegs").unwrap();
        found.1.parse().unwrap()
    })
}

/// From the end of the wait on, the kernel gets no segment more, however many are on their way.
#[test]
fn after_the_wait_the_kernel_sees_no_segment() {
    let wire = Wire::new();
    let device = wire.open();
    let tuple = Tuple::new(at("10.0.0.1:80"), at("10.0.0.2:4000"));
    let there = wire.packets(&wire.there);
    let frame = ethernet(&taken(four(), b"flood"));
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = OnDrop(|| ends.store(true, Ordering::SeqCst));
        scope.spawn(|| {
            while !ends.load(Ordering::SeqCst) {
                there.send(&frame);
            }
        });
        for round in 0..10 {
            let before = segments(&wire);
            until("the kernel sees nothing", || segments(&wire) > before + 1000);
            device.taken.add(&tuple).unwrap();
            sidestep_device::wait_for_programs();
            let (seen, dropped) = (segments(&wire), device.queues[0].statistics().unwrap().rx_dropped);
            until("nothing is delivered", || device.queues[0].statistics().unwrap().rx_dropped > dropped + 1000);
            assert_eq!(segments(&wire), seen, "round {round}");
            device.taken.remove(&tuple).unwrap();
        }
    });
}

/// A thread that waits uses no time: less than one tick of 10 ms in two seconds.
#[test]
fn a_waiting_thread_sleeps() {
    let wire = Wire::new();
    let device = wire.open();
    let used = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let before = used();
    assert!(!device.queues[0].wait(Some(Duration::from_secs(2))).unwrap());
    let spent = used() - before;
    println!("figure: CPU time of a thread that waits for 2 s: {spent:?}");
    assert!(spent < Duration::from_millis(10), "{spent:?}");
}
