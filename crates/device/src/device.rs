//! A device with its queues.

use crate::attach::{self, Hook};
use crate::error::{Error, Result};
use crate::inject::Injector;
use crate::inlet::{self, Inlet};
use crate::layout::{CHUNK, HEADROOM, Layout};
use crate::parts::{Parts, copy};
use crate::port::{Port, Transfer};
use crate::probe::{self, Report};
use crate::program;
use crate::queue::{Before, Queue};
use crate::taken::Taken;
use crate::umem::{self, Umem};
use crate::watch::Change;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

/// Where the program runs, and who copies frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// What [`Report::hook`] says, or generic XDP where tc ingress is not to be had.
    #[default]
    Auto,
    /// At this place.
    By(Hook),
}

/// How a device is opened. Each of its queues has frames of its own, since a queue without a socket would drop what is taken. If frames
/// are diverted, they all come by one queue.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Where the program runs.
    pub mode: Mode,
    /// Number of frames to receive of each queue, a power of two from 64 to 32768. Each takes [`CHUNK`] bytes.
    pub receive_frames: u32,
    /// Number of frames to send of each queue, likewise.
    pub send_frames: u32,
    /// The most connections that can be taken at a time.
    pub taken: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { mode: Mode::Auto, receive_frames: 4096, send_frames: 2048, taken: 65536 }
    }
}

/// A device whose taken connections this process serves.
pub struct Device {
    /// All queues of the device. Each may be used by a thread of its own.
    pub queues: Vec<Queue>,
    /// The taken connections: none at first.
    pub taken: Taken,
    /// Hands frames to the kernel.
    pub injector: Injector,
    /// Why the program is not where [`Mode::Auto`] would have it.
    pub hindrance: Option<Error>,
    link: OwnedFd,
    /// If frames are diverted: the inlet, and the link of its program.
    inlet: Option<[OwnedFd; 2]>,
}

impl Device {
    /// Opens the device of this name in the thread's network namespace: makes sockets for all its queues, and attaches the program.
    /// It is detached when the last descriptor of the device is closed ([`Parts`] has copies).
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`], [`Error::ForeignProgram`], [`Error::Frames`], and those of the steps, which say what they need.
    pub fn open(name: &str, options: &Options) -> Result<Device> {
        let report = probe::probe(name)?;
        match options.mode {
            Mode::By(hook) => open_by(&report, options, hook),
            Mode::Auto if report.hook() == Hook::Native => open_by(&report, options, Hook::Native),
            Mode::Auto => match open_by(&report, options, Hook::Ingress) {
                Err(error @ (Error::Inlet { .. } | Error::Attach { .. })) => {
                    let device = open_by(&report, options, Hook::Generic)?;
                    Ok(Device { hindrance: Some(error), ..device })
                }
                opened => opened,
            },
        }
    }

    /// Index of the device.
    pub fn index(&self) -> u32 {
        self.queues[0].port().umem.layout().device
    }

    /// Whether this change is the end of the inlet: no frame comes any more, and the device's program still diverts them.
    pub fn is_ended_by(&self, change: &Change) -> bool {
        let inlet = self.queues[0].port().umem.layout().inlet;
        matches!(*change, Change::Link { device, up: None } if Some(device) == inlet)
    }

    /// Copies of the device's descriptors, for a process that keeps them or will drive the device next.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: the process has too many descriptors.
    pub fn parts(&self) -> Result<Parts> {
        let queue = |queue: &Queue| Ok([copy(queue.port().sending())?, copy(queue.port().umem.file())?]);
        let of_inlet = |[inlet, link]: &[OwnedFd; 2]| {
            Ok([copy(inlet.as_fd())?, copy(link.as_fd())?, copy(self.queues[0].port().receiving())?])
        };
        Ok(Parts {
            link: copy(self.link.as_fd())?,
            inject: copy(self.injector.program())?,
            taken: copy(self.taken.map())?,
            queues: self.queues.iter().map(queue).collect::<Result<_>>()?,
            inlet: self.inlet.as_ref().map(of_inlet).transpose()?,
        })
    }

    /// What says that this process drives the queues: for [`crate::end_claim`], by a process that knows that this one has ended.
    pub fn claims(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.port().umem.claim())
    }

    /// Stops driving the device: [`Device::from_parts`] goes on, in whatever process. Taken connections stay taken, and frames stay
    /// in the rings.
    ///
    /// # Errors
    ///
    /// Those of [`Device::parts`].
    pub fn into_parts(self) -> Result<Parts> {
        self.parts()
    }

    /// Goes on with a device whose former process has ended, in whatever way. Its received frames that were not given back are
    /// received again; all that it had submitted is sent.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`]: the former process has not ended. [`Error::NotADevice`]: the descriptors are others. [`Error::Call`]: the
    /// device was removed, so its rings cannot be mapped any more; what was in them is lost, and the peers send it again.
    /// [`Error::Inlet`]: somebody has set the inlet down.
    pub fn from_parts(parts: Parts) -> Result<Device> {
        let (inlet, mut receiving) = match parts.inlet {
            Some([inlet, link, socket]) => (Some([inlet, link]), Some(socket)),
            None => (None, None),
        };
        // All frames come by the first queue, if there is an inlet.
        let adopt = |[socket, umem]: [OwnedFd; 2]| {
            let port = Port { socket, of_inlet: receiving.take(), umem: Umem::map(umem)? };
            Queue::new(port, Before::Used)
        };
        let queues: Vec<Queue> = parts.queues.into_iter().map(adopt).collect::<Result<_>>()?;
        let layout = *queues.first().ok_or(Error::NotADevice("there is no queue"))?.port().umem.layout();
        inlet.iter().try_for_each(|[file, _]| inlet::must_be_up(file.as_fd()))?;
        let injector = Injector::new(parts.inject, layout.device);
        Ok(Device { queues, taken: Taken::new(parts.taken)?, injector, hindrance: None, link: parts.link, inlet })
    }
}

/// In the kernel's receive path, the peer's segments may come joined, up to 64 KiB long. Zero copy is less often there for long frames,
/// so a native socket asks for them only if the MTU does.
fn has_long_frames(hook: Hook, mtu: u32) -> bool {
    hook != Hook::Native || mtu as usize + LINK_HEADER > CHUNK - HEADROOM
}

/// Ethernet's, with two VLAN tags.
const LINK_HEADER: usize = 14 + 2 * 4;

fn open_by(report: &Report, options: &Options, hook: Hook) -> Result<Device> {
    if let (Some(id), Hook::Generic | Hook::Native) = (report.program, hook) {
        return Err(Error::ForeignProgram { device: report.name.clone(), id });
    }
    let inlet = (hook == Hook::Ingress).then(Inlet::new).transpose()?;
    let queues = if inlet.is_some() { 1 } else { report.queues };
    let index = inlet.as_ref().map(Inlet::index);
    let loaded = program::load(options.taken.max(1), queues, hook, index)?;
    let open = |queue| {
        let opened = open_queue(report, options, hook, queue, index)?;
        loaded.set_socket(queue, opened.as_fd()).map_err(|source| {
            let (device, doing) = (report.name.clone(), "tell the program of the AF_XDP socket");
            Error::Queue { device, queue, doing, source }
        })?;
        Ok(opened)
    };
    let queues = (0..queues).map(open).collect::<Result<_>>()?;
    let of_inlet = match (inlet, &loaded.of_inlet) {
        (Some(inlet), Some(program)) => {
            let link = attach::attach(program.as_fd(), inlet.name(), inlet.index(), Hook::Generic)?;
            Some([inlet.into_file(), link])
        }
        _ => None,
    };
    let link = attach::attach(loaded.of_device.as_fd(), &report.name, report.index, hook)?;
    let (taken, injector) = (Taken::new(loaded.taken)?, Injector::new(loaded.inject, report.index));
    Ok(Device { queues, taken, injector, hindrance: None, link, inlet: of_inlet })
}

fn open_queue(report: &Report, options: &Options, hook: Hook, queue: u32, inlet: Option<u32>) -> Result<Queue> {
    let (receive_frames, send_frames) = (options.receive_frames, options.send_frames);
    let several_chunks = has_long_frames(hook, report.mtu);
    let layout = Layout { device: report.index, queue, receive_frames, send_frames, several_chunks, inlet };
    let umem = Umem::map(umem::create(&layout)?)?;
    let transfer = if hook == Hook::Native { Transfer::Any } else { Transfer::Copy };
    Queue::new(Port::open(&report.name, umem, transfer)?, Before::Nothing)
}

/// Processes that are killed between two stores. Needs root.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuple::Tuple;
    use sidestep_testkit::Namespace;

    const FRAMES: u32 = 64;

    /// A device in a network namespace of its own, with one taken connection.
    fn open() -> (Namespace, Device) {
        let namespace = Namespace::fresh();
        namespace.ip("link add eth0 type veth peer name eth1");
        namespace.ip("link set eth0 up");
        namespace.ip("link set eth1 up");
        let options = Options { receive_frames: FRAMES, send_frames: FRAMES, ..Options::default() };
        let device = namespace.run(|| Device::open("eth0", &options)).unwrap();
        let [local, remote] = ["10.0.0.1:80", "10.0.0.2:4000"].map(|end| end.parse().unwrap());
        device.taken.add(&Tuple::new(local, remote)).unwrap();
        (namespace, device)
    }

    /// A segment of that connection.
    fn frame(number: u8) -> Vec<u8> {
        let mut frame = vec![0; 64];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[23] = 6;
        frame[26..38].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1, 15, 160, 0, 80]);
        frame[60] = number;
        frame
    }

    /// Makes the device receive frames.
    fn arrive(namespace: &Namespace, device: &Device, numbers: std::ops::Range<u8>) {
        let injector = &device.injector;
        namespace.run(|| numbers.for_each(|number| injector.inject(&frame(number)).unwrap()));
    }

    fn received(device: &mut Device) -> Vec<Vec<u8>> {
        device.queues[0].receiver.receive(usize::MAX).frames().map(|frame| frame.to_vec()).collect()
    }

    #[test]
    fn after_frames_were_put_into_the_fill_ring_each_is_in_one_place() {
        let (namespace, mut device) = open();
        for round in 0..4 {
            arrive(&namespace, &device, 0..40);
            let receiver = &mut device.queues[0].receiver;
            let (from, there) = receiver.there();
            assert_eq!(there, 40);
            receiver.refill(from, 10 * round);
            device = Device::from_parts(device.into_parts().unwrap()).unwrap();
            let left: Vec<Vec<u8>> = (10 * round as u8..40).map(frame).collect();
            assert_eq!(received(&mut device), left, "what was given back does not come again");
            let all: Vec<Vec<u8>> = (0..FRAMES as u8).map(frame).collect();
            arrive(&namespace, &device, 0..FRAMES as u8 + 8);
            assert_eq!(received(&mut device), all, "no frame is lost, none is used twice");
        }
    }

    #[test]
    fn after_frames_were_put_into_the_send_ring_each_is_in_one_place() {
        let (_namespace, mut device) = open();
        for round in 0..4u32 {
            let sender = &mut device.queues[0].sender;
            let mut outgoing = sender.outgoing();
            for number in 0..50 {
                assert!(outgoing.push(&[&frame(number)]), "round {round}: {number}");
            }
            outgoing.publish();
            device = Device::from_parts(device.into_parts().unwrap()).unwrap();
            let sender = &mut device.queues[0].sender;
            assert_eq!(sender.outgoing().space() as u32, FRAMES - 50, "round {round}: 50 are in the ring");
            sender.kick().unwrap();
            assert_eq!(sender.outgoing().space() as u32, FRAMES);
            assert_eq!(addresses(sender), (FRAMES..2 * FRAMES).map(u64::from).collect(), "each is free once");
        }
    }

    /// Numbers of the frames that a batch uses, which is discarded.
    fn addresses(sender: &mut crate::send::Sender) -> std::collections::BTreeSet<u64> {
        let mut outgoing = sender.outgoing();
        let next = |_| {
            let address = outgoing.address().unwrap();
            outgoing.commit(1);
            address / CHUNK as u64
        };
        (0..FRAMES).map(next).collect()
    }
}
