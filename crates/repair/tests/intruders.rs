//! A program that uses its socket between the calls of a take or a give-back, and another one that wants its addresses.

use crate::common::failing::run;
use crate::common::*;
use libc::{IPPROTO_TCP, SOL_SOCKET};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, connect_unspec, listen, socket_with};
use sidestep_repair::{Queues, Taken, abandon, empty, give_back, take, undo};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

/// `SK_FORCE_REUSE`, as getsockopt(SO_REUSEADDR) shows it.
const FORCED: i32 = 2;
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;

/// A connection that was accepted at the port of a listener, which is still there: a give-back must bind beside the listener.
struct Accepted {
    wire: Wire,
    listener: TcpListener,
    /// Another user's.
    other: TcpListener,
    near: TcpStream,
    _far: TcpStream,
}

impl Accepted {
    fn new() -> Accepted {
        let wire = Wire::shaped(&USUAL);
        let address = near(USUAL.family);
        let (listener, other) = wire
            .near
            .run(|| (TcpListener::bind((address, 0)).expect("bind"), TcpListener::bind((address, 0)).expect("bind")));
        let (near, far) = Accepted::connect(&wire, &listener);
        Accepted { wire, listener, other, near, _far: far }
    }

    fn connect(wire: &Wire, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let far = wire.far.run(|| TcpStream::connect(listener.local_addr().expect("local")).expect("connect"));
        (listener.accept().expect("accept").0, far)
    }

    fn again(&mut self) {
        (self.near, self._far) = Accepted::connect(&self.wire, &self.listener);
    }
}

fn back(near: &TcpStream, taken: &Taken) -> bool {
    give_back(near, &taken.state, &Queues::new(&taken.unread, &taken.unacknowledged)).is_ok()
}

fn state(socket: &TcpStream) -> u8 {
    raw::get(socket, IPPROTO_TCP, libc::TCP_INFO).expect("TCP_INFO")[0]
}

/// Before how many calls of `work` conflicts of the socket do not count.
fn forced(near: &TcpStream, work: impl FnOnce() -> bool + Send) -> usize {
    let mut forced = 0;
    let look = |_| {
        forced += usize::from(raw::get_int(near, SOL_SOCKET, libc::SO_REUSEADDR) == FORCED);
        false
    };
    assert!(run(look, work).0, "the work is done");
    forced
}

#[test]
fn conflicts_count_but_for_the_moments_of_a_give_back() {
    let accepted = Accepted::new();
    let near = &accepted.near;
    let mut taken = None;
    assert_eq!(forced(near, || take(near).map(|found| taken = Some(found)).is_ok()), 1, "take");
    let taken = taken.expect("just taken");
    assert_eq!(forced(near, || empty(near, &taken.state).is_ok()), 5, "empty");
    assert_eq!(forced(near, || back(near, &taken)), 6, "give back, with a look at the port, which is held");
    let taken = take(near).expect("take again");
    assert_eq!(forced(near, || undo(near, &taken.state.saved).is_ok()), 0, "undo");
    let taken = take(near).expect("take again");
    assert_eq!(forced(near, || abandon(near).is_ok()), 2, "abandon {}", taken.state.remote);
}

/// What a program does with its socket.
type Intrusion = fn(&TcpStream, &Accepted);

/// Listens where somebody else does.
fn listens(near: &TcpStream, accepted: &Accepted) {
    let _ = connect_unspec(near);
    if bind(near, &accepted.other.local_addr().expect("local")).is_ok() {
        let _ = listen(near, 1);
    }
}

/// Has the kernel take it for connected to a port where nobody listens.
fn connects(near: &TcpStream, _: &Accepted) {
    let _ = connect_unspec(near);
    let _ = connect(near, &nowhere());
}

fn nowhere() -> SocketAddr {
    SocketAddr::new(far(USUAL.family), 1)
}

/// Lets the program intrude before each call of `work` in turn. Afterwards its socket is neither a listener nor connected to nobody.
fn intrude(intrusion: Intrusion, work: fn(&TcpStream) -> bool) -> usize {
    let mut accepted = Accepted::new();
    accepted.near.set_nonblocking(true).expect("O_NONBLOCK");
    for at in 0.. {
        let near = &accepted.near;
        let mut has_intruded = false;
        let meanwhile = |call| {
            if call == at {
                intrusion(near, &accepted);
                has_intruded = true;
            }
            false
        };
        let (has_worked, _) = run(meanwhile, || work(near));
        if !has_worked {
            let _ = abandon(near);
        }
        assert_ne!(state(near), LISTEN, "before call {at}");
        let peer = near.peer_addr();
        assert!(
            state(near) != ESTABLISHED || peer.as_ref().is_ok_and(|peer| *peer != nowhere()),
            "call {at}: {peer:?}"
        );
        if !has_intruded {
            return at;
        }
        accepted.again();
        accepted.near.set_nonblocking(true).expect("O_NONBLOCK");
    }
    unreachable!("the work makes finitely many calls")
}

#[test]
fn a_program_that_intrudes_gets_no_port_and_no_connection_of_others() {
    for intrusion in [listens as Intrusion, connects] {
        let takes = intrude(intrusion, |near| take(near).is_ok_and(|taken| undo(near, &taken.state.saved).is_ok()));
        let gives = intrude(intrusion, |near| take(near).is_ok_and(|taken| back(near, &taken)));
        assert!(takes > 40 && gives > takes, "{takes} and {gives} calls");
    }
}

/// Another user's socket that is to get the addresses of a connection whose port the kernel has chosen. Such a port is free while the
/// connection is rebuilt.
fn dial_with((local, remote): (SocketAddr, SocketAddr), wire: &Wire) -> Option<OwnedFd> {
    const IP_LOCAL_PORT_RANGE: i32 = 51;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let make = || socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("socket");
    let intruder = wire.near.run(make);
    let only = u32::from(local.port()) * 0x1_0001;
    raw::set(&intruder, libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE, &only.to_ne_bytes()).expect("IP_LOCAL_PORT_RANGE");
    match connect(&intruder, &remote) {
        Err(Errno::INPROGRESS) => Some(intruder),
        _ => None,
    }
}

/// Tries before each call of `work` in turn. Returns how often it got the addresses. (Here the kernel hears the peer's answers to the
/// intruder's SYN, and ends the connection; the stack diverts them.)
fn dialled_meanwhile(work: fn(&TcpStream, &Taken) -> bool) -> usize {
    let wire = Wire::shaped(&USUAL);
    let mut intruders = Vec::new();
    for at in 0.. {
        let (near, _far) = wire.connect(&Shape { role: Role::Dials, ..USUAL });
        let names = (near.local_addr().expect("local"), near.peer_addr().expect("peer"));
        let taken = take(&near).expect("take");
        let (found, mut has_tried) = (&mut intruders, false);
        let meanwhile = |call| {
            if call == at {
                found.extend(dial_with(names, &wire));
                has_tried = true;
            }
            false
        };
        // In the namespace of the connection, as the stack is.
        let (has_worked, _) = run(meanwhile, || wire.near.run(|| work(&near, &taken)));
        assert!(has_worked, "with an intruder before call {at}");
        if !has_tried {
            return intruders.len();
        }
    }
    unreachable!("the work makes finitely many calls")
}

#[test]
fn nobody_else_gets_the_addresses_for_good() {
    let given_back = dialled_meanwhile(back);
    let emptied = dialled_meanwhile(|near, taken| empty(near, &taken.state).is_ok() && back(near, taken));
    assert!(given_back > 0 && emptied > 0, "{given_back} and {emptied} times");
}
