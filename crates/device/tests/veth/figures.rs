//! How fast it is. Each test prints its figures, and fails if frames are lost that had room.

use crate::frames::{EXPERIMENTAL, ethernet, experimental, four, taken};
use crate::receive::take;
use crate::wire::{HERE, PATIENCE, THERE, Wire, at, until};
use sidestep_device::{Hook, Mode, Options, Tuple};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// One measures at a time. The machine may still be busy with other tests.
static TURN: Mutex<()> = Mutex::new(());

const TIME: Duration = Duration::from_secs(1);

fn options(hook: Hook) -> Options {
    Options { mode: Mode::By(hook), receive_frames: 4096, send_frames: 4096, taken: 1024 }
}

fn rate(count: u64, began: Instant) -> u64 {
    (count as f64 / began.elapsed().as_secs_f64()) as u64
}

/// Frames that the device in `there` has received.
fn received_by(wire: &Wire) -> u64 {
    wire.there.run(|| {
        let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let line = text.lines().find(|line| line.trim().starts_with("eth0:")).unwrap();
        line.split_whitespace().nth(2).unwrap().parse().unwrap()
    })
}

fn measure_receive(hook: Hook, mtu: u32, length: usize) {
    let wire = Wire::with(1, mtu);
    let mut device = wire.open_with(&options(hook));
    take(&device);
    let there = wire.packets(&wire.there);
    let frame = ethernet(&taken(four(), &vec![7; length - 54]));
    let ends = AtomicBool::new(false);
    let (mut received, mut sent) = (0u64, 0u64);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut sent = 0;
            while began.elapsed() < TIME {
                (0..64).for_each(|_| there.send(&frame));
                sent += 64;
            }
            ends.store(true, Ordering::SeqCst);
            sent
        });
        let queue = &mut device.queues[0];
        loop {
            let was_over = ends.load(Ordering::SeqCst);
            queue.wait(Some(Duration::from_millis(1))).unwrap();
            let batch = queue.receiver.receive(256);
            let bytes = batch.frames().map(|frame| frame.length()).inspect(|bytes| assert_eq!(*bytes, length));
            let count = bytes.count() as u64;
            received += count;
            if was_over && count == 0 {
                break;
            }
        }
        sent = sender.join().unwrap();
    });
    let rate = rate(received, began);
    println!("figure: receive, {hook:?}, {length} bytes: {rate} frames/s ({received} of {sent})");
    let statistics = device.queues[0].statistics().unwrap();
    let dropped = statistics.rx_dropped + statistics.rx_fill_ring_empty_descs.unwrap_or(0);
    assert!(received <= sent && received + dropped >= sent, "lost without a reason: {statistics:?}");
}

fn measure_send(hook: Hook, mtu: u32, length: usize) {
    let wire = Wire::with(1, mtu);
    let mut device = wire.open_with(&options(hook));
    let frame = experimental(HERE, THERE, 5, length);
    let sender = &mut device.queues[0].sender;
    let (before, began) = (received_by(&wire), Instant::now());
    let mut sent = 0;
    while began.elapsed() < TIME {
        let mut outgoing = sender.outgoing();
        sent += (0..64).take_while(|_| outgoing.push(&[&frame])).count() as u64;
        outgoing.submit();
        sender.kick().unwrap();
    }
    until("frames are left", || {
        sender.kick().unwrap();
        sender.waiting() == 0
    });
    let rate = rate(sent, began);
    println!("figure: send, {hook:?}, {length} bytes: {rate} frames/s");
    let mut arrived = 0;
    until("frames are lost on the way", || {
        arrived = received_by(&wire) - before;
        arrived >= sent
    });
}

#[test]
fn frames_per_second() {
    let _turn = TURN.lock().unwrap();
    for hook in [Hook::Ingress, Hook::Generic, Hook::Native] {
        for length in [128, 1514] {
            measure_receive(hook, 1500, length);
            measure_send(hook, 1500, length);
        }
    }
}

/// A frame of three chunks, against one that just fits into a chunk.
#[test]
fn long_frames_per_second() {
    let _turn = TURN.lock().unwrap();
    for hook in [Hook::Ingress, Hook::Generic] {
        for length in [3800, 9014] {
            measure_receive(hook, 9000, length);
            measure_send(hook, 9000, length);
        }
    }
}

/// The time from a frame of the peer's to the answer, both by system calls of ours: what a request costs at least.
#[test]
fn a_round_trip() {
    let _turn = TURN.lock().unwrap();
    for hook in [Hook::Ingress, Hook::Generic] {
        measure_round_trip(hook);
    }
}

fn measure_round_trip(hook: Hook) {
    const COUNT: usize = 3000;
    let wire = Wire::new();
    let mut device = wire.open_with(&options(hook));
    take(&device);
    let there = wire.packets(&wire.there);
    let answers = wire.packets(&wire.there).only(EXPERIMENTAL);
    let ends = AtomicBool::new(false);
    let mut times: Vec<Duration> = Vec::new();
    std::thread::scope(|scope| {
        let queue = &mut device.queues[0];
        scope.spawn(|| {
            while !ends.load(Ordering::SeqCst) {
                queue.wait(Some(Duration::from_millis(20))).unwrap();
                let batch = queue.receiver.receive(16);
                let mut outgoing = queue.sender.outgoing();
                for frame in batch.frames() {
                    let frame = frame.head();
                    assert!(outgoing.push(&[&frame[6..12], &frame[..6], &EXPERIMENTAL.to_be_bytes(), &frame[14..]]));
                }
                outgoing.submit();
                drop(batch);
                queue.sender.kick().unwrap();
            }
        });
        let frame = ethernet(&taken(four(), &[1; 128]));
        for _ in 0..COUNT {
            let began = Instant::now();
            there.send(&frame);
            let answer = answers.receive(PATIENCE);
            times.push(began.elapsed());
            if answer.is_none() {
                break;
            }
        }
        ends.store(true, Ordering::SeqCst);
    });
    assert_eq!(times.len(), COUNT);
    times.sort_unstable();
    println!(
        "figure: round trip of 128 bytes, {hook:?}: median {:?}, P90 {:?}",
        times[COUNT / 2],
        times[COUNT * 9 / 10]
    );
    assert!(times[COUNT / 2] < Duration::from_millis(20));
}

fn bulk(wire: &Wire) -> f64 {
    let listener = wire.here.run(|| TcpListener::bind("10.0.0.1:0").unwrap());
    let mut client = wire.there.run(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    let (mut server, _) = listener.accept().unwrap();
    let began = Instant::now();
    let received = std::thread::scope(|scope| {
        scope.spawn(move || {
            let block = vec![1; 65536];
            while began.elapsed() < TIME {
                client.write_all(&block).unwrap();
            }
        });
        let mut block = vec![0; 65536];
        let mut received = 0;
        loop {
            match server.read(&mut block).unwrap() {
                0 => return received,
                count => received += count,
            }
        }
    });
    received as f64 / began.elapsed().as_secs_f64() / 1e9
}

/// Requests of 16 KB, each answered by as much, in a second.
fn requests(wire: &Wire) -> f64 {
    const SIZE: usize = 16384;
    let listener = wire.here.run(|| TcpListener::bind("10.0.0.1:0").unwrap());
    let mut client = wire.there.run(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    let (mut server, _) = listener.accept().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut block = vec![0; SIZE];
            while server.read_exact(&mut block).is_ok() && server.write_all(&block).is_ok() {}
        });
        let (began, mut count, mut block) = (Instant::now(), 0, vec![1; SIZE]);
        while began.elapsed() < TIME {
            client.write_all(&block).unwrap();
            client.read_exact(&mut block).unwrap();
            count += 1;
        }
        client.shutdown(Shutdown::Both).unwrap();
        f64::from(count) / began.elapsed().as_secs_f64()
    })
}

/// What traffic that is not taken loses, in each mode.
#[test]
fn other_connections() {
    let _turn = TURN.lock().unwrap();
    let wire = Wire::new();
    let mut found = [const { Vec::new() }; 8];
    for _ in 0..3 {
        let hooks = [None, Some(Hook::Ingress), Some(Hook::Generic), Some(Hook::Native)];
        for (number, hook) in hooks.into_iter().enumerate() {
            let device = hook.map(|hook| wire.open_with(&options(hook)));
            let other = Tuple::new(at("10.0.0.1:1"), at("10.0.0.2:1"));
            device.iter().for_each(|device| device.taken.add(&other).unwrap());
            found[number * 2].push(bulk(&wire));
            found[number * 2 + 1].push(requests(&wire));
        }
    }
    let best = found.map(|figures| figures.into_iter().fold(0.0, f64::max));
    for (name, figures) in ["no program", "tc ingress", "generic", "native"].iter().zip(best.chunks(2)) {
        println!("figure: other connections, {name}: bulk {:.2} GB/s, 16 KB requests {:.0}/s", figures[0], figures[1]);
    }
    assert!(best[2] > best[0] / 4.0, "the program costs far too much");
}
