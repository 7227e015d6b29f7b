//! Where a connection may come from: ports that are shared, held, ephemeral or privileged; devices; link-local addresses; and
//! which capabilities that needs. All sockets are in other network namespaces than the tests.

use crate::common;

use crate::common::*;
use libc::SOL_SOCKET;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use sidestep_repair::{GiveBackError, Queues, Taken, give_back, take};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

fn back(near: &TcpStream, taken: &Taken) {
    give_back(near, &taken.state, &Queues::new(&taken.unread, &taken.unacknowledged)).expect("give back");
}

/// Twice, since the first time may find a free port, and the second a bound one.
fn there_and_back(wire: &Wire, near: &TcpStream) {
    let addresses = (near.local_addr().expect("local"), near.peer_addr().expect("remote"));
    for _ in 0..2 {
        wire.close();
        let taken = take(near).expect("take");
        assert_eq!((taken.state.local, taken.state.remote), addresses);
        back(near, &taken);
        assert_eq!((near.local_addr().expect("local"), near.peer_addr().expect("remote")), addresses);
        wire.open();
    }
}

fn end(near: TcpStream, far: TcpStream) {
    finish(near, far, &mut Expected::new(1), &mut Expected::new(2), 10_000);
}

#[test]
fn a_port_that_a_listener_and_other_connections_share() {
    for listener_lives in [true, false] {
        let wire = Wire::new(1500);
        let listener = wire.near.run(|| TcpListener::bind((near(Family::V4), 0)).expect("a listener"));
        let address = listener.local_addr().expect("its address");
        let pairs: Vec<_> = (0..3)
            .map(|_| {
                let far = wire.far.run(|| TcpStream::connect(address).expect("a connection"));
                (listener.accept().expect("a connection").0, far)
            })
            .collect();
        let kept = listener_lives.then_some(listener);
        for (near, _) in &pairs {
            there_and_back(&wire, near);
        }
        if let Some(listener) = kept {
            let far = wire.far.run(|| TcpStream::connect(address).expect("a new connection"));
            end(listener.accept().expect("a new connection").0, far);
        }
        pairs.into_iter().for_each(|(near, far)| end(near, far));
    }
}

/// Nobody else can bind the port afterwards, as before.
#[test]
fn an_ephemeral_port_is_held_as_before() {
    let wire = Wire::new(1500);
    let (near, far) = wire.connect(&Shape { role: Role::Dials, ..USUAL });
    let local = near.local_addr().expect("local");
    let taken_by_others = || {
        let other = wire.near.run(|| socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket"));
        bind(&other, &local)
    };
    assert_eq!(taken_by_others(), Err(Errno::ADDRINUSE));
    there_and_back(&wire, &near);
    assert_eq!(taken_by_others(), Err(Errno::ADDRINUSE));
    let taken = take(&near).expect("take");
    assert_eq!(taken_by_others(), Err(Errno::ADDRINUSE));
    back(&near, &taken);
    end(near, far);
}

fn dial(wire: &Wire, far: SocketAddr, prepare: impl FnOnce(&OwnedFd) + Send) -> (TcpStream, TcpStream) {
    let listener = wire.far.run(|| TcpListener::bind(far).expect("a listener"));
    let address = listener.local_addr().expect("its address");
    let near = wire.near.run(|| {
        let family = if far.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let near = socket(family, SocketType::STREAM, None).expect("a socket");
        prepare(&near);
        connect(&near, &address).expect("a connection");
        TcpStream::from(near)
    });
    (near, listener.accept().expect("a connection").0)
}

#[test]
fn a_port_that_the_program_has_bound() {
    for address in [near(Family::V4), Ipv4Addr::UNSPECIFIED.into()] {
        let wire = Wire::new(1500);
        let (near, far) = dial(&wire, (far(Family::V4), 0).into(), |near| {
            bind(near, &SocketAddr::new(address, 4321)).expect("bind");
        });
        there_and_back(&wire, &near);
        end(near, far);
    }
}

#[test]
fn a_socket_that_is_bound_to_a_device() {
    let wire = Wire::new(1500);
    for family in [Family::V4, Family::V6] {
        let (near, far) = dial(&wire, (far(family), 0).into(), |near| {
            raw::set(near, SOL_SOCKET, libc::SO_BINDTODEVICE, DEVICE.as_bytes()).expect("SO_BINDTODEVICE");
        });
        let taken = take(&near).expect("take");
        assert_ne!(taken.profile.device, 0);
        back(&near, &taken);
        there_and_back(&wire, &near);
        end(near, far);
    }
}

#[test]
fn link_local_addresses() {
    let wire = Wire::new(1500);
    for (namespace, number) in [(&wire.near, 1), (&wire.far, 2)] {
        namespace.ip(&format!("-6 addr add fe80::5e:{number}/64 dev {DEVICE} nodad"));
    }
    let index = |namespace: &sidestep_testkit::Namespace| -> u32 {
        let path = format!("/sys/class/net/{DEVICE}/ifindex");
        in_namespace(namespace, "cat", &[&path]).trim().parse().expect("a number")
    };
    let ip = "fe80::5e:2".parse().expect("an address");
    let listener = wire.far.run(|| {
        let scope = index(&wire.far);
        TcpListener::bind(SocketAddrV6::new(ip, 0, 0, scope)).expect("a listener")
    });
    let port = listener.local_addr().expect("its address").port();
    let scope = index(&wire.near);
    let near = wire.near.run(|| TcpStream::connect(SocketAddrV6::new(ip, port, 0, scope)).expect("a connection"));
    let (far, _) = listener.accept().expect("a connection");
    there_and_back(&wire, &near);
    end(near, far);
}

fn with_only<T: Send>(capabilities: CapabilitySet, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let limited = scope.spawn(|| {
            let inheritable = CapabilitySet::empty();
            let sets = CapabilitySets { effective: capabilities, permitted: capabilities, inheritable };
            set_capabilities(None, sets).expect("capset");
            work()
        });
        limited.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn net_admin_is_enough_for_unprivileged_ports() {
    let wire = Wire::new(1500);
    let (near, far) = wire.connect(&USUAL);
    far.set_nonblocking(true).expect("O_NONBLOCK");
    let mut to_near = Expected::new(2);
    to_near.write_until_full(&far);
    wire.close();
    raw::set_int(&near, SOL_SOCKET, libc::SO_RCVBUF, 10_000);
    with_only(CapabilitySet::NET_ADMIN, || {
        let taken = take(&near).expect("take");
        assert!(taken.unread.len() > 50_000);
        back(&near, &taken);
    });
    wire.open();
    finish(near, far, &mut Expected::new(1), &mut to_near, 10_000);
}

#[test]
fn privileged_ports_need_net_bind_service() {
    let wire = Wire::new(1500);
    let listener = wire.near.run(|| TcpListener::bind((near(Family::V4), 80)).expect("a listener"));
    let far = wire.far.run(|| TcpStream::connect((near(Family::V4), 80)).expect("a connection"));
    let (near, _) = listener.accept().expect("a connection");
    wire.close();
    with_only(CapabilitySet::NET_ADMIN | CapabilitySet::NET_BIND_SERVICE, || {
        let taken = take(&near).expect("take");
        back(&near, &taken);
    });
    wire.open();
    // Another connection, whose port is free while it is given back.
    let second_far = wire.far.run(|| TcpStream::connect((common::near(Family::V4), 80)).expect("a connection"));
    let (second, _) = listener.accept().expect("a connection");
    wire.close();
    let taken = take(&second).expect("take");
    let refused = with_only(CapabilitySet::NET_ADMIN, || {
        give_back(&second, &taken.state, &Queues::new(&taken.unread, &taken.unacknowledged))
    });
    let Err(GiveBackError::Detached(error)) = refused else { panic!("{refused:?}") };
    assert_eq!((error.call, error.source), ("bind(2)", Errno::ACCESS));
    back(&second, &taken);
    wire.open();
    end(near, far);
    end(second, second_far);
}
