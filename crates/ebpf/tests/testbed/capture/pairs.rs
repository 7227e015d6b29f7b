//! Which sockets the rings' broker takes for the two ends of one connection.

use super::world::{OUTBOUND, World, any, of, program, rules};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
use sidestep_broker::matching::{Matcher, Offer, Ticket, Verdict};
use sidestep_broker::proof::identify;
use sidestep_broker::trust::{Trust, Who};
use sidestep_testkit::greeter::{Owner, PROXY, ROOT, as_owner};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

/// Dials from a chosen address and port.
fn dial_from(owner: Owner, from: SocketAddr, to: SocketAddr) -> OwnedFd {
    as_owner(owner, || {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        bind(&socket, &from).unwrap();
        connect(&socket, &to).unwrap();
        socket
    })
}

/// The proxy dials the same destination as the program, and happens to get the program's source port: by getsockname() and
/// getpeername() both sockets are the same end of the same connection.
#[test]
fn a_program_and_its_proxy_with_one_port_and_one_destination_are_told_apart() {
    let mut world = World::new();
    let (client, server) = (world.pod(), world.pod());
    let _server = program(&server, 8080);
    world.capture(&client, &rules());
    let (dialled, accepted, passed_on) = client.namespace.run(|| {
        let listener = as_owner(PROXY, || TcpListener::bind(any(OUTBOUND)[0]).unwrap());
        let (from, to) = (of(client.v4, 7777), of(server.v4, 8080));
        let dialled = dial_from(ROOT, from, to);
        let accepted: OwnedFd = listener.accept().unwrap().0.into();
        (dialled, accepted, dial_from(PROXY, from, to))
    });
    let mut matcher = Matcher::new(Trust::of_users(0, None, &[]), false);
    let mut offer = |number, socket: &OwnedFd| {
        let ticket = Ticket { member: number, offer: number };
        matcher.offer(Offer { ticket, facts: identify(socket).unwrap(), who: Who::user(0), passive: false })
    };
    assert_eq!(offer(1, &passed_on), Verdict::Waits);
    assert_eq!(offer(2, &accepted), Verdict::Waits, "what the proxy passes on is another connection");
    let Verdict::Pair(found) = offer(3, &dialled) else { panic!("the program and its proxy are a pair") };
    assert_eq!(found.ticket.member, 2);
}
