//! Servers that tell a client how its connection looks from their end: programs of a pod, and its proxy.

use rustix::net::sockopt;
use std::fmt;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Whose files a thread's are: (user, group).
pub type Owner = (u32, u32);

pub const ROOT: Owner = (0, 0);
/// What Istio's sidecars run as.
pub const PROXY: Owner = (1337, 1337);

/// How a connection looks from the server's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Port of the listener.
    pub listener: u16,
    pub local: SocketAddr,
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
    pub fn read(mut stream: &TcpStream) -> std::io::Result<Seen> {
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Seen::said(&text)
    }

    /// From the server's own words.
    pub fn said(text: &str) -> std::io::Result<Seen> {
        let [listener, local, peer, original] = text.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(std::io::Error::other(format!("said {text:?}")));
        };
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        Ok(Seen {
            listener: listener.parse().unwrap(),
            local: at(local),
            peer: at(peer),
            original: (original != "-").then(|| at(original)),
        })
    }
}

/// Makes the calling thread somebody else's, for good: the C library would change all threads.
pub fn become_owner((user, group): Owner) {
    // SAFETY: no memory is involved.
    let done = unsafe {
        (libc::syscall(libc::SYS_setresgid, group, group, group), libc::syscall(libc::SYS_setresuid, user, user, user))
    };
    assert_eq!(done, (0, 0), "change the owner (needs root)");
}

/// Runs `work` on a thread that belongs to somebody.
pub fn as_owner<T: Send>(owner: Owner, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let theirs = scope.spawn(|| {
            become_owner(owner);
            work()
        });
        theirs.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Listens at these addresses in the calling thread's namespace until it is dropped.
pub struct Greeter {
    stop: Arc<AtomicBool>,
    threads: Vec<(SocketAddr, Arc<TcpListener>, JoinHandle<()>)>,
}

impl Greeter {
    pub fn new(owner: Owner, addresses: &[SocketAddr]) -> Greeter {
        let listeners: Vec<_> = as_owner(owner, || addresses.iter().map(|at| (*at, listen(*at))).collect());
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
            (at, listener, thread)
        });
        let threads = threads.collect();
        Greeter { stop, threads }
    }
}

impl Drop for Greeter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (_, listener, thread) in self.threads.drain(..) {
            // A listener that is shut down wakes its acceptor up.
            let _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
            thread.join().unwrap();
        }
    }
}

/// Of one family only, as Envoy's listeners are.
pub fn listen(at: SocketAddr) -> Arc<TcpListener> {
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    let family = if at.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = socket(family, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    sockopt::set_socket_reuseport(&socket, true).unwrap();
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true).unwrap();
    }
    bind(&socket, &at).unwrap_or_else(|error| panic!("{at}: {error}"));
    listen(&socket, 128).unwrap();
    Arc::new(TcpListener::from(socket))
}

fn greet(mut stream: &TcpStream, listener: u16, peer: SocketAddr) {
    let seen = Seen { listener, local: stream.local_addr().unwrap(), peer, original: original(&stream) };
    // The client may have gone.
    let _ = stream.write_all(seen.to_string().as_bytes());
}

const SO_ORIGINAL_DST: libc::c_int = 80;

/// What the connection was redirected from, as a proxy asks.
pub fn original(stream: &impl AsFd) -> Option<SocketAddr> {
    let stream = stream.as_fd();
    let v6 = rustix::net::sockopt::socket_domain(stream).unwrap() == rustix::net::AddressFamily::INET6;
    // SAFETY: any bits are a value of these types, and the kernel is told their sizes.
    unsafe {
        if v6 {
            let mut at: libc::sockaddr_in6 = std::mem::zeroed();
            let found = option(stream.as_raw_fd(), libc::SOL_IPV6, &mut at)?;
            let ip = Ipv6Addr::from(found.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(found.sin6_port), 0, 0).into())
        } else {
            let mut at: libc::sockaddr_in = std::mem::zeroed();
            let found = option(stream.as_raw_fd(), libc::SOL_IP, &mut at)?;
            let ip = Ipv4Addr::from(u32::from_be(found.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(found.sin_port)).into())
        }
    }
}

/// # Safety
/// Any bits are a `T`.
unsafe fn option<T: Copy>(fd: i32, level: libc::c_int, value: &mut T) -> Option<T> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: there is room for `length` bytes, which are a value whatever they are.
    let done = unsafe { libc::getsockopt(fd, level, SO_ORIGINAL_DST, std::ptr::from_mut(value).cast(), &mut length) };
    (done == 0).then_some(*value)
}
