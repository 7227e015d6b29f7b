//! Which capabilities are needed.

use crate::frames::{EXPERIMENTAL, ethernet, experimental, four, taken};
use crate::receive::take;
use crate::wire::{HERE, PATIENCE, THERE, Wire, flow, next_frame, small, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use sidestep_device::path::{NoPath, refresh, resolve};
use sidestep_device::watch::Watch;
use sidestep_device::{Device, Options, Parts, Tuple, probe};
use std::net::IpAddr;
use std::sync::Mutex;

const ALL: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::NET_ADMIN).union(CapabilitySet::NET_RAW);

/// The limit is the whole process's, and other tests' threads open devices, too.
static LIMIT: Mutex<()> = Mutex::new(());

/// Runs `work` in the namespace `here` on a thread that has these capabilities only.
fn with<T: Send>(wire: &Wire, capabilities: CapabilitySet, work: impl FnOnce() -> T + Send) -> T {
    wire.here.run(|| {
        let sets =
            CapabilitySets { effective: capabilities, permitted: capabilities, inheritable: CapabilitySet::empty() };
        set_capabilities(None, sets).unwrap();
        work()
    })
}

fn open(options: &Options) -> sidestep_device::Result<Device> {
    Device::open("eth0", options)
}

#[test]
fn three_capabilities_suffice_for_everything() {
    let wire = Wire::new();
    let there = wire.packets(&wire.there);
    let answers = wire.packets(&wire.there).only(EXPERIMENTAL);
    with(&wire, ALL, || {
        let mut device = open(&small()).unwrap();
        take(&device);
        let frame = ethernet(&taken(four(), b"rights"));
        there.send(&frame);
        assert_eq!(next_frame(&mut device, 0), frame);
        device.injector.inject(&frame).unwrap();
        assert_eq!(next_frame(&mut device, 0), frame);
        let sent = experimental(HERE, THERE, 1, 100);
        let mut outgoing = device.queues[0].sender.outgoing();
        assert!(outgoing.push(&[&sent]));
        outgoing.submit();
        device.queues[0].sender.kick().unwrap();
        assert_eq!(answers.receive(PATIENCE).unwrap(), sent);
        resolve(&flow("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())).unwrap_err();
        Device::from_parts(device.into_parts().unwrap()).unwrap();
    });
}

#[test]
fn each_of_them_is_needed_to_open_a_device() {
    let wire = Wire::new();
    for missing in [CapabilitySet::BPF, CapabilitySet::NET_ADMIN, CapabilitySet::NET_RAW] {
        let error = with(&wire, ALL.difference(missing), || open(&small()).err()).expect("it is refused");
        let names =
            [("BPF", CapabilitySet::BPF), ("NET_ADMIN", CapabilitySet::NET_ADMIN), ("NET_RAW", CapabilitySet::NET_RAW)];
        let (name, _) = names.into_iter().find(|(_, capability)| *capability == missing).unwrap();
        assert!(error.to_string().contains(&format!("CAP_{name}")), "{error}");
    }
    with(&wire, ALL, || open(&small()).map(drop)).unwrap();
}

#[test]
fn memory_above_the_limit_takes_another_capability() {
    let wire = Wire::new();
    let _turn = LIMIT.lock().unwrap();
    let before = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, Rlimit { current: Some(8 << 20), ..before }).unwrap();
    let options = Options { receive_frames: 2048, ..small() };
    let error = with(&wire, ALL, || open(&options).err()).expect("more than 8 MiB");
    assert!(error.to_string().contains("CAP_IPC_LOCK"), "{error}");
    with(&wire, ALL | CapabilitySet::IPC_LOCK, || open(&options).map(drop)).unwrap();
    setrlimit(Resource::Memlock, before).unwrap();
}

/// A process that got the descriptors has what they stand for: to keep them is to keep the right.
#[test]
fn a_process_that_got_the_descriptors_needs_no_capability() {
    let wire = Wire::new();
    let device = wire.open();
    take(&device);
    let parts: Parts = device.into_parts().unwrap();
    let there = wire.packets(&wire.there);
    let tuple = Tuple::new("10.0.0.1:1".parse().unwrap(), "10.0.0.2:1".parse().unwrap());
    let frame = ethernet(&taken(four(), b"rights"));
    with(&wire, CapabilitySet::empty(), || {
        let mut device = Device::from_parts(parts).unwrap();
        there.send(&frame);
        assert_eq!(next_frame(&mut device, 0), frame);
        let mut outgoing = device.queues[0].sender.outgoing();
        assert!(outgoing.push(&[&experimental(HERE, THERE, 1, 100)]));
        outgoing.submit();
        device.queues[0].sender.kick().unwrap();
        device.taken.add(&tuple).unwrap();
        assert!(device.taken.remove(&tuple).unwrap());
        device.injector.inject(&frame).unwrap();
        assert_eq!(next_frame(&mut device, 0), frame);
        probe("eth0").unwrap();
        Watch::open().unwrap().changes().unwrap();
    });
}

#[test]
fn only_asking_a_neighbour_takes_one() {
    let wire = Wire::new();
    let [local, remote]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
    let flow = flow(local, remote);
    let refused = with(&wire, CapabilitySet::empty(), || resolve(&flow)).unwrap_err();
    assert!(matches!(refused, NoPath::Kernel { .. }), "an unknown neighbour has to be asked: {refused:?}");
    let mut path = None;
    until("the neighbour is not found", || {
        path = with(&wire, CapabilitySet::NET_ADMIN, || resolve(&flow)).ok();
        path.is_some()
    });
    let path = path.unwrap();
    assert_eq!(with(&wire, CapabilitySet::empty(), || resolve(&flow)).unwrap().destination, THERE);
    assert_eq!(
        with(&wire, CapabilitySet::empty(), || refresh(&path)).unwrap_err().kind(),
        std::io::ErrorKind::PermissionDenied
    );
    with(&wire, CapabilitySet::NET_ADMIN, || refresh(&path)).unwrap();
}
