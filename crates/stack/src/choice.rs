//! Which connections the operator wants the stack to carry.

use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The operator's choice. By default: all.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Choice {
    /// Carry only connections whose peers are in these networks (10.0.0.0/8, fd00::/8), or have these addresses
    #[arg(long, value_name = "NETWORK", num_args = 1.., value_parser = network)]
    pub peers: Vec<IpNet>,
    /// Carry only connections with one of these ports, at either end (80, 8000-8099)
    #[arg(long, value_name = "PORT[-PORT]", num_args = 1..)]
    pub ports: Vec<Ports>,
}

/// One port, or a range of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(RangeInclusive<u16>);

/// What is no port and no range of ports.
#[derive(Debug, thiserror::Error)]
#[error("give a port from 0 to 65535, or a range of ports, the smaller one first")]
pub struct NotPorts;

impl Choice {
    /// Whether a connection between these addresses is to be carried. An IPv4-mapped address counts as IPv4.
    pub fn includes(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let peer = remote.ip().to_canonical();
        let is_peer = self.peers.is_empty() || self.peers.iter().any(|network| network.contains(&peer));
        let has_port = |port| self.ports.iter().any(|Ports(range)| range.contains(&port));
        is_peer && (self.ports.is_empty() || has_port(local.port()) || has_port(remote.port()))
    }

    /// The arguments that say the same.
    pub fn arguments(&self) -> Vec<String> {
        let peers = self.peers.iter().flat_map(|network| ["--peers".into(), network.to_string()]);
        let ports = self.ports.iter().flat_map(|ports| ["--ports".into(), ports.to_string()]);
        peers.chain(ports).collect()
    }
}

fn network(text: &str) -> Result<IpNet, ipnet::AddrParseError> {
    text.parse().or_else(|error| text.parse::<IpAddr>().map(IpNet::from).map_err(|_| error))
}

impl FromStr for Ports {
    type Err = NotPorts;

    fn from_str(text: &str) -> Result<Ports, NotPorts> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse::<u16>().map_err(|_| NotPorts);
        let range = port(first)?..=port(last)?;
        if range.is_empty() { Err(NotPorts) } else { Ok(Ports(range)) }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}-{}", self.0.start(), self.0.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        choice: Choice,
    }

    fn choice(words: &[&str]) -> Choice {
        Line::try_parse_from(["stack"].iter().chain(words)).unwrap_or_else(|error| panic!("{error}")).choice
    }

    fn includes(choice: &Choice, local: &str, remote: &str) -> bool {
        choice.includes(local.parse().unwrap(), remote.parse().unwrap())
    }

    #[test]
    fn peers_are_networks_or_addresses_of_either_family() {
        assert!(includes(&choice(&[]), "10.0.0.1:1", "10.0.0.2:2"));
        let some = choice(&["--peers", "10.1.0.0/16", "fd00::2"]);
        for (remote, is_in) in [
            ("10.1.255.9:1", true),
            ("10.2.0.1:1", false),
            ("[::ffff:10.1.0.1]:1", true),
            ("[fd00::2]:1", true),
            ("[fd00::3]:1", false),
        ] {
            assert_eq!(includes(&some, "10.1.0.1:80", remote), is_in, "{remote}");
        }
    }

    #[test]
    fn ports_are_those_of_either_end() {
        let some = choice(&["--ports", "80", "--ports", "8000-8099"]);
        assert!(includes(&some, "1.1.1.1:80", "1.1.1.2:40000") && includes(&some, "1.1.1.1:40000", "1.1.1.2:8050"));
        assert!(!includes(&some, "1.1.1.1:81", "1.1.1.2:8100"));
        for wrong in ["", "-", "80-", "90-80", "65536", "http"] {
            assert!(wrong.parse::<Ports>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn its_arguments_say_the_same() {
        let some = choice(&["--peers", "10.1.0.0/16", "fd00::2", "--ports", "80", "8000-8099"]);
        let again = some.arguments();
        assert_eq!(choice(&again.iter().map(String::as_str).collect::<Vec<_>>()), some);
    }
}
