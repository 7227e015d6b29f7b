//! Differences that take more than one probe to show.

use super::dial::{Outcome, dial};
use super::probes::{From, OWNERS, Probe, Source};
use super::site::Site;
use crate::sockets::{PATIENCE, at};
use rustix::net::{AddressFamily, SocketType, sockopt};
use sidestep_mesh::address::Protocol;
use sidestep_testkit::greeter::become_owner;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

pub struct Scenario {
    pub difference: &'static str,
    pub istio: &'static str,
    pub sidestep: &'static str,
    pub reason: &'static str,
    /// Name of the set of rules.
    pub rules: &'static str,
    pub run: fn(&Site) -> String,
    /// With iptables' rules, and with ours.
    pub expected: [&'static str; 2],
}

pub const ALL: [Scenario; 3] = [
    Scenario {
        difference: "Unconnected datagram socket that asks two name servers",
        istio: "each answer has its server as source",
        sidestep: "both answers have the server that was asked last as source",
        reason: "both answers come from the proxy's socket, and nothing else tells the datagrams apart",
        rules: "dns of all servers",
        run: two_resolvers,
        expected: ["10.96.0.53:53 10.96.0.54:53", "10.96.0.54:53 10.96.0.54:53"],
    },
    Scenario {
        difference: "Captured connections to two destinations from one bound port at the same time",
        istio: "captured, one of them with another source port",
        sidestep: "the second fails with EADDRNOTAVAIL",
        reason: "both would have the same tuple to the proxy, and Sidestep translates no ports. So a pod cannot have \
                 more captured connections at a time than ephemeral ports",
        rules: "injected",
        run: one_port,
        expected: ["connected connected", "connected 99"],
    },
    Scenario {
        difference: "A virtual machine's connections (`-k`) that are not for the pod itself",
        istio: "redirected to the proxy",
        sidestep: "not captured: forwarded, if the pod forwards",
        reason: "they are not for an address of the pod, so no socket of the pod sees them",
        rules: "virtual interface",
        run: virtual_machine,
        expected: ["15001 for Some(172.30.0.1:80)", "nobody"],
    },
];

fn as_program<T: Send>(site: &Site, work: impl FnOnce() -> T + Send) -> T {
    site.pod.run(|| {
        become_owner(OWNERS[0]);
        work()
    })
}

fn two_resolvers(site: &Site) -> String {
    let ask = || -> io::Result<Vec<SocketAddr>> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(PATIENCE))?;
        for server in ["10.96.0.53:53", "10.96.0.54:53"] {
            socket.send_to(b"?", server)?;
        }
        (0..2).map(|_| Ok(socket.recv_from(&mut [0; 256])?.1)).collect()
    };
    let mut answers = as_program(site, ask).unwrap();
    answers.sort();
    words(answers)
}

fn one_port(site: &Site) -> String {
    let connect = |to: &str| -> io::Result<OwnedFd> {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &at("10.244.0.2", 61000))?;
        rustix::net::connect(&socket, &at(to, 8080))?;
        Ok(socket)
    };
    let both = as_program(site, || ["10.96.0.10", "10.96.7.7"].map(connect));
    words(both.iter().map(|done| match done {
        Ok(_) => "connected".to_string(),
        Err(error) => error.raw_os_error().unwrap().to_string(),
    }))
}

fn virtual_machine(site: &Site) -> String {
    site.neighbour.ip("route replace 172.30.0.0/16 via 10.246.0.2 dev tap0");
    let probe = Probe {
        from: From::Neighbour("tap0"),
        protocol: Protocol::Tcp,
        to: at("172.30.0.1", 80),
        source: Source::None,
        device: None,
        connected: true,
    };
    // A connection that is not forwarded gets no answer.
    match site.neighbour.run(|| dial(&probe, Duration::from_secs(2))) {
        Outcome::Answered { seen, .. } => format!("{} for {:?}", seen.listener, seen.original),
        Outcome::Failed(_) | Outcome::Silent => "nobody".to_string(),
    }
}

fn words(all: impl IntoIterator<Item: ToString>) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" ")
}
