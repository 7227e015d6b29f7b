//! A testbed with the Service programs installed, and Services that tests define.

use sidestep_ebpf::plane::{Counters, Maps};
use sidestep_ebpf::services::{self, Options};
use sidestep_mesh::address::{Endpoint, Protocol};
use sidestep_mesh::choose;
use sidestep_mesh::object::{Key, Name, Object, Port, Selection, Service, Slice, SliceEndpoint, SlicePort};
use sidestep_mesh::reconcile::{Outcome, Reconciler};
use sidestep_mesh::state::{Change, State};
use sidestep_testkit::{Pod, Testbed};
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

pub struct Node {
    pub testbed: Testbed,
    pub maps: Maps,
    pub state: State,
    pub reconciler: Reconciler,
    pub options: Options,
}

impl Node {
    pub fn new() -> Node {
        Node::with(false)
    }

    /// `watch`: whether connections are counted.
    pub fn with(watch: bool) -> Node {
        let testbed = Testbed::new();
        let cgroup = testbed.cgroup.path().to_path_buf();
        Node::serving(testbed, cgroup, watch)
    }

    /// Serves the processes of that cgroup.
    pub fn serving(testbed: Testbed, cgroup: PathBuf, watch: bool) -> Node {
        let options = Options {
            pins: testbed.bpffs().join("sidestep"),
            cgroup,
            node_netns: testbed.node.run(netns_cookie),
            watch,
        };
        let (maps, reconciler) = install(&options);
        Node { testbed, maps, state: State::default(), reconciler, options }
    }

    pub fn change(&mut self, change: Change) -> Outcome {
        let services = self.state.apply(change).services;
        self.reconciler.apply(&self.state, services, &mut self.maps, 0).unwrap()
    }

    /// A Service with one address and port, and its endpoints.
    pub fn service(
        &mut self,
        name: &str,
        protocol: Protocol,
        vip: &str,
        port: u16,
        endpoints: impl IntoIterator<Item = (IpAddr, u16)>,
    ) -> Outcome {
        self.change(Change::Put(Object::Service(plain_service(name, protocol, vip, port))));
        self.endpoints(name, protocol, endpoints)
    }

    /// Replaces the endpoints of the Service, see [`slice`].
    pub fn endpoints(
        &mut self,
        name: &str,
        protocol: Protocol,
        endpoints: impl IntoIterator<Item = (IpAddr, u16)>,
    ) -> Outcome {
        self.change(Change::Put(Object::Slice(slice(name, protocol, endpoints))))
    }

    /// The counters of the Service's only port.
    pub fn counters(&self, name: &str) -> Counters {
        let ports = self.reconciler.ports();
        let port = ports.iter().find(|port| &*port.key.service.name == name).expect("the Service is programmed");
        self.maps.counters(port.service).unwrap()
    }

    /// Deletes the Service and its endpoints.
    pub fn forget(&mut self, name: &str) -> Outcome {
        let name = Name::new("default", name);
        self.change(Change::Delete(Key::Slice(name.clone())));
        self.change(Change::Delete(Key::Service(name)))
    }

    /// Number of sockets that count as connected to a backend; 0 if it is no backend.
    pub fn open(&self, address: IpAddr, port: u16) -> u64 {
        self.reconciler.backend(&Endpoint::new(address, port)).map_or(0, |number| self.maps.load(number).active)
    }

    pub fn reason(&self, name: &str) -> u64 {
        self.maps.reasons().unwrap().into_iter().find(|(reason, _)| *reason == name).unwrap().1
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        services::remove(&self.options.pins).unwrap();
    }
}

pub fn install(options: &Options) -> (Maps, Reconciler) {
    let node = choose::Node { name: "node".into(), zone: None, external: false };
    services::install(options, |mut maps| {
        let reconciler = Reconciler::new(node, &mut maps).unwrap();
        Ok((maps, reconciler))
    })
    .unwrap()
}

pub fn plain_service(name: &str, protocol: Protocol, vip: &str, port: u16) -> Service {
    Service {
        name: Name::new("default", name),
        cluster_ips: vec![vip.parse().unwrap()],
        external_ips: Vec::new(),
        load_balancer_ips: Vec::new(),
        source_ranges: Vec::new(),
        ports: vec![Port { name: "".into(), protocol, port, node_port: None }],
        affinity_seconds: None,
        internal_local: false,
        external_local: false,
        health_check_port: None,
        selection: Selection::Random,
        bypass: Default::default(),
        created: String::new(),
        left: Vec::new(),
    }
}

/// A slice with all endpoints of a Service. All have the first one's port.
pub fn slice(name: &str, protocol: Protocol, endpoints: impl IntoIterator<Item = (IpAddr, u16)>) -> Slice {
    let endpoints: Vec<_> = endpoints.into_iter().collect();
    let port = endpoints.first().map_or(1, |(_, port)| *port);
    Slice {
        name: Name::new("default", name),
        service: name.into(),
        ports: vec![SlicePort { name: "".into(), protocol, port }],
        endpoints: endpoints.iter().map(|(address, _)| ready(*address)).collect(),
        weights: Default::default(),
        left: Vec::new(),
    }
}

pub fn ready(address: IpAddr) -> SliceEndpoint {
    SliceEndpoint {
        address,
        ready: true,
        serving: true,
        terminating: false,
        node: None,
        zone_hints: Default::default(),
        node_hints: Default::default(),
    }
}

/// SO_NETNS_COOKIE of the calling thread's namespace.
pub fn netns_cookie() -> u64 {
    sidestep_ebpf::netns::cookie().unwrap()
}

/// A server in the pod, for both families, that tells each client the pod's address. Ends when dropped.
pub struct Backend {
    listener: Arc<TcpListener>,
    server: Option<JoinHandle<()>>,
}

pub fn backend(pod: &Pod, port: u16) -> Backend {
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
    let listener = Arc::new(pod.namespace.run(|| TcpListener::bind(any).unwrap()));
    let (serving, v4, v6) = (listener.clone(), pod.v4, pod.v6);
    let server = std::thread::spawn(move || {
        while let Ok((mut stream, _)) = serving.accept() {
            let mapped = stream.local_addr().unwrap().ip().to_canonical().is_ipv4();
            // The client may have gone.
            let _ = write!(stream, "{}", if mapped { v4 } else { v6 });
        }
    });
    Backend { listener, server: Some(server) }
}

impl Drop for Backend {
    fn drop(&mut self) {
        rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both).unwrap();
        self.server.take().unwrap().join().unwrap();
    }
}
