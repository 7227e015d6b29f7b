//! A testbed with the splice programs installed.

use libbpf_rs::{MapCore, MapHandle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use sidestep_ebpf::splice::{self, Options, Status};
use sidestep_testkit::{Namespace, Testbed};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The first of 100 opted-in ports.
pub const PORT: u16 = 7000;
/// Reached only if something is lost.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct World {
    pub testbed: Testbed,
    pub options: Options,
}

impl World {
    pub fn new() -> World {
        World::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Options)) -> World {
        let testbed = Testbed::new();
        let mut options = Options {
            pins: testbed.bpffs().join("sidestep"),
            cgroup: testbed.cgroup.path().into(),
            ports: ["7000-7099".parse().unwrap()].into_iter().collect(),
            netns: Vec::new(),
            blocking: false,
            sockets: None,
        };
        change(&mut options);
        splice::install(&options).unwrap();
        World { testbed, options }
    }

    pub fn status(&self) -> Status {
        splice::status(&self.options.pins).unwrap().expect("it is installed")
    }

    pub fn reason(&self, name: &str) -> u64 {
        self.status().reason(name)
    }

    /// Number of bytes that were redirected.
    pub fn redirected(&self) -> u64 {
        self.status().redirected.bytes
    }

    /// Number of sockets in the sockmap.
    pub fn keys(&self) -> usize {
        MapHandle::from_pinned_path(self.options.pins.join("splice/maps-1/sockets")).unwrap().keys().count()
    }

    /// Both ends of a connection in the node's namespace.
    pub fn pair(&self) -> (End, End) {
        pair_in(&self.testbed.node, at_port(PORT))
    }

    /// The same; both ends are known to be spliced.
    pub fn spliced(&self) -> (End, End) {
        let before = self.reason("spliced");
        let pair = self.pair();
        assert_eq!(self.reason("spliced"), before + 1);
        pair
    }
}

impl Drop for World {
    fn drop(&mut self) {
        splice::remove(&self.options.pins).unwrap();
    }
}

pub fn at_port(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// An end of a connection that waits only for readiness, never in a call, as the programs do for which splicing is made.
pub struct End(pub TcpStream);

impl End {
    pub fn new(socket: TcpStream) -> End {
        socket.set_nonblocking(true).unwrap();
        End(socket)
    }

    pub fn connect(to: SocketAddr) -> io::Result<End> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        End::connect_by(net::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK, None)?, to)
    }

    /// Connects a socket that is non-blocking already.
    pub fn connect_by(socket: OwnedFd, to: SocketAddr) -> io::Result<End> {
        match net::connect(&socket, &to) {
            Err(Errno::INPROGRESS) => {}
            done => done?,
        }
        let end = End(socket.into());
        end.wait(PollFlags::OUT);
        end.0.take_error()?.map_or(Ok(end), Err)
    }

    pub fn accept(listener: &TcpListener) -> End {
        wait(listener, PollFlags::IN);
        End::new(listener.accept().unwrap().0)
    }

    pub fn wait(&self, wanted: PollFlags) {
        wait(&self.0, wanted);
    }

    pub fn shutdown(&self) {
        self.0.shutdown(Shutdown::Write).unwrap();
    }

    /// close() will reset the connection.
    pub fn reset_at_close(&self) {
        sockopt::set_socket_linger(&self.0, Some(Duration::ZERO)).unwrap();
    }

    /// All bytes until the end of the stream.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Exactly so many bytes.
    pub fn hear(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read_exact(&mut bytes).unwrap();
        bytes
    }
}

/// Waits until the socket is ready. A timeout means that something is lost.
fn wait(socket: &impl AsFd, wanted: PollFlags) {
    let patience = Timespec::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut [PollFd::new(socket, wanted)], Some(&patience)).unwrap(), 1, "in vain for {wanted:?}");
}

impl Read for End {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Read for &End {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&self.0).read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::IN),
                done => return done,
            }
        }
    }
}

impl Write for End {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for &End {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match (&self.0).write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::OUT),
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub fn listen(at: SocketAddr) -> TcpListener {
    let listener = TcpListener::bind(at).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

/// Client and server.
pub fn pair_in(namespace: &Namespace, at: SocketAddr) -> (End, End) {
    namespace.run(|| {
        let listener = listen(at);
        let client = End::connect(at).unwrap();
        (client, End::accept(&listener))
    })
}
