//! `--run-validation`: before the proxy runs, the validation listens in its place and dials as a program. The connection must
//! reach the proxy's port, the original destination and the source must be right, and the proxy's own connections must not be
//! captured.

use super::attach;
use rustix::net::sockopt;
use rustix::process::{Gid, Uid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space, set_thread_res_gid, set_thread_res_uid};
use sidestep_ebpf::capture::Captures;
use sidestep_ebpf::error::Error;
use sidestep_mesh::address::Protocol;
use sidestep_mesh::capture::outbound::Outbound;
use sidestep_mesh::capture::probe::Probe;
use sidestep_mesh::capture::rules::{Ranges, Rules};
use sidestep_mesh::capture::tables::{PodNetwork, Route};
use sidestep_mesh::capture::verdict::Action;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Documentation addresses: no host has them, so a connection that is not captured goes nowhere.
const NOWHERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];
const PORTS: [u16; 4] = [80, 443, 8080, 7];
/// Users and groups for the program; the proxy cannot be all of them.
const PROGRAMS: [u32; 3] = [65534, 0, 1000];
/// More than any step within a namespace takes.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a connection to nowhere that is not captured is waited for.
const FREE: Duration = Duration::from_millis(200);

/// A captured pod.
pub struct Pod<'a> {
    pub pins: &'a Path,
    pub namespace: &'a Path,
    pub cookie: u64,
    pub cgroup: &'a Path,
    pub rules: &'a Rules,
    pub network: &'a PodNetwork,
}

/// A dial that the rules capture.
#[derive(Clone, Copy)]
struct Trial {
    to: SocketAddr,
    /// The source address that the proxy must see.
    source: IpAddr,
    /// User and group of the dialling program.
    owner: (u32, u32),
}

/// What was found to be wrong, or why the validation could not be done.
#[derive(Debug, thiserror::Error)]
pub enum ValidationError {
    #[error("validation: with these rules and routes no connection of a program is captured")]
    NothingCaptured,
    #[error("validation: {}", path.display())]
    Cgroup { path: PathBuf, source: io::Error },
    #[error("validation: cannot enter the cgroup {}", path.display())]
    EnterCgroup { path: PathBuf, source: io::Error },
    #[error("validation: {doing}")]
    Become { doing: String, source: io::Error },
    #[error("validation: a proxy already listens at port {0}: run the validation before the proxy")]
    ProxyRuns(u16),
    #[error("validation: cannot listen at port {port}")]
    Listen { port: u16, source: io::Error },
    #[error(transparent)]
    Tables(#[from] Error),
    #[error(
        "validation: of {wanted} listeners at port {} {} were found, at port {} {}: the proxy's cgroup has to be in \
         the one to which programs are attached; name the pod's by --cgroup",
        ports[0], found[0], ports[1], found[1]
    )]
    NotFound { wanted: usize, ports: [u16; 2], found: [usize; 2] },
    #[error("validation: connection of user {user} to {to}")]
    Dialled { user: u32, to: SocketAddr, source: DialError },
    #[error("validation: the proxy's own connection to {0} came back to it: see --proxy-uid")]
    CameBack(SocketAddr),
}

/// What went wrong with a connection that a program of the pod dialled.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error(transparent)]
    Refused(#[from] io::Error),
    #[error("no connection arrived at port {0}")]
    Nothing(u16),
    #[error("the connection ended at once")]
    Ended,
    #[error("SO_ORIGINAL_DST failed at the proxy")]
    NotTold(#[source] io::Error),
    #[error("SO_ORIGINAL_DST gave the proxy {0}")]
    ToldOther(SocketAddr),
    #[error("the proxy sees {seen} as its source, but its source is {local}")]
    OtherPeer { seen: SocketAddr, local: SocketAddr },
    #[error("the proxy sees {seen} as its source, not {expected}")]
    OtherSource { seen: IpAddr, expected: IpAddr },
    #[error("getpeername(2) gave the program {0}")]
    OtherRemote(SocketAddr),
}

type Result<T> = std::result::Result<T, ValidationError>;

pub fn run(pod: &Pod) -> Result<()> {
    enter_cgroup(pod.cgroup)?;
    let trials: Vec<Trial> = NOWHERE.iter().filter_map(|any| pod.trial(any.is_ipv4())).collect();
    if trials.is_empty() {
        return Err(ValidationError::NothingCaptured);
    }
    let proxy = (pod.rules.proxy_uids[0], pod.rules.proxy_gids[0]);
    std::thread::scope(|scope| {
        let (stand_in, stop) = std::sync::mpsc::channel::<()>();
        let _stand_in = stand_in; // dropping it ends the stand-in for the proxy
        let (told, heard) = std::sync::mpsc::channel();
        // The stand-in creates and queries its sockets as the proxy would.
        scope.spawn(move || {
            let listening = become_one(pod.namespace, proxy).and_then(|()| listen(pod.rules));
            let listening = listening.map(|[outbound, inbound]| {
                let _ = told.send(Ok(outbound.try_clone_all()));
                (outbound, inbound)
            });
            match listening {
                Ok(_held) => drop(stop.recv()),
                Err(why) => drop(told.send(Err(why))),
            }
        });
        let outbound = heard.recv().expect("the stand-in reports whether it has started")?;
        pod.taken(&outbound)?;
        trials.iter().try_for_each(|trial| pod.try_out(*trial, proxy, &outbound))?;
        trials.iter().try_for_each(|trial| pod.try_free(*trial, proxy, &outbound))
    })
}

// --- identity of the processes ---------------------------------------------------------------------------------------

/// The BPF programs see only sockets of processes in the cgroup.
fn enter_cgroup(cgroup: &Path) -> Result<()> {
    let unreachable = |source| ValidationError::Cgroup { path: cgroup.into(), source };
    let wanted = cgroup.canonicalize().map_err(unreachable)?;
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let is_inside = attach::ancestors(&wanted).last().is_some_and(|root| root.join(own).starts_with(&wanted));
    if is_inside {
        return Ok(());
    }
    fs::write(wanted.join("cgroup.procs"), std::process::id().to_string())
        .map_err(|source| ValidationError::EnterCgroup { path: wanted, source })
}

/// Moves the calling thread into the pod, as this user and group, for good.
fn become_one(namespace: &Path, (user, group): (u32, u32)) -> Result<()> {
    let cannot = |doing: String| move |source: io::Error| ValidationError::Become { doing, source };
    let file = File::open(namespace).map_err(cannot(format!("open the namespace {}", namespace.display())))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|errno| cannot(format!("enter the namespace {}", namespace.display()))(errno.into()))?;
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(group));
    let become_group = set_thread_res_gid(gid, gid, gid);
    become_group.map_err(|errno| cannot(format!("become group {group}"))(errno.into()))?;
    let become_user = set_thread_res_uid(uid, uid, uid);
    become_user.map_err(|errno| cannot(format!("become user {user}"))(errno.into()))
}

/// Runs `work` on a thread that is in the pod, as this user and group.
fn as_one<T: Send>(namespace: &Path, owner: (u32, u32), work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let theirs = scope.spawn(|| {
            become_one(namespace, owner)?;
            work()
        });
        theirs.join().expect("`work` does not panic")
    })
}

// --- the stand-in for the proxy --------------------------------------------------------------------------------------

/// One listener for each family, as Envoy has them.
struct Listeners(Vec<TcpListener>);

impl Listeners {
    fn try_clone_all(&self) -> Listeners {
        Listeners(self.0.iter().filter_map(|listener| listener.try_clone().ok()).collect())
    }

    /// The next connection to this family's listener; None: none came in time.
    fn accept(&self, v4: bool, patience: Duration) -> Option<(TcpStream, SocketAddr)> {
        let its = self.0.iter().find(|listener| listener.local_addr().is_ok_and(|at| at.is_ipv4() == v4))?;
        let deadline = Instant::now() + patience;
        loop {
            match its.accept() {
                Ok(accepted) => return Some(accepted),
                Err(_) if Instant::now() >= deadline => return None,
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}

/// Listeners for outbound and for inbound connections.
fn listen(rules: &Rules) -> Result<[Listeners; 2]> {
    let at = |port| -> Result<Listeners> {
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let mut listeners = Vec::new();
        for ip in any {
            match listen_at(SocketAddr::new(ip, port)) {
                Ok(listener) => listeners.push(listener),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    return Err(ValidationError::ProxyRuns(port));
                }
                // The namespace has no IPv6.
                Err(_) if ip.is_ipv6() => {}
                Err(source) => return Err(ValidationError::Listen { port, source }),
            }
        }
        Ok(Listeners(listeners))
    };
    Ok([at(rules.outbound_port)?, at(rules.inbound_port)?])
}

fn listen_at(at: SocketAddr) -> io::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &at)?;
    listen(&socket, 16)?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn original(stream: &TcpStream) -> io::Result<SocketAddr> {
    Ok(match stream.local_addr()? {
        SocketAddr::V4(_) => sockopt::ip_original_dst(stream)?.into(),
        SocketAddr::V6(_) => sockopt::ipv6_original_dst(stream)?.into(),
    })
}

// --- trials ---------------------------------------------------------------------------------------------------------

impl Pod<'_> {
    /// A destination in this family that a program may dial and that is captured.
    fn trial(&self, v4: bool) -> Option<Trial> {
        let included = match &self.rules.include_outbound_ranges {
            Ranges::All => Vec::new(),
            Ranges::These(ranges) => ranges.iter().filter_map(|range| range.hosts().next()).collect(),
        };
        let addresses: Vec<IpAddr> = NOWHERE.into_iter().chain(included).filter(|ip| ip.is_ipv4() == v4).collect();
        let ports = PORTS.iter().chain(&self.rules.include_outbound_ports);
        let trials = ports.flat_map(|port| addresses.iter().map(|ip| SocketAddr::new(*ip, *port)));
        let mut trials = trials.flat_map(|to| PROGRAMS.map(|owner| (to, (owner, owner))));
        trials.find_map(|(to, owner)| {
            let (interface, source) = self.leaves_by(to.ip())?;
            let captured = self.action(to, interface, owner) == Action::Outbound(self.rules.outbound_port);
            captured.then_some(Trial { to, source, owner })
        })
    }

    fn action(&self, to: SocketAddr, interface: &str, (uid, gid): (u32, u32)) -> Action {
        let probe = Outbound { protocol: Protocol::Tcp, destination: to, source: None, interface, uid, gid };
        Probe::Outbound(probe).verdict(self.rules).action
    }

    /// The interface and source address that the kernel would use.
    fn leaves_by(&self, ip: IpAddr) -> Option<(&str, IpAddr)> {
        let covering = self.network.routes.iter().filter(|(net, _)| net.contains(&ip));
        match covering.max_by_key(|(net, _)| net.prefix_len())?.1 {
            Route::By { interface, source } => {
                let mut names = self.network.interfaces.iter();
                names.find(|(_, number)| **number == interface).map(|(name, _)| (name.as_str(), source))
            }
            Route::Local { .. } | Route::Nowhere { .. } => None,
        }
    }

    /// Checks that the map has the listeners: inbound connections find a listener only if the programs saw listen(2).
    fn taken(&self, outbound: &Listeners) -> Result<()> {
        let tables = Captures::open_read_only(self.pins)?;
        let found = tables.all_listening().get(&self.cookie).copied().unwrap_or_default();
        let wanted = outbound.0.len();
        if found.iter().all(|count| *count >= wanted) {
            println!(
                "validation: listeners at ports {} and {} are found",
                self.rules.outbound_port, self.rules.inbound_port
            );
            return Ok(());
        }
        let ports = [self.rules.outbound_port, self.rules.inbound_port];
        Err(ValidationError::NotFound { wanted, ports, found })
    }

    fn try_out(&self, trial: Trial, proxy: (u32, u32), outbound: &Listeners) -> Result<()> {
        let Trial { to, source, owner } = trial;
        let port = self.rules.outbound_port;
        let wrong = |source| ValidationError::Dialled { user: owner.0, to, source };
        let dialled = as_one(self.namespace, owner, || Ok(TcpStream::connect_timeout(&to, PATIENCE)))?;
        let stream = dialled.map_err(|error| wrong(error.into()))?;
        let accepted = outbound.accept(to.is_ipv4(), PATIENCE);
        let (accepted, peer) = accepted.ok_or_else(|| wrong(DialError::Nothing(port)))?;
        let told = as_one(self.namespace, proxy, || Ok(original(&accepted)))?;
        let told = told.map_err(|error| wrong(DialError::NotTold(error)))?;
        let ends = (stream.local_addr(), stream.peer_addr());
        let (Ok(local), Ok(remote)) = ends else { return Err(wrong(DialError::Ended)) };
        let expected = [
            (told == to, DialError::ToldOther(told)),
            (peer == local, DialError::OtherPeer { seen: peer, local }),
            (peer.ip() == source, DialError::OtherSource { seen: peer.ip(), expected: source }),
            (remote == to, DialError::OtherRemote(remote)),
        ];
        if let Some((_, error)) = expected.into_iter().find(|(is_so, _)| !is_so) {
            return Err(wrong(error));
        }
        println!("validation: {to} comes to port {port}, as {to}, from {source}");
        Ok(())
    }

    fn try_free(&self, trial: Trial, proxy: (u32, u32), outbound: &Listeners) -> Result<()> {
        let to = trial.to;
        let interface = self.leaves_by(to.ip()).map_or("", |(interface, _)| interface);
        if self.action(to, interface, proxy) != Action::Bypass {
            return Err(ValidationError::CameBack(to));
        }
        let dial = || {
            // The destination does not exist: refused or timed out, both are right.
            drop(TcpStream::connect_timeout(&to, FREE));
            Ok(())
        };
        as_one(self.namespace, proxy, dial)?;
        if outbound.accept(to.is_ipv4(), Duration::ZERO).is_some() {
            return Err(ValidationError::CameBack(to));
        }
        println!("validation: the proxy's own way to {to} is free");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_error::chain;

    #[test]
    fn a_dial_that_went_wrong_is_told_with_who_dialled_what() {
        let to: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let told = |source| chain(&ValidationError::Dialled { user: 65534, to, source }).to_string();
        let refused = io::Error::from_raw_os_error(111).into();
        assert_eq!(
            told(refused),
            "validation: connection of user 65534 to 192.0.2.1:80: Connection refused (os error 111)"
        );
        let nothing = "validation: connection of user 65534 to 192.0.2.1:80: no connection arrived at port 15001";
        assert_eq!(told(DialError::Nothing(15001)), nothing);
    }
}
