//! Who connects, and where to, as people write it.

use sidestep_agent_api::{Caller, Protocol};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    pub protocol: Protocol,
    pub address: SocketAddr,
}

/// A number is a process; everything else is a directory.
pub fn caller(text: &str) -> Result<Caller, String> {
    if let Ok(pid) = text.parse() {
        return Ok(Caller::Process(pid));
    }
    let path = PathBuf::from(text);
    if path.is_absolute() {
        Ok(Caller::Cgroup(path))
    } else {
        Err("expected a process id, or the absolute path of a cgroup".into())
    }
}

pub fn destination(text: &str) -> Result<Destination, String> {
    let (protocol, address) = match text.split_once(':') {
        Some(("tcp", address)) => (Protocol::Tcp, address),
        Some(("udp", address)) => (Protocol::Udp, address),
        _ => (Protocol::Tcp, text),
    };
    let expected = "expected ADDRESS:PORT, such as 10.96.0.10:80, udp:10.96.0.10:53 or [fd00:96::a]:80";
    address.parse().map(|address| Destination { protocol, address }).map_err(|_| expected.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_and_destinations_are_written_as_people_do() {
        assert_eq!(caller("4711"), Ok(Caller::Process(4711)));
        assert_eq!(caller("/sys/fs/cgroup"), Ok(Caller::Cgroup("/sys/fs/cgroup".into())));
        assert!(caller("nginx").is_err());
        let at = |protocol, address: &str| Ok(Destination { protocol, address: address.parse().unwrap() });
        assert_eq!(destination("10.96.0.10:80"), at(Protocol::Tcp, "10.96.0.10:80"));
        assert_eq!(destination("udp:10.96.0.10:53"), at(Protocol::Udp, "10.96.0.10:53"));
        assert_eq!(destination("tcp:[fd00::a]:80"), at(Protocol::Tcp, "[fd00::a]:80"));
        assert_eq!(destination("[fd00::a]:80"), at(Protocol::Tcp, "[fd00::a]:80"));
        for bad in ["10.96.0.10", "sctp:10.0.0.1:80", "web:80", ""] {
            assert!(destination(bad).is_err(), "{bad}");
        }
    }
}
