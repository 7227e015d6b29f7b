//! A broker whose files may not be large: the memory of a link is a file.

use crate::common::{FakeMember, tcp_pair};
use crate::process::Daemon;
use sidestep_abi::Reason;
use std::net::TcpStream;

/// More than a member's page, and less than the smallest link. The limit comes with the shell or the service that starts the broker.
const SIZE: u32 = 1 << 16;

/// Two members that have offered the ends of one connection, with these numbers.
struct Offered {
    a: FakeMember,
    b: FakeMember,
    _streams: (TcpStream, TcpStream),
}

const OFFERS: [u64; 2] = [1, 2];

fn offered(broker: &Daemon) -> Offered {
    let [a, b] = [(); 2].map(|()| FakeMember::join(&broker.address, 4096));
    let streams = tcp_pair("127.0.0.1");
    a.offer(OFFERS[0], &streams.0);
    b.offer(OFFERS[1], &streams.1);
    Offered { a, b, _streams: streams }
}

#[test]
fn a_link_that_would_be_too_large_is_refused_and_ends_no_broker() {
    let mut broker = Daemon::limited_by(&["prlimit", &format!("--fsize={SIZE}")], &[], None);
    let offered = offered(&broker);
    offered.a.expect_refused(OFFERS[0], Reason::Memory);
    offered.b.expect_refused(OFFERS[1], Reason::Memory);
    assert!(broker.child.try_wait().expect("wait").is_none(), "the broker goes on");
}

#[test]
fn a_limit_of_sizes_that_may_be_raised_costs_no_link() {
    let broker = Daemon::limited_by(&["prlimit", &format!("--fsize={SIZE}:unlimited")], &[], None);
    let offered = offered(&broker);
    for (member, offer) in [(&offered.a, OFFERS[0]), (&offered.b, OFFERS[1])] {
        member.expect_link();
        member.expect_slot(offer);
    }
}
