//! Two network namespaces that a veth pair joins.

use crate::packet_socket::PacketSocket;
use sidestep_device::path::Flow;
use sidestep_device::{Device, Mode, Options};
use sidestep_testkit::Namespace;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Long enough for anything to happen, whatever else the machine does.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const HERE: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const THERE: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// `here` has the device that is opened, `there` its peer. Both are called eth0.
pub struct Wire {
    pub here: Namespace,
    pub there: Namespace,
}

impl Wire {
    pub fn new() -> Wire {
        Wire::with(1, 1500)
    }

    pub fn with(queues: u32, mtu: u32) -> Wire {
        let (here, there) = (Namespace::fresh(), Namespace::fresh());
        let end =
            |mac| format!("eth0 address 02:00:00:00:00:0{mac} mtu {mtu} numrxqueues {queues} numtxqueues {queues}");
        here.ip(&format!("link add {} type veth peer {} netns {}", end(1), end(2), there.name()));
        for (namespace, number) in [(&here, 1), (&there, 2)] {
            namespace.ip(&format!("addr add 10.0.0.{number}/24 dev eth0"));
            namespace.ip(&format!("-6 addr add fd00::{number}/64 dev eth0 nodad"));
            namespace.ip("link set eth0 up");
        }
        Wire { here, there }
    }

    /// Opens the device with few frames, so that their rings wrap often.
    pub fn open(&self) -> Device {
        self.open_with(&small())
    }

    pub fn open_with(&self, options: &Options) -> Device {
        self.wait_until_free();
        self.here.run(|| Device::open("eth0", options)).unwrap_or_else(|error| panic!("{error}: {error:?}"))
    }

    /// Children of other tests have a copy of each descriptor between fork and exec, so what was closed can live a little longer.
    pub fn wait_until_free(&self) {
        until("a program is attached", || self.here.run(|| sidestep_device::probe("eth0").unwrap().program.is_none()));
    }

    /// A packet socket at the device of either namespace.
    pub fn packets(&self, namespace: &Namespace) -> PacketSocket {
        namespace.run(|| PacketSocket::new(sidestep_device::probe("eth0").unwrap().index))
    }
}

pub fn small() -> Options {
    Options { mode: Mode::Auto, receive_frames: 64, send_frames: 64, taken: 1024 }
}

pub fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A connection of root.
pub fn flow(local: IpAddr, remote: IpAddr) -> Flow {
    Flow { local: SocketAddr::new(local, 1000), remote: SocketAddr::new(remote, 2000), user: 0, traffic_class: 0 }
}

/// The next received frame of the queue.
pub fn next_frame(device: &mut Device, queue: usize) -> Vec<u8> {
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "no frame came");
        let queue = &mut device.queues[queue];
        queue.wait(Some(PATIENCE)).unwrap();
        if let Some(frame) = queue.receiver.receive(1).frames().next() {
            return frame.to_vec();
        }
    }
}

/// Waits until this is true.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1)); // between two looks
    }
}

/// Does something at the end of a block, also if an assertion in it fails.
pub struct OnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
