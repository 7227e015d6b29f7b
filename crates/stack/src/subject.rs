//! A connection that the broker has shown: whether the stack may carry it, and the way of its packets.

use crate::choice::Choice;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::fstat;
use rustix::net::{SocketAddrAny, getpeername, getsockname};
use sidestep_abi::Reason;
use sidestep_broker::addr::Endpoint;
use sidestep_broker::domain::Key;
use sidestep_broker::proof;
use sidestep_device::path::{self, Flow, NoPath, Path};
use sidestep_repair::{NotTaken, Profile};
use sidestep_sys::tcp;
use std::net::{IpAddr, SocketAddr};

/// What decides whether a connection may be carried.
pub struct Terms {
    pub choice: Choice,
    /// Indices of the devices that the stack was given.
    pub devices: Vec<u32>,
    /// Cookie of their network namespace.
    pub namespace: Option<u64>,
    /// Bytes of a message, on the average, above which the kernel carries a connection.
    pub longest_message: u64,
}

/// A connection that may be taken.
pub struct Subject {
    pub socket: OwnedFd,
    /// To whose program the socket belongs.
    pub domain: Key,
    pub local: SocketAddr,
    /// Where packets go, whatever getpeername(2) tells the program.
    pub remote: SocketAddr,
    pub path: Path,
    /// Which of the stack's devices the packets leave by.
    pub device: usize,
    /// Routers of this host on the packets' way: 1 if the socket is in another network namespace than the device.
    pub routers: u8,
    /// The socket's, by which rules may have chosen the path.
    pub traffic_class: u8,
    /// The path may have changed since it was resolved: [`Subject::refresh`] it before the connection is carried.
    pub is_stale: bool,
}

/// Why the stack does not carry it.
#[derive(Debug, thiserror::Error)]
pub enum Declined {
    /// The kernel does not tell its addresses: it is not connected any more.
    #[error("the socket is not connected")]
    NotConnected,
    /// See [`NotTaken`].
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
    /// There is no path for frames.
    #[error("there is no path for frames")]
    NoPath(#[from] NoPath),
    /// Its packets leave by a device that the stack was not given.
    #[error("its packets leave by device {0}, which the stack was not given")]
    OtherDevice(u32),
    /// Its network namespace is not the one in which its local address is known here: another connection may have the same addresses.
    #[error("its local address belongs to another network namespace here")]
    OtherNamespace,
    /// The kernel treats the socket's packets as the stack cannot.
    #[error("the socket has {0}")]
    Treated(&'static str),
    /// See [`Choice`].
    #[error("the operator has left its peer or its ports out")]
    NotChosen,
}

impl Declined {
    /// For `sidestep status`.
    pub fn reason(&self) -> Reason {
        match self {
            Declined::NotConnected | Declined::NotTaken(_) | Declined::Treated(_) => Reason::KernelOnly,
            Declined::NoPath(_) | Declined::OtherDevice(_) | Declined::OtherNamespace => Reason::OtherDevice,
            Declined::NotChosen => Reason::NotChosen,
        }
    }
}

impl Subject {
    /// Err: it is declined. The caller closes the socket, which may linger: its program may have closed it.
    pub fn examine(socket: OwnedFd, domain: Key, terms: &Terms) -> Result<Subject, (Declined, OwnedFd)> {
        match look(&socket, terms) {
            Ok(Seen { local, remote, path, device, routers, traffic_class }) => {
                Ok(Subject { socket, domain, local, remote, path, device, routers, traffic_class, is_stale: false })
            }
            Err(why) => Err((why, socket)),
        }
    }

    /// Whether the socket has the connection that was examined. The program still has the socket, and may have connected it anew.
    pub fn is_still_connected(&self) -> bool {
        address(getsockname(&self.socket).ok()) == Some(self.local) && peer(&self.socket) == Some(self.remote)
    }

    /// Looks again, before the connection is carried for the first time: at what the program may have changed since.
    pub fn check(&mut self, devices: &[u32]) -> Result<(), Declined> {
        if !self.is_still_connected() {
            return Err(Declined::NotConnected);
        }
        let profile = profile(&self.socket)?;
        if profile.traffic_class != self.traffic_class {
            return self.refresh(devices);
        }
        is_plain(&profile, self.path.device, self.routers == 0)
    }

    /// Looks again, before the connection is carried again: at the socket, the route and the neighbour.
    pub fn refresh(&mut self, devices: &[u32]) -> Result<(), Declined> {
        if !self.is_still_connected() {
            return Err(Declined::NotConnected);
        }
        sidestep_repair::examine(self.socket.as_fd())?;
        let is_ours = self.routers == 0;
        let (path, traffic_class) = way(&self.socket, self.local, self.remote, is_ours)?;
        (self.path, self.device, self.traffic_class, self.is_stale) =
            (path, position(devices, &path)?, traffic_class, false);
        Ok(())
    }
}

/// What [`Subject::examine`] finds. See [`Subject`].
struct Seen {
    local: SocketAddr,
    remote: SocketAddr,
    path: Path,
    device: usize,
    routers: u8,
    traffic_class: u8,
}

fn look(socket: &OwnedFd, terms: &Terms) -> Result<Seen, Declined> {
    let local = address(getsockname(socket).ok()).ok_or(Declined::NotConnected)?;
    let remote = peer(socket).ok_or(Declined::NotConnected)?;
    if !terms.choice.includes(local, remote) {
        return Err(Declined::NotChosen);
    }
    sidestep_repair::examine(socket.as_fd())?;
    let is_ours = tcp::namespace(socket.as_raw_fd()) == terms.namespace;
    let (path, traffic_class) = way(socket, local, remote, is_ours)?;
    let device = position(&terms.devices, &path)?;
    Ok(Seen { local, remote, path, device, routers: u8::from(!is_ours), traffic_class })
}

/// The path, and the traffic class by which rules may have chosen it. `is_ours`: the socket is in the stack's network namespace. A tunnel
/// may end in another one, which has any addresses it likes.
fn way(socket: &OwnedFd, local: SocketAddr, remote: SocketAddr, is_ours: bool) -> Result<(Path, u8), Declined> {
    let profile = profile(socket)?;
    let user = fstat(socket).map_err(|_| Declined::NotConnected)?.st_uid;
    let path = path::resolve(&Flow { local, remote, user, traffic_class: profile.traffic_class })?;
    if path.is_own != is_ours {
        return Err(Declined::OtherNamespace);
    }
    is_plain(&profile, path.device, is_ours)?;
    Ok((path, profile.traffic_class))
}

fn profile(socket: &OwnedFd) -> Result<Profile, Declined> {
    Ok(sidestep_repair::profile(socket).map_err(NotTaken::from)?)
}

/// Err: an option decides which way the packets take, or when they leave.
fn is_plain(profile: &Profile, device: u32, is_ours: bool) -> Result<(), Declined> {
    // A device of another network namespace has a number of its own.
    let is_elsewhere = is_ours && profile.device != 0 && profile.device != device;
    match profile {
        _ if is_elsewhere => Err(Declined::Treated("another device (SO_BINDTODEVICE)")),
        Profile { mark: 1.., .. } => Err(Declined::Treated("a mark, by which rules may choose (SO_MARK)")),
        Profile { max_pacing_rate: Some(_), .. } => Err(Declined::Treated("a rate (SO_MAX_PACING_RATE)")),
        _ => Ok(()),
    }
}

fn position(devices: &[u32], path: &Path) -> Result<usize, Declined> {
    devices.iter().position(|index| *index == path.device).ok_or(Declined::OtherDevice(path.device))
}

/// The peer that packets go to. BPF programs may tell by getpeername(2) what was dialled instead: a Service.
fn peer(socket: &OwnedFd) -> Option<SocketAddr> {
    let told = address(getpeername(socket).ok().flatten())?;
    let known = proof::identify(socket).ok()?.remote;
    Some(if Endpoint::from(told) == known { told } else { in_family_of(told, known.to_socket_addr()) })
}

/// The same address, as a socket of this one's family names it: IPv4 is mapped for an IPv6 socket.
fn in_family_of(told: SocketAddr, known: SocketAddr) -> SocketAddr {
    match (told, known.ip()) {
        (SocketAddr::V6(_), IpAddr::V4(v4)) => SocketAddr::new(v4.to_ipv6_mapped().into(), known.port()),
        _ => known,
    }
}

fn address(any: Option<SocketAddrAny>) -> Option<SocketAddr> {
    SocketAddr::try_from(any?).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use sidestep_device::path::Freshness;
    use std::net::{TcpListener, TcpStream};

    /// Both ends of a connection.
    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    }

    #[test]
    fn a_declined_socket_is_left_to_be_closed() {
        let (ours, _theirs) = connected();
        let nothing = Choice { ports: vec!["0".parse().unwrap()], ..Choice::default() };
        let terms = Terms { choice: nothing, devices: Vec::new(), namespace: None, longest_message: 0 };
        let number = ours.as_raw_fd();
        let declined = Subject::examine(ours.into(), Key::default(), &terms);
        assert!(matches!(declined, Err((Declined::NotChosen, socket)) if socket.as_raw_fd() == number));
    }

    /// A connection whose remote host is beside this one.
    pub(crate) fn over_ethernet(socket: TcpStream) -> Subject {
        let (local, remote) = (socket.local_addr().expect("local"), socket.peer_addr().expect("remote"));
        let path = Path {
            local: local.ip(),
            remote: remote.ip(),
            device: 1,
            next_hop: remote.ip(),
            source: Default::default(),
            destination: Default::default(),
            mtu: 1500,
            link_mtu: 1500,
            neighbour: Freshness::Confirmed,
            is_own: true,
        };
        let (socket, domain) = (socket.into(), Key::default());
        Subject { socket, domain, local, remote, path, device: 0, routers: 0, traffic_class: 0, is_stale: false }
    }

    #[test]
    fn a_socket_that_the_program_has_connected_anew_is_declined() {
        let (ours, _theirs) = connected();
        let mut subject = over_ethernet(ours);
        assert!(subject.check(&[1]).is_ok());
        rustix::net::connect_unspec(&subject.socket).unwrap();
        assert!(matches!(subject.check(&[1]), Err(Declined::NotConnected)), "connected no more");
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::connect(&subject.socket, &other.local_addr().unwrap()).unwrap();
        assert!(matches!(subject.check(&[1]), Err(Declined::NotConnected)), "connected elsewhere");
    }

    #[test]
    fn an_address_is_named_as_its_socket_names_it() {
        let named = |told: &str, known: &str| in_family_of(told.parse().unwrap(), known.parse().unwrap()).to_string();
        assert_eq!(named("[::ffff:10.96.0.1]:80", "10.244.0.3:8080"), "[::ffff:10.244.0.3]:8080");
        assert_eq!(named("10.96.0.1:80", "10.244.0.3:8080"), "10.244.0.3:8080");
        assert_eq!(named("[fd00::1]:80", "[fd00::3]:8080"), "[fd00::3]:8080");
    }
}
