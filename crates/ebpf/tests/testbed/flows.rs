//! Counters of connections without a proxy.

use crate::node::Node;
use crate::policy::probe::Family;
use crate::policy::world::{PORTS, World};
use crate::sockets::{PATIENCE, at, dial, until};
use rustix::net::sockopt;
use sidestep_ebpf::watch::{Between, Counted, Side, Watch, by_service};
use sidestep_mesh::address::Protocol::Tcp;
use sidestep_mesh::object::Name;
use sidestep_testkit::tables::{Filler, table};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

struct Observed {
    world: World,
    watch: Watch,
    web: Name,
    db: Name,
}

impl Observed {
    fn new() -> Observed {
        let mut world = World::on(Node::with(true));
        let [web, db] = world.apps(["web", "db"]);
        world.settle();
        let watch = Watch::open(&world.node.options.pins).unwrap();
        Observed { world, watch, web, db }
    }

    /// Adds a policy, so that the pod's connections are counted.
    fn evaluate(&mut self, app: &str) {
        self.world.policy("any", &format!("select: {{matchLabels: {{app: {app}}}}}, egress: [{{action: allow}}]"));
        self.world.settle();
    }

    fn number(&self, name: &Name) -> u32 {
        self.world.identities.get(&self.world.identity(name).unwrap()).unwrap()
    }

    fn between(&self, service: u32, side: Side) -> Counted {
        let wanted = Between { client: self.number(&self.web), server: self.number(&self.db), service, side };
        let found = self.watch.read().unwrap();
        found.into_iter().find(|(between, _)| *between == wanted).map_or_else(Counted::default, |(_, counted)| counted)
    }

    fn as_web<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.world.pods[&self.web].namespace.run(work)
    }

    /// A listener of the server at a port of its own.
    fn listen(&self, port: u16) -> (TcpListener, SocketAddr) {
        let at = SocketAddr::new(self.world.address(&self.db, false), port);
        (self.world.pods[&self.db].namespace.run(|| TcpListener::bind(at).unwrap()), at)
    }
}

/// The SYN and the FIN count as a byte each.
fn about(count: u64, bytes: u64) -> bool {
    (bytes..=bytes + 2).contains(&count)
}

#[test]
fn a_service_and_the_pair_behind_it() {
    let mut o = Observed::new();
    let backend = o.world.address(&o.db, false);
    o.world.node.service("db", Tcp, "10.96.0.10", 80, [(backend, PORTS[0])]);
    o.as_web(|| {
        for _ in 0..5 {
            dial(at("10.96.0.10", 80)).unwrap();
        }
    });
    let service = o.world.node.reconciler.ports()[0].service;
    until("all are closed", || o.between(service, Side::Client).closed == 5);
    let counted = o.between(service, Side::Client);
    assert_eq!((counted.attempts, counted.connections), (5, 5));
    assert_eq!(counted.latencies.iter().sum::<u64>(), 5);
    assert_eq!(counted.latencies[0], 0, "no connect takes no time: {counted:?}");
    let said = 5 * backend.to_string().len() as u64;
    assert!((said..=said + 5).contains(&counted.received), "{counted:?}");
    assert!(counted.rtt().unwrap() < Duration::from_secs(1), "{counted:?}");
    assert_eq!((counted.refused, counted.reset, counted.timed_out, counted.failed_otherwise), (0, 0, 0, 0));
    let all = o.watch.read().unwrap();
    assert_eq!(by_service(&all)[&service], counted);
    assert_eq!(
        all.len(),
        1,
        "no policy evaluates and no proxy captures the server, so its end does not count: {all:?}"
    );
}

#[test]
fn both_ends_and_both_families() {
    let mut o = Observed::new();
    o.evaluate("db");
    for family in Family::ALL {
        o.world.call(&o.web, o.world.place(&o.db, family, PORTS[0]), Tcp);
    }
    until("all are closed", || o.between(0, Side::Server).closed == 3);
    let counted = o.between(0, Side::Server);
    assert_eq!((counted.attempts, counted.connections, counted.latencies), (3, 3, [0; 24]));
    assert_eq!(o.between(0, Side::Client), Counted::default(), "nothing concerns the client");
    o.evaluate("web");
    for family in Family::ALL {
        o.world.call(&o.web, o.world.place(&o.db, family, PORTS[0]), Tcp);
    }
    until("all are closed", || o.between(0, Side::Client).closed == 3);
}

#[test]
fn bytes_of_a_connection_that_lasts() {
    let mut o = Observed::new();
    o.evaluate("web");
    let (listener, to) = o.listen(9000);
    let mut client = o.as_web(|| TcpStream::connect(to).unwrap());
    let (mut server, _) = listener.accept().unwrap();
    for round in 1..4 {
        client.write_all(&[0; 100_000]).unwrap();
        server.read_exact(&mut vec![0; 100_000]).unwrap();
        server.write_all(&[0; 1000]).unwrap();
        client.read_exact(&mut [0; 1000]).unwrap();
        until("everything is acknowledged", || about(o.between(0, Side::Client).sent, round * 100_000));
        let counted = o.between(0, Side::Client);
        assert!(about(counted.received, round * 1000) && counted.closed == 0, "{counted:?}");
    }
    drop((client, server));
    until("it is closed", || o.between(0, Side::Client).closed == 1);
    let counted = o.between(0, Side::Client);
    assert!(about(counted.sent, 300_000) && about(counted.received, 3000), "{counted:?}");
}

#[test]
fn failures_by_their_kind() {
    let mut o = Observed::new();
    o.evaluate("web");
    let (listener, to) = o.listen(9000);
    let closed = SocketAddr::new(to.ip(), 9001);
    o.as_web(|| TcpStream::connect(closed).unwrap_err());
    assert_eq!(o.between(0, Side::Client).refused, 1);
    // SO_LINGER with 0 makes close() send a reset.
    let mut client = o.as_web(|| TcpStream::connect(to).unwrap());
    let (server, _) = listener.accept().unwrap();
    sockopt::set_socket_linger(&server, Some(Duration::ZERO)).unwrap();
    drop(server);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.read(&mut [0; 1]).unwrap_err();
    assert_eq!(o.between(0, Side::Client).reset, 1);
    // Packets are dropped, and the program gives up.
    o.world.policy("quiet", "select: {matchLabels: {app: db}}, default: {ingress: deny}, onDeny: drop");
    o.world.settle();
    let given_up = Duration::from_millis(100);
    o.as_web(|| TcpStream::connect_timeout(&to, given_up).unwrap_err());
    until("it is given up", || o.between(0, Side::Client).failed_otherwise == 1);
    o.as_web(|| {
        let socket = crate::sockets::fresh(rustix::net::SocketType::STREAM, false);
        sockopt::set_tcp_user_timeout(&socket, 200).unwrap();
        rustix::net::connect(&socket, &to).unwrap_err();
    });
    until("it is over", || o.between(0, Side::Client).timed_out == 1);
    let counted = o.between(0, Side::Client);
    assert_eq!((counted.attempts, counted.connections), (4, 1), "{counted:?}");
}

#[test]
fn without_the_switch_nothing_is_counted() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    world.policy("any", "egress: [{action: allow}], ingress: [{action: allow}]");
    world.settle();
    world.call(&web, world.place(&db, Family::V4, PORTS[0]), Tcp);
    let watch = Watch::open(&world.node.options.pins).unwrap();
    assert!(watch.read().unwrap().is_empty());
}

#[test]
fn what_does_not_fit_is_counted_as_such() {
    let mut o = Observed::new();
    o.evaluate("web");
    let to = o.world.place(&o.db, Family::V4, PORTS[0]);
    let _filler = Filler::new(table(&o.world.node.options.pins, "relations"));
    o.world.call(&o.web, to, Tcp);
    assert!(o.world.node.reason("not-watched") > 0);
    o.watch.remove(|_| true).unwrap();
    o.world.call(&o.web, to, Tcp);
    until("it is closed", || o.between(0, Side::Client).closed == 1);
}

#[test]
fn the_way_to_the_proxy_is_no_connection_of_the_pod() {
    use crate::capture::world::{self, dial_as, of, program, proxy, rules};
    use sidestep_testkit::greeter::ROOT;
    let mut world = world::World::on(Node::with(true));
    let (client, server) = (world.pod(), world.pod());
    let (_proxy, _server) = (proxy(&client), program(&server, 8080));
    world.capture(&client, &rules());
    dial_as(&client, ROOT, of(server.v4, 8080)).unwrap();
    let watch = Watch::open(&world.node.options.pins).unwrap();
    assert!(watch.read().unwrap().is_empty());
    dial_as(&client, sidestep_testkit::greeter::PROXY, of(server.v4, 8080)).unwrap();
    let found = watch.read().unwrap();
    assert!(
        matches!(
            found[..],
            [(Between { client: 0, server: 0, service: 0, side: Side::Client }, Counted { connections: 1, .. })]
        ),
        "{found:?}"
    );
}
