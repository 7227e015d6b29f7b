//! Parses callers and destinations of connections.

use sidestep_agent_api::{Caller, Protocol};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A text that is no caller or no destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("{0}: expected a process id, the absolute path of a cgroup, or the address from which packets come")]
    Caller(String),
    #[error("{0}: expected ADDRESS:PORT, such as 10.96.0.10:80, udp:10.96.0.10:53 or [fd00:96::a]:80")]
    Destination(String),
    #[error("{0}: expected a port, as in 8080")]
    Port(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    pub protocol: Protocol,
    pub address: SocketAddr,
}

/// A number is a process id; everything else is a cgroup's directory.
pub fn caller(text: &str) -> Result<Caller, TextError> {
    if let Ok(pid) = text.parse() {
        return Ok(Caller::Process(pid));
    }
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(Caller::Cgroup(path)) } else { Err(TextError::Caller(text.into())) }
}

pub fn destination(text: &str) -> Result<Destination, TextError> {
    let (protocol, address) = with_protocol(text);
    let parsed = address.parse().map(|address| Destination { protocol, address });
    parsed.map_err(|_| TextError::Destination(text.into()))
}

/// A port of a pod, with its protocol.
pub fn port(text: &str) -> Result<(Protocol, u16), TextError> {
    let (protocol, port) = with_protocol(text);
    port.parse().map(|port| (protocol, port)).map_err(|_| TextError::Port(text.into()))
}

fn with_protocol(text: &str) -> (Protocol, &str) {
    match text.split_once(':') {
        Some(("tcp", rest)) => (Protocol::Tcp, rest),
        Some(("udp", rest)) => (Protocol::Udp, rest),
        _ => (Protocol::Tcp, text),
    }
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
        assert_eq!(port("udp:53"), Ok((Protocol::Udp, 53)));
        assert_eq!(port("8080"), Ok((Protocol::Tcp, 8080)));
    }

    #[test]
    fn errors_name_the_text_and_what_is_expected() {
        let told = |error: TextError| error.to_string();
        assert_eq!(
            told(caller("nginx").unwrap_err()),
            "nginx: expected a process id, the absolute path of a cgroup, or the address from which packets come"
        );
        assert!(told(destination("web:80").unwrap_err()).starts_with("web:80: expected ADDRESS:PORT, such as"));
        assert_eq!(told(port("udp:http").unwrap_err()), "udp:http: expected a port, as in 8080");
    }
}
