//! Devices that come, go, or belong to others.

use crate::frames::{EXPERIMENTAL, ethernet, experimental, four, taken};
use crate::receive::take;
use crate::wire::{HERE, PATIENCE, THERE, Wire, next_frame, small, until};
use sidestep_device::probe::Concern;
use sidestep_device::watch::{Change, Watch};
use sidestep_device::{Device, Error, Hook, Mode, Options, probe};
use std::time::Duration;

fn by(hook: Hook) -> Options {
    Options { mode: Mode::By(hook), ..small() }
}

#[test]
fn the_program_goes_with_the_last_holder() {
    let wire = Wire::new();
    let program = || wire.here.run(|| probe("eth0").unwrap().program);
    assert_eq!(program(), None);
    let device = wire.open_with(&by(Hook::Generic));
    assert!(program().is_some());
    let parts = device.parts().unwrap();
    drop(device);
    assert!(program().is_some(), "another holder");
    let device = Device::from_parts(parts).unwrap();
    drop(device);
    wire.wait_until_free();
    wire.open();
}

/// Names of devices that frames are diverted to.
fn inlets(wire: &Wire) -> Vec<String> {
    let links = wire.here.run(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    let names = links.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim().to_owned());
    names.filter(|name| name.starts_with("sidestep")).collect()
}

#[test]
fn the_inlet_goes_with_the_last_holder() {
    let wire = Wire::new();
    let device = wire.open();
    let inlet = inlets(&wire);
    assert_eq!(inlet.len(), 1, "{inlet:?}");
    let report = wire.here.run(|| probe(&inlet[0]).unwrap());
    assert!(report.program.is_some() && report.mtu > 65000, "{report:?}");
    assert_eq!(wire.here.run(|| probe("eth0").unwrap().program), None, "the device itself has no XDP program");
    let addresses = wire.here.run(|| std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap());
    assert!(addresses.contains("eth0") && !addresses.contains(&inlet[0]), "{addresses}");
    let parts = device.parts().unwrap();
    drop(device);
    assert_eq!(inlets(&wire), inlet, "another holder");
    drop(Device::from_parts(parts).unwrap());
    until("the inlet stays", || inlets(&wire).is_empty());
}

/// By somebody else. The frames of what is taken are lost then, and whoever drives the device must learn of it.
#[test]
fn an_inlet_that_is_set_down_is_reported() {
    let wire = Wire::new();
    let mut device = wire.open();
    take(&device);
    let mut watch = wire.here.run(|| Watch::open().unwrap());
    let inlet = inlets(&wire).remove(0);
    wire.here.ip(&format!("link set {inlet} down"));
    until("the watch says nothing", || watch.changes().unwrap().iter().any(|change| device.is_ended_by(change)));
    let parts = device.into_parts().unwrap();
    let refused = Device::from_parts(parts.try_clone().unwrap());
    assert!(matches!(refused, Err(Error::Inlet { .. })));
    wire.here.ip(&format!("link set {inlet} up"));
    device = Device::from_parts(parts).unwrap();
    let frame = ethernet(&taken(four(), b"up again"));
    wire.packets(&wire.there).send(&frame);
    assert_eq!(next_frame(&mut device, 0), frame);
    wire.here.ip(&format!("link del {inlet}"));
    until("the watch says nothing", || watch.changes().unwrap().iter().any(|change| device.is_ended_by(change)));
    assert!(Device::from_parts(device.into_parts().unwrap()).is_err());
}

/// On a thread whose /dev/net/tun is another device.
#[test]
fn without_an_inlet_the_device_is_opened_by_generic_xdp() {
    let wire = Wire::new();
    wire.here.run(|| {
        let [null, tun, root] = [c"/dev/null", c"/dev/net/tun", c"/"].map(std::ffi::CStr::as_ptr);
        let none = std::ptr::null();
        // SAFETY: paths are strings that end with a zero. The thread alone sees the mounts, and ends after the closure.
        unsafe {
            assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0);
            assert_eq!(libc::mount(none, root, none, libc::MS_REC | libc::MS_PRIVATE, none.cast()), 0);
            assert_eq!(libc::mount(null, tun, none, libc::MS_BIND, none.cast()), 0);
        }
        assert!(matches!(Device::open("eth0", &by(Hook::Ingress)).err(), Some(Error::Inlet { .. })));
        let device = Device::open("eth0", &small()).unwrap();
        assert!(matches!(device.hindrance, Some(Error::Inlet { .. })));
        assert!(probe("eth0").unwrap().program.is_some());
    });
}

#[test]
fn a_foreign_program_is_left_alone() {
    let wire = Wire::new();
    let first = wire.open_with(&by(Hook::Generic));
    let id = wire.here.run(|| probe("eth0").unwrap().program).unwrap();
    for hook in [Hook::Generic, Hook::Native] {
        let refused = wire.here.run(|| Device::open("eth0", &by(hook)).err()).unwrap();
        assert!(matches!(&refused, Error::ForeignProgram { id: found, device } if *found == id && device == "eth0"));
        assert!(refused.to_string().contains(&id.to_string()));
    }
    assert_eq!(wire.here.run(|| probe("eth0").unwrap().program), Some(id));
    drop(first);
}

#[test]
fn a_device_has_one_holder_wherever_the_program_is() {
    let wire = Wire::new();
    let _first = wire.open();
    for hook in [Hook::Ingress, Hook::Generic] {
        let refused = wire.here.run(|| Device::open("eth0", &by(hook)).err()).unwrap();
        assert!(matches!(&refused, Error::Queue { source, .. } if source.raw_os_error() == libc::EBUSY), "{refused:?}");
    }
}

#[test]
fn what_cannot_be_opened_is_said() {
    let wire = Wire::new();
    let open = |name: &str, options: &Options| wire.here.run(|| Device::open(name, options).err()).unwrap();
    assert!(matches!(open("eth7", &small()), Error::NoDevice { device, .. } if device == "eth7"));
    assert!(matches!(open("a-name-that-is-much-too-long", &small()), Error::NoDevice { .. }));
    for frames in [0, 63, 100, 65536] {
        assert!(matches!(open("eth0", &Options { receive_frames: frames, ..small() }), Error::Frames(_)));
        assert!(matches!(open("eth0", &Options { send_frames: frames, ..small() }), Error::Frames(_)));
    }
}

#[test]
fn native_mode_carries_the_same_frames() {
    let wire = Wire::new();
    let mut device = wire.open_with(&by(Hook::Native));
    take(&device);
    let there = wire.packets(&wire.there);
    let answers = wire.packets(&wire.there).only(EXPERIMENTAL);
    for number in 0..200 {
        let frame = ethernet(&taken(four(), &[number as u8; 800]));
        there.send(&frame);
        assert_eq!(next_frame(&mut device, 0), frame);
        let frame = experimental(HERE, THERE, number, 900);
        let mut outgoing = device.queues[0].sender.outgoing();
        assert!(outgoing.push(&[&frame]));
        outgoing.submit();
        device.queues[0].sender.kick().unwrap();
        assert_eq!(answers.receive(PATIENCE).unwrap(), frame);
    }
    assert!(!device.queues[0].is_zero_copy().unwrap(), "veth has no zero copy");
}

#[test]
fn a_device_that_goes_down_and_up_works_on() {
    let wire = Wire::new();
    let mut device = wire.open();
    take(&device);
    let there = wire.packets(&wire.there);
    let answers = wire.packets(&wire.there).only(EXPERIMENTAL);
    let frame = ethernet(&taken(four(), b"up"));
    for round in 0..3 {
        there.send(&frame);
        assert_eq!(next_frame(&mut device, 0), frame);
        wire.here.ip("link set eth0 down");
        let sent = experimental(HERE, THERE, round, 100);
        let mut outgoing = device.queues[0].sender.outgoing();
        assert!(outgoing.push(&[&sent]));
        outgoing.submit();
        assert!(matches!(device.queues[0].sender.kick(), Err(Error::CannotSend(_))));
        assert_eq!(device.queues[0].sender.waiting(), 1);
        wire.here.ip("link set eth0 up");
        until("it does not send", || {
            device.queues[0].sender.kick().unwrap();
            device.queues[0].sender.waiting() == 0
        });
        assert_eq!(answers.receive(PATIENCE).unwrap(), sent);
    }
}

#[test]
fn a_device_that_is_removed_is_reported() {
    let wire = Wire::new();
    let mut device = wire.open();
    let mut watch = wire.here.run(|| Watch::open().unwrap());
    let index = device.index();
    wire.here.ip("link del eth0");
    until("the watch says nothing", || watch.changes().unwrap().contains(&Change::Link { device: index, up: None }));
    let mut outgoing = device.queues[0].sender.outgoing();
    assert!(outgoing.push(&[&experimental(HERE, THERE, 0, 100)]));
    outgoing.submit();
    assert!(matches!(device.queues[0].sender.kick(), Err(Error::CannotSend(_))));
    assert!(!device.queues[0].wait(Some(Duration::from_millis(20))).unwrap());
    assert!(device.queues[0].receiver.receive(1).is_empty());
    let refused = wire.here.run(|| device.injector.inject(&[0; 64]).err());
    assert!(matches!(refused, Some(Error::Call { .. })));
    let refused = Device::from_parts(device.into_parts().unwrap()).err().unwrap();
    assert!(matches!(&refused, Error::Call { doing, .. } if doing.contains("the device is gone")), "{refused}");
}

#[test]
fn a_probe_says_what_a_device_is_and_what_speaks_against_it() {
    let wire = Wire::with(2, 1400);
    let report = wire.here.run(|| probe("eth0").unwrap());
    assert_eq!((report.driver.as_str(), report.mtu, report.queues), ("veth", 1400, 2));
    assert!(report.is_veth() && report.has_native && !report.has_zero_copy);
    assert_eq!(report.concerns, [Concern::LocalPeer]);
    assert_eq!(report.hook(), Hook::Ingress);
    wire.here.ip("link add br0 type bridge");
    wire.here.ip("link set eth0 down");
    wire.here.ip("link set eth0 master br0");
    let concerns = wire.here.run(|| probe("eth0").unwrap().concerns);
    let port = Concern::PortOf { controller: "br0".into() };
    assert_eq!(concerns, [Concern::Down, Concern::LocalPeer, port]);
    let concerns = wire.here.run(|| probe("br0").unwrap().concerns);
    assert!(concerns.contains(&Concern::Virtual { kind: "bridge".into() }), "{concerns:?}");
    let concerns = wire.here.run(|| probe("lo").unwrap().concerns);
    assert!(concerns.contains(&Concern::NotEthernet), "{concerns:?}");
    let _device = wire.open_with(&by(Hook::Generic));
    assert!(wire.here.run(|| probe("eth0").unwrap().concerns).contains(&Concern::Program));
}
