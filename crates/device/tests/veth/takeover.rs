//! A process that drives the device is killed, and this one goes on with the same sockets.

use crate::frames::{EXPERIMENTAL, ethernet, four, taken};
use crate::packet_socket::PacketSocket;
use crate::receive::take;
use crate::wire::{OnDrop, PATIENCE, Wire, next_frame, until};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use sidestep_device::{Device, Error, Parts, Queue};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Says to the other process what it does: see [`driver`].
const ROLE: &str = "SIDESTEP_TEST_DRIVER";

/// Not a test: the process that is killed. Its standard input is a socket, by which it gets the device.
#[test]
#[ignore = "the others run it in processes of their own"]
fn driver() {
    let mut device = Device::from_parts(receive_parts(std::io::stdin().as_fd())).unwrap();
    let mut ready = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    match std::env::var(ROLE).as_deref() {
        Ok("echo") => loop {
            echo(&mut device.queues[0]);
        },
        Ok("hold") => {
            // As if it were killed while it looks at its batch.
            until("no frames", || {
                let batch = device.queues[0].receiver.receive(20);
                let is_full = batch.frames().count() == 20;
                std::mem::forget(batch);
                is_full
            });
            ready.write_all(b"!").unwrap();
            std::thread::sleep(PATIENCE); // until the kill
        }
        role => panic!("unknown role {role:?}"),
    }
}

/// Sends received frames back to the peer, as frames of no use.
fn echo(queue: &mut Queue) {
    queue.wait(Some(Duration::from_millis(20))).unwrap();
    let batch = queue.receiver.receive(16);
    let mut outgoing = queue.sender.outgoing();
    for frame in batch.frames() {
        let frame = frame.head();
        outgoing.push(&[&frame[6..12], &frame[..6], &EXPERIMENTAL.to_be_bytes(), &frame[14..]]);
    }
    outgoing.submit();
    drop(batch);
    queue.sender.kick().unwrap();
}

fn send_parts(socket: impl AsFd, parts: &Parts) {
    let descriptors = parts.descriptors();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    assert!(message.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(socket, &[IoSlice::new(b"d")], &mut message, SendFlags::empty()).unwrap();
}

fn receive_parts(socket: impl AsFd) -> Parts {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut message, RecvFlags::CMSG_CLOEXEC).unwrap();
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    for part in message.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    Parts::from_descriptors(descriptors).unwrap()
}

/// The other process, and the socket to it.
struct Driver {
    child: Child,
    socket: OwnedFd,
}

impl Driver {
    fn start(role: &str, parts: &Parts) -> Driver {
        let (socket, its) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "takeover::driver", "--ignored", "--nocapture"]).env(ROLE, role);
        let child = command.stdin(its).stdout(Stdio::null()).spawn().unwrap();
        send_parts(&socket, parts);
        Driver { child, socket }
    }

    fn kill(&mut self) {
        assert_eq!(self.child.try_wait().unwrap(), None, "it works until it is killed");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the sending thread does.
struct Load {
    runs: AtomicBool,
    paused: AtomicBool,
    ends: AtomicBool,
}

fn load(load: &Load, socket: &PacketSocket) {
    let frame = ethernet(&taken(four(), &[7; 64]));
    while !load.ends.load(Ordering::SeqCst) {
        if load.runs.load(Ordering::SeqCst) {
            load.paused.store(false, Ordering::SeqCst);
            socket.try_send(&frame);
        } else {
            load.paused.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1)); // until it runs again
        }
    }
}

fn count(ends: &AtomicBool, socket: &PacketSocket, echoes: &AtomicU32) {
    while !ends.load(Ordering::SeqCst) {
        if socket.receive(Duration::from_millis(20)).is_some() {
            echoes.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// With no load, every frame can be received into, and every frame can be sent.
fn assert_none_leaked(device: &mut Device, there: &PacketSocket, round: u32) {
    let queue = &mut device.queues[0];
    until("frames are still sent", || {
        queue.sender.kick().unwrap();
        queue.sender.outgoing().space() == 64
    });
    until("frames still come", || queue.receiver.receive(64).is_empty());
    let frame = ethernet(&taken(four(), &round.to_be_bytes()));
    for _ in 0..64 {
        there.send(&frame);
    }
    let batch = queue.receiver.receive(100);
    assert_eq!(batch.frames().filter(|received| received.to_vec() == frame).count(), 64, "round {round}");
}

/// Under load, at an instant that nobody chose.
#[test]
fn no_frame_is_lost_with_a_killed_process() {
    const ROUNDS: u32 = 40;
    let wire = Wire::new();
    let mut device = wire.open();
    take(&device);
    let (there, answers) = (wire.packets(&wire.there), wire.packets(&wire.there).only(EXPERIMENTAL));
    let checks = wire.packets(&wire.there);
    let state = Load { runs: AtomicBool::new(true), paused: AtomicBool::new(false), ends: AtomicBool::new(false) };
    let echoes = AtomicU32::new(0);
    let mut stalls = Vec::new();
    let mut unfinished = 0;
    std::thread::scope(|scope| {
        // Also if an assertion fails: the threads end, and the test with them.
        let _end = OnDrop(|| state.ends.store(true, Ordering::SeqCst));
        scope.spawn(|| load(&state, &there));
        scope.spawn(|| count(&state.ends, &answers, &echoes));
        for round in 0..ROUNDS {
            state.runs.store(true, Ordering::SeqCst);
            let parts = device.into_parts().unwrap();
            let before = echoes.load(Ordering::SeqCst);
            let mut driver = Driver::start("echo", &parts);
            until("the other process does not work", || echoes.load(Ordering::SeqCst) > before + 200);
            std::thread::sleep(Duration::from_micros(u64::from(round) * 97 % 2000)); // any instant is as good as another
            driver.kill();
            let began = Instant::now();
            device = Device::from_parts(parts).unwrap();
            stalls.push(began.elapsed());
            let waiting = device.queues[0].receiver.receive(64).frames().count() as u32;
            unfinished += u32::from(waiting > 0);
            let before = echoes.load(Ordering::SeqCst);
            until("this process does not go on", || {
                echo(&mut device.queues[0]);
                echoes.load(Ordering::SeqCst) > before + 10
            });
            state.runs.store(false, Ordering::SeqCst);
            until("the load goes on", || state.paused.load(Ordering::SeqCst));
            assert_none_leaked(&mut device, &checks, round);
            state.paused.store(false, Ordering::SeqCst);
        }
    });
    stalls.sort_unstable();
    println!(
        "figure: takeover after SIGKILL, {ROUNDS} times: median {:?}, longest {:?}",
        stalls[20],
        stalls[ROUNDS as usize - 1]
    );
    println!("figure: in {unfinished} of them the dead process had left frames in the ring");
    assert!(unfinished > 0, "the load is too low to prove anything");
}

#[test]
fn what_a_killed_process_had_not_given_back_is_received_again() {
    let wire = Wire::new();
    let device = wire.open();
    take(&device);
    let there = wire.packets(&wire.there);
    let parts = device.into_parts().unwrap();
    let frames: Vec<Vec<u8>> = (0..20u8).map(|number| ethernet(&taken(four(), &[number; 50]))).collect();
    frames.iter().for_each(|frame| there.send(frame));
    let mut driver = Driver::start("hold", &parts);
    let mut ready = UnixStream::from(driver.socket.try_clone().unwrap());
    ready.set_read_timeout(Some(PATIENCE)).unwrap();
    ready.read_exact(&mut [0]).unwrap();
    let refused = Device::from_parts(parts.try_clone().unwrap());
    assert!(matches!(refused, Err(Error::InUse)), "the other process still drives it");
    driver.kill();
    let mut device = Device::from_parts(parts).unwrap();
    let received: Vec<Vec<u8>> = frames.iter().map(|_| next_frame(&mut device, 0)).collect();
    assert_eq!(received, frames);
}

#[test]
fn what_was_submitted_is_sent_by_the_next_holder() {
    let wire = Wire::new();
    let mut device = wire.open();
    let there = wire.packets(&wire.there).only(EXPERIMENTAL);
    let frame = crate::frames::experimental(crate::wire::HERE, crate::wire::THERE, 1, 99);
    let mut outgoing = device.queues[0].sender.outgoing();
    assert!(outgoing.push(&[&frame]));
    outgoing.submit();
    let mut device = Device::from_parts(device.into_parts().unwrap()).unwrap();
    device.queues[0].sender.kick().unwrap();
    assert_eq!(there.receive(PATIENCE).unwrap(), frame);
}

#[test]
fn other_descriptors_are_refused() {
    let wire = Wire::new();
    let device = wire.open();
    let all = || -> Vec<OwnedFd> {
        let parts = device.parts().unwrap();
        parts.descriptors().into_iter().map(|fd| fd.try_clone_to_owned().unwrap()).collect()
    };
    let shifted = Parts::from_descriptors(all().split_off(1)).and_then(Device::from_parts);
    assert!(matches!(shifted, Err(Error::NotADevice(_))));
    assert!(matches!(Parts::from_descriptors(all().split_off(4)), Err(Error::NotADevice(_))));
    assert!(matches!(Parts::from_descriptors(Vec::new()), Err(Error::NotADevice(_))));
    let copies = all();
    drop(device);
    for (one, other) in [(2, 0), (4, 3)] {
        let mut wrong: Vec<OwnedFd> = copies.iter().map(|fd| fd.try_clone().unwrap()).collect();
        wrong[one] = copies[other].try_clone().unwrap();
        let refused = Device::from_parts(Parts::from_descriptors(wrong).unwrap());
        assert!(matches!(refused, Err(Error::NotADevice(_))), "descriptor {other} in place of {one}");
    }
}
