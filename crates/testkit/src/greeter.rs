//! Servers that tell a client how its connection looks from their end. They stand for programs of a pod, and for its proxy.

use crate::Pod;
use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// (user, group) of a thread, and so of its sockets' files.
pub type Owner = (u32, u32);

/// Root's user and group.
pub const ROOT: Owner = (0, 0);
/// User and group of Istio's sidecars.
pub const PROXY: Owner = (1337, 1337);
/// The proxy's port for outbound connections of a pod.
pub const OUTBOUND: u16 = 15001;
/// The proxy's port for inbound connections of a pod.
pub const INBOUND: u16 = 15006;
/// More than anything takes on one machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a connection looks from the server's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Port of the listener.
    pub listener: u16,
    /// The server's end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// SO_ORIGINAL_DST's answer.
    pub original: Option<SocketAddr>,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let original = self.original.map_or("-".into(), |at| at.to_string());
        writeln!(f, "{} {} {} {original}", self.listener, self.local, self.peer)
    }
}

impl Seen {
    /// Reads what the server says on this connection.
    pub fn read(mut stream: &TcpStream) -> io::Result<Seen> {
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Seen::said(&text)
    }

    /// Parses what the server has said.
    pub fn said(text: &str) -> io::Result<Seen> {
        let [listener, local, peer, original] = text.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(io::Error::other(format!("it said {text:?}")));
        };
        let at = |text: &str| text.parse::<SocketAddr>().map_err(io::Error::other);
        let listener = listener.parse().map_err(io::Error::other)?;
        let original = if original == "-" { None } else { Some(at(original)?) };
        Ok(Seen { listener, local: at(local)?, peer: at(peer)?, original })
    }
}

/// Gives the calling thread this user and group, for good.
pub fn become_owner((user, group): Owner) {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    set_thread_res_gid(group, group, group).expect("change the group (needs root)");
    set_thread_res_uid(user, user, user).expect("change the user (needs root)");
}

/// Runs `work` on a thread with this user and group.
pub fn as_owner<T: Send>(owner: Owner, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let theirs = scope.spawn(|| {
            become_owner(owner);
            work()
        });
        theirs.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The unspecified addresses of both families, with this port.
pub fn any(port: u16) -> [SocketAddr; 2] {
    [(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()]
}

/// A server that listens until it is dropped.
pub struct Greeter {
    stop: Arc<AtomicBool>,
    threads: Vec<(Arc<TcpListener>, JoinHandle<()>)>,
}

impl Greeter {
    /// Starts a server in the pod, as this user and group, that listens at these addresses.
    pub fn new(pod: &Pod, owner: Owner, addresses: &[SocketAddr]) -> Greeter {
        pod.namespace.run(|| Greeter::here(owner, addresses))
    }

    /// Starts a server in the calling thread's namespace.
    pub fn here(owner: Owner, addresses: &[SocketAddr]) -> Greeter {
        let all = || addresses.iter().map(|at| (*at, Arc::new(listener(*at)))).collect();
        let listeners: Vec<_> = as_owner(owner, all);
        let stop = Arc::new(AtomicBool::new(false));
        let threads = listeners.into_iter().map(|(at, listener)| {
            let (stop, serving) = (stop.clone(), listener.clone());
            let thread = std::thread::spawn(move || {
                become_owner(owner);
                while let Ok((stream, peer)) = serving.accept() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    greet(&stream, at.port(), peer);
                }
            });
            (listener, thread)
        });
        let threads = threads.collect();
        Greeter { stop, threads }
    }

    /// Starts the pod's proxy.
    pub fn proxy(pod: &Pod) -> Greeter {
        Greeter::new(pod, PROXY, &[any(OUTBOUND), any(INBOUND)].concat())
    }

    /// Starts a program of the pod.
    pub fn program(pod: &Pod, port: u16) -> Greeter {
        Greeter::new(pod, ROOT, &any(port))
    }
}

impl Drop for Greeter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (listener, thread) in self.threads.drain(..) {
            // Shutting down a listener wakes the thread that accepts.
            let _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
            let _ = thread.join();
        }
    }
}

/// A listener for one family only, as Envoy has them.
pub fn listener(at: SocketAddr) -> TcpListener {
    let family = if at.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = socket(family, SocketType::STREAM, None).expect("a socket");
    sockopt::set_socket_reuseaddr(&socket, true).expect("SO_REUSEADDR");
    sockopt::set_socket_reuseport(&socket, true).expect("SO_REUSEPORT");
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true).expect("IPV6_V6ONLY");
    }
    bind(&socket, &at).unwrap_or_else(|error| panic!("{at}: {error}"));
    listen(&socket, 128).expect("listen");
    TcpListener::from(socket)
}

fn greet(mut stream: &TcpStream, listener: u16, peer: SocketAddr) {
    let local = stream.local_addr().expect("an address of its own");
    let seen = Seen { listener, local, peer, original: original(stream) };
    // The client may have gone.
    let _ = stream.write_all(seen.to_string().as_bytes());
}

/// The original destination, as a proxy asks for it.
pub fn original(stream: &TcpStream) -> Option<SocketAddr> {
    let family = sockopt::socket_domain(stream).expect("SO_DOMAIN");
    let found = if family == AddressFamily::INET6 {
        sockopt::ipv6_original_dst(stream).map(SocketAddr::V6)
    } else {
        sockopt::ip_original_dst(stream).map(SocketAddr::V4)
    };
    found.ok()
}

/// Dials from the pod as this user and group, and returns what the server sees. The connection ends by a reset, so that no port
/// stays in TIME_WAIT.
pub fn greeted(pod: &Pod, owner: Owner, to: SocketAddr) -> io::Result<Seen> {
    pod.namespace.run(|| as_owner(owner, || greeted_here(to)))
}

/// The same from the calling thread.
pub fn greeted_here(to: SocketAddr) -> io::Result<Seen> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    Seen::read(&stream)
}
