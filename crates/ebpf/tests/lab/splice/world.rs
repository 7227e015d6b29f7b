//! A lab with the splice programs installed.

use sidestep_ebpf::splice::{self, Options, Status};
use sidestep_testkit::{Lab, Namespace};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Opted in.
pub const PORT: u16 = 7000;

pub struct World {
    pub lab: Lab,
    pub options: Options,
}

impl World {
    pub fn new() -> World {
        World::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Options)) -> World {
        let lab = Lab::new();
        let mut options = Options {
            pins: lab.bpffs().join("sidestep"),
            cgroup: lab.cgroup.path().into(),
            ports: ["7000-7099".parse().unwrap()].into_iter().collect(),
            netns: Vec::new(),
            sockets: None,
        };
        change(&mut options);
        splice::install(&options).unwrap();
        World { lab, options }
    }

    pub fn status(&self) -> Status {
        splice::status(&self.options.pins).unwrap().expect("it is installed")
    }

    pub fn reason(&self, name: &str) -> u64 {
        self.status().reason(name)
    }

    /// How many bytes have gone by queue.
    pub fn redirected(&self) -> u64 {
        self.status().redirected.bytes
    }

    /// The two ends of a connection in the node's namespace, which is spliced if `PORT` is.
    pub fn pair(&self) -> (TcpStream, TcpStream) {
        pair_in(&self.lab.node, at_port(PORT))
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

/// Client and server.
pub fn pair_in(namespace: &Namespace, at: SocketAddr) -> (TcpStream, TcpStream) {
    namespace.run(|| {
        let listener = TcpListener::bind(at).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    })
}
