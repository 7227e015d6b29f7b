//! A node that forwards, with a client outside of it, whose sockets no program translates.

use crate::node::{Node, plain_service, slice};
use crate::sockets::{PATIENCE, at};
use sidestep_ebpf::external::{self, External};
use sidestep_mesh::address::Protocol;
use sidestep_mesh::choose;
use sidestep_mesh::object::{Object, Service};
use sidestep_mesh::state::Change;
use sidestep_testkit::{Cgroup, Namespace, Pod, Testbed};
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The node's and the client's addresses on the network between them.
pub const NODE: [&str; 2] = ["192.0.2.1", "2001:db8:1::1"];
pub const CLIENT: [&str; 2] = ["192.0.2.2", "2001:db8:1::2"];
/// The node's addresses for pods, from which masqueraded packets come.
pub const INSIDE: [&str; 2] = ["10.244.0.1", "fd00:244::1"];
pub const CLUSTER: [&str; 2] = ["10.96.0.1", "fd00:96::1"];
pub const EXTERNAL: [&str; 2] = ["198.51.100.1", "2001:db8:2::1"];
pub const BALANCER: [&str; 2] = ["198.51.100.2", "2001:db8:2::2"];
pub const NODE_PORT: u16 = 30080;
/// Long enough for packets that come, if one waits for those that must not come.
pub const SHORT: Duration = Duration::from_millis(300);

pub struct World {
    pub external: External,
    pub outside: Namespace,
    pub node: Node,
    _served: Cgroup,
}

impl World {
    pub fn new() -> World {
        let testbed = Testbed::new();
        // Nobody is in it: what the client dials is not translated by its socket.
        let served = Cgroup::new(&format!("{}-served", testbed.node.name()));
        let mut node = Node::serving(testbed, served.path().into(), false);
        node.reconciler.set_node(choose::Node { name: "node".into(), zone: None, external: true });
        let outside = connect_outside(&node.testbed.node);
        let addresses: BTreeSet<_> = NODE.iter().chain(&INSIDE).map(|ip| at(ip, 0).ip().into()).collect();
        node.maps.set_node_addresses(&addresses, |_| true).unwrap();
        let pins = node.options.pins.clone();
        let external = node.testbed.node.run(|| external::install(&pins).unwrap());
        World { external, outside, node, _served: served }
    }

    /// Packets that the node forwards to the network outside come from its own address, and from this port.
    pub fn masquerade(&self, which: &str, port: u16) {
        let chain = "add table inet cni; add chain inet cni post { type nat hook postrouting priority 100; }";
        let rule = format!("add rule inet cni post oifname ext0 {which} masquerade to :{port}");
        let nft = || Command::new("nft").arg(format!("{chain}; {rule}")).status().unwrap().success();
        assert!(self.node.testbed.node.run(nft));
    }

    /// A pod that answers to everybody.
    pub fn pod(&mut self) -> Pod {
        let pod = self.node.testbed.pod();
        pod.namespace.ip("route add default via 10.244.0.1");
        pod.namespace.ip("-6 route add default via fd00:244::1");
        self.node.testbed.node.run(|| self.external.follow().unwrap());
        pod
    }

    /// A Service with every kind of address; `change` makes it another one.
    pub fn service(&mut self, protocol: Protocol, pods: &[(&Pod, &str)], change: impl FnOnce(&mut Service)) {
        let mut service = plain_service("web", protocol, CLUSTER[0], 80);
        service.cluster_ips.push(CLUSTER[1].parse().unwrap());
        service.external_ips = EXTERNAL.map(|ip| ip.parse().unwrap()).into();
        service.load_balancer_ips = BALANCER.map(|ip| ip.parse().unwrap()).into();
        service.ports[0].node_port = Some(NODE_PORT);
        change(&mut service);
        self.node.change(Change::Put(Object::Service(service)));
        self.endpoints(protocol, pods);
    }

    /// Pods, and the nodes that they are said to be on.
    pub fn endpoints(&mut self, protocol: Protocol, pods: &[(&Pod, &str)]) {
        let addresses = pods.iter().flat_map(|(pod, _)| [(pod.v4, 8080), (pod.v6, 8080)]);
        let mut slice = slice("web", protocol, addresses);
        for (endpoint, place) in slice.endpoints.iter_mut().zip(pods.iter().flat_map(|(_, place)| [place, place])) {
            endpoint.node = Some((*place).into());
        }
        self.node.change(Change::Put(Object::Slice(slice)));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let pins = self.node.options.pins.clone();
        self.node.testbed.node.run(|| external::remove(&pins).unwrap());
    }
}

fn connect_outside(node: &Namespace) -> Namespace {
    let outside = Namespace::fresh();
    node.ip(&format!("link add ext0 type veth peer name eth0 netns {}", outside.name()));
    for (namespace, device, ips) in [(node, "ext0", NODE), (&outside, "eth0", CLIENT)] {
        namespace.ip(&format!("addr add {}/24 dev {device}", ips[0]));
        namespace.ip(&format!("-6 addr add {}/64 dev {device} nodad", ips[1]));
        namespace.ip(&format!("link set {device} up"));
    }
    outside.ip(&format!("route add default via {}", NODE[0]));
    outside.ip(&format!("-6 route add default via {}", NODE[1]));
    node.run(|| {
        for file in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/net/{file}"), "1").unwrap();
        }
    });
    outside
}

/// Every address of the Service of [`World::service`] that a client outside dials, in this family.
pub fn frontends(family: usize) -> [SocketAddr; 3] {
    [at(EXTERNAL[family], 80), at(BALANCER[family], 80), at(NODE[family], NODE_PORT)]
}

/// Tells each client which address it comes from and its own, a word each, and then returns what it gets.
pub struct Witness {
    listener: Arc<TcpListener>,
    server: Option<JoinHandle<()>>,
}

pub fn witness(pod: &Pod) -> Witness {
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 8080);
    let listener = Arc::new(pod.namespace.run(|| TcpListener::bind(any).unwrap()));
    let serving = listener.clone();
    let server = std::thread::spawn(move || {
        while let Ok((stream, from)) = serving.accept() {
            std::thread::spawn(move || serve(stream, from));
        }
    });
    Witness { listener, server: Some(server) }
}

/// The client may end at any time.
fn serve(mut stream: TcpStream, from: SocketAddr) {
    let mine = stream.local_addr().unwrap().ip().to_canonical();
    let _ = writeln!(stream, "{} {mine}", from.ip().to_canonical());
    let _ = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
    let _ = stream.shutdown(Shutdown::Write);
}

impl Drop for Witness {
    fn drop(&mut self) {
        rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both).unwrap();
        self.server.take().unwrap().join().unwrap();
    }
}

/// A connection to a [`Witness`].
pub struct Call {
    pub stream: BufReader<TcpStream>,
    /// The client's address, as the server sees it.
    pub seen: IpAddr,
    pub server: IpAddr,
}

impl Call {
    pub fn on(stream: TcpStream) -> Call {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (mut stream, mut told) = (BufReader::new(stream), String::new());
        stream.read_line(&mut told).unwrap();
        let mut words = told.split_whitespace().map(|word| word.parse().unwrap());
        Call { stream, seen: words.next().unwrap(), server: words.next().unwrap() }
    }

    /// Sends bytes, which must all come back.
    pub fn exchange(&mut self, count: usize) {
        let sent: Vec<u8> = (0..count).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut found = vec![0; count];
        let mut writer = self.stream.get_ref().try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| writer.write_all(&sent).unwrap());
            self.stream.read_exact(&mut found).unwrap();
        });
        assert!(sent == found, "bytes differ");
    }
}

pub fn call(to: SocketAddr) -> Call {
    Call::on(TcpStream::connect_timeout(&to, PATIENCE).unwrap())
}
