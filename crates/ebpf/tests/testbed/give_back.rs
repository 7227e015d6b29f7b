//! Connections that the stack takes from the kernel and gives back (docs/stack.md): connect(2) on a pod's socket by a process of the
//! node. Such a connection was decided when it was made. It goes on, and its program sees nothing of it.

use crate::capture::world::rules;
use crate::node::{Node, backend, plain_service};
use crate::policy::probe::{Family, Seen};
use crate::policy::world::{PORTS, World};
use crate::sockets::{PATIENCE, at, mapped, peer, until};
use rustix::net::sockopt;
use sidestep_broker::proof;
use sidestep_ebpf::admission::Admission;
use sidestep_ebpf::capture::{Captures, pod_network};
use sidestep_ebpf::netns;
use sidestep_ebpf::watch::{Between, Counted, Side, Watch};
use sidestep_mesh::address::Protocol::Tcp;
use sidestep_mesh::object::{Name, Object};
use sidestep_mesh::state::Change;
use sidestep_repair::{GiveBackError, Queues, Taken, give_back, take};
use sidestep_testkit::Namespace;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Both ends of a connection.
struct Ends {
    client: TcpStream,
    server: TcpStream,
}

impl Ends {
    /// The client dials `to`, behind which is a listener at `at`.
    fn dial(client: &Namespace, to: SocketAddr, server: &Namespace, at: SocketAddr) -> Ends {
        let listener = server.run(|| TcpListener::bind(at).unwrap());
        let client = client.run(|| TcpStream::connect_timeout(&to, PATIENCE).unwrap());
        let (server, _) = listener.accept().unwrap();
        for end in [&client, &server] {
            end.set_read_timeout(Some(PATIENCE)).unwrap();
            end.set_nodelay(true).unwrap();
        }
        let ends = Ends { client, server };
        ends.exchange();
        ends
    }

    fn between(world: &World, web: &Name, db: &Name, family: Family) -> Ends {
        let to = world.place(db, family, OTHER_PORT);
        let at = SocketAddr::new(to.ip().to_canonical(), OTHER_PORT);
        Ends::dial(&world.pods[web].namespace, to, &world.pods[db].namespace, at)
    }

    fn exchange(&self) {
        for (mut from, mut to) in [(&self.client, &self.server), (&self.server, &self.client)] {
            from.write_all(b"a few bytes").unwrap();
            let mut heard = [0; 11];
            to.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"a few bytes");
        }
    }

    /// Lets each end go to the stack and back, by a process in this namespace.
    fn there_and_back(&self, from: &Namespace) {
        for end in [&self.client, &self.server] {
            let taken = taken(from, end);
            back(from, end, &taken).unwrap();
        }
        self.exchange();
    }
}

/// A port at which no pod serves by itself.
const OTHER_PORT: u16 = 9000;

/// Takes the connection, with the peer that packets go to, once everything is acknowledged.
fn taken(from: &Namespace, end: &TcpStream) -> Taken {
    let mut all = None;
    until("nothing is in flight", || {
        let mut taken = from.run(|| take(end).unwrap());
        let is_quiet = taken.unacknowledged.is_empty();
        if is_quiet {
            taken.state.remote = like(taken.state.remote, proof::identify(end).unwrap().remote.to_socket_addr());
            all = Some(taken);
        } else {
            sidestep_repair::undo(end, &taken.state.saved).unwrap();
        }
        is_quiet
    });
    all.unwrap()
}

/// The address in the family of another one.
fn like(family: SocketAddr, address: SocketAddr) -> SocketAddr {
    if family.is_ipv6() { mapped(address) } else { address }
}

fn back(from: &Namespace, end: &TcpStream, taken: &Taken) -> Result<(), GiveBackError> {
    from.run(|| give_back(end, &taken.state, &Queues::new(&taken.unread, &taken.unacknowledged)))
}

#[test]
fn it_outlives_every_policy() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    world.settle();
    for family in Family::ALL {
        let ends = Ends::between(&world, &web, &db, family);
        world.policy("closed", "default: {egress: deny, ingress: deny}");
        world.settle();
        let denied = world.node.reason("policy-denied-out");
        assert_eq!(world.call(&web, world.place(&db, family, PORTS[0]), Tcp), Seen::Refused);
        ends.exchange();
        for _ in 0..2 {
            ends.there_and_back(&world.node.testbed.node);
        }
        assert_eq!(world.node.reason("policy-denied-out"), denied + 1, "only the new call was evaluated");
        world.forget_policies();
        world.settle();
    }
}

/// A pod may have CAP_NET_ADMIN, and with it repair mode, in which connect(2) needs no answer.
#[test]
fn a_pod_does_not_get_past_its_policies_by_repair_mode() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    let ends = Ends::between(&world, &web, &db, Family::V4);
    world.policy("closed", "default: {egress: deny}");
    world.settle();
    let pod = &world.pods[&web].namespace;
    let taken = taken(pod, &ends.client);
    let refused = back(pod, &ends.client, &taken).unwrap_err();
    let GiveBackError::Detached(call) = refused else { panic!("{refused}") };
    assert_eq!((call.call, call.source), ("connect(2)", rustix::io::Errno::CONNREFUSED));
    back(&world.node.testbed.node, &ends.client, &taken).expect("the node may");
}

#[test]
fn an_armed_node_lets_it_go_on() {
    let mut world = World::new();
    let [web, db] = ["web", "db"].map(|app| world.pod("shop", app, None));
    let ends = Ends::between(&world, &web, &db, Family::V4);
    let admission = Admission::open(&world.node.options.pins).unwrap();
    admission.arm(true).unwrap();
    assert_eq!(world.call(&web, world.place(&db, Family::V4, PORTS[0]), Tcp), Seen::Unreachable);
    ends.there_and_back(&world.node.testbed.node);
}

/// The pod's program has accepted a connection. Were it redirected on its way back, the proxy would be its peer.
#[test]
fn a_captured_pods_connections_keep_their_peers() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    let mut captures = Captures::open(&world.node.options.pins).unwrap();
    for family in Family::ALL {
        let ends = Ends::between(&world, &web, &db, family);
        let peers = [peer(&ends.client), peer(&ends.server)];
        for name in [&web, &db] {
            let path = world.pods[name].namespace.path();
            let network = pod_network::read(&path).unwrap();
            captures.put(&path, netns::cookie_of(&path).unwrap(), &rules(), &network).unwrap();
        }
        ends.there_and_back(&world.node.testbed.node);
        assert_eq!([peer(&ends.client), peer(&ends.server)], peers);
        for name in [&web, &db] {
            captures.remove(netns::cookie_of(&world.pods[name].namespace.path()).unwrap()).unwrap();
        }
    }
    assert_eq!(world.node.reason("captured-outbound"), 0);
}

/// The Service may get other backends meanwhile: the connection belongs to the first one.
#[test]
fn the_program_still_sees_the_service_that_it_dialled() {
    let mut node = Node::new();
    let (client, server, other) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let _other = backend(&other, OTHER_PORT);
    for v6 in [false, true] {
        node.service("web", Tcp, "10.96.0.1", 80, [(server.v4, OTHER_PORT)]);
        let vip = if v6 { mapped(at("10.96.0.1", 80)) } else { at("10.96.0.1", 80) };
        let here = SocketAddr::new(server.v4, OTHER_PORT);
        let ends = Ends::dial(&client.namespace, vip, &server.namespace, here);
        let cookie = sockopt::socket_cookie(&ends.client).unwrap();
        let picks = node.counters("web").picks;
        node.endpoints("web", Tcp, [(other.v4, OTHER_PORT)]);
        for _ in 0..2 {
            ends.there_and_back(&node.testbed.node);
            assert_eq!(peer(&ends.client), vip);
            assert_eq!(proof::identify(&ends.client).unwrap().remote.to_socket_addr(), here);
            assert_eq!(sockopt::socket_cookie(&ends.client).unwrap(), cookie);
        }
        assert_eq!(node.counters("web").picks, picks, "no backend was chosen again");
        node.endpoints("web", Tcp, [(server.v4, OTHER_PORT)]);
    }
    assert_eq!(node.open(server.v4, OTHER_PORT), 0, "both are closed");
}

/// The backend's count of sockets, by which least connections chooses.
#[test]
fn it_counts_once_as_open() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    node.service("web", Tcp, "10.96.0.1", 80, [(server.v4, OTHER_PORT)]);
    let here = SocketAddr::new(server.v4, OTHER_PORT);
    let ends = Ends::dial(&client.namespace, at("10.96.0.1", 80), &server.namespace, here);
    for _ in 0..3 {
        ends.there_and_back(&node.testbed.node);
        assert_eq!(node.open(server.v4, OTHER_PORT), 1);
    }
    drop(ends);
    until("it is closed", || node.open(server.v4, OTHER_PORT) == 0);
}

/// A Service that is younger than the connection holds its port: no program could bind it now.
#[test]
fn its_port_may_be_a_services_by_now() {
    let mut node = Node::new();
    let client = node.testbed.pod();
    let here = at("10.244.0.1", 30080);
    let ends = Ends::dial(&client.namespace, here, &node.testbed.node, here);
    let mut service = plain_service("web", Tcp, "10.96.0.1", 80);
    service.ports[0].node_port = Some(here.port());
    node.change(Change::Put(Object::Service(service)));
    assert!(node.testbed.node.run(|| TcpListener::bind(here)).is_err());
    ends.there_and_back(&node.testbed.node);
}

#[test]
fn it_is_watched_as_one_connection() {
    let mut world = World::on(Node::with(true));
    let [web, db] = world.apps(["web", "db"]);
    world.policy("any", "egress: [{action: allow}]");
    world.settle();
    let watch = Watch::open(&world.node.options.pins).unwrap();
    let numbers = [&web, &db].map(|name| world.identities.get(&world.identity(name).unwrap()).unwrap());
    let counted = |[client, server]: [u32; 2], side| {
        let wanted = Between { client, server, service: 0, side };
        let found = watch.read().unwrap().into_iter().find(|(between, _)| *between == wanted);
        found.map_or_else(Counted::default, |(_, counted)| counted)
    };
    let ends = Ends::between(&world, &web, &db, Family::V4);
    for _ in 0..3 {
        ends.there_and_back(&world.node.testbed.node);
    }
    let said = 4 * b"a few bytes".len() as u64;
    for side in [Side::Client, Side::Server] {
        // The SYN counts as a byte.
        until("all bytes are counted", || (said..=said + 1).contains(&counted(numbers, side).sent));
        let Counted { attempts, connections, closed, received, reset, failed_otherwise, .. } = counted(numbers, side);
        assert_eq!((attempts, connections, closed, reset, failed_otherwise), (1, 1, 0, 0, 0));
        assert!((said..=said + 1).contains(&received), "{received}");
    }
    let [client, server] = numbers;
    assert_eq!(counted([server, client], Side::Client), Counted::default(), "the server has dialled nobody");
    drop(ends);
    until("it is closed", || counted(numbers, Side::Client).closed == 1);
}
