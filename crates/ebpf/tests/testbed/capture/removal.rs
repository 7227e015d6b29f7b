//! Ends capture while connections are under way to the proxy.

use super::world::{INBOUND, OUTBOUND, World, any, dial_as, of, program, proxy, rules};
use crate::sockets::PATIENCE;
use sidestep_ebpf::capture::Captures;
use sidestep_ebpf::{netns, services};
use sidestep_testkit::Pod;
use sidestep_testkit::greeter::{PROXY, ROOT, as_owner, listener, original};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longer than the removal of a pod with nothing under way takes, and shorter than the longest wait.
const LATE: Duration = Duration::from_millis(700);

/// A proxy that accepts when it is told to.
struct Sleeper(Vec<TcpListener>);

impl Sleeper {
    fn new(pod: &Pod, port: u16) -> Sleeper {
        Sleeper(pod.namespace.run(|| as_owner(PROXY, || any(port).map(listener).into())))
    }

    /// Accepts the oldest connection of that family, and returns its original destination.
    fn accept(&self, v6: bool) -> Option<SocketAddr> {
        as_owner(PROXY, || original(&self.0[usize::from(v6)].accept().unwrap().0))
    }
}

fn cookie(pod: &Pod) -> u64 {
    netns::cookie_of(&pod.namespace.path()).unwrap()
}

fn connect(pod: &Pod, to: SocketAddr) -> TcpStream {
    pod.namespace.run(|| as_owner(ROOT, || TcpStream::connect_timeout(&to, PATIENCE).unwrap()))
}

/// Waits until no new connection of these pods is captured.
fn wait_for_end(pins: &Path, cookies: &[u64]) {
    let is_captured =
        |cookie: &u64| Captures::open_read_only(pins).is_ok_and(|tables| tables.is_captured(*cookie).unwrap_or(false));
    let deadline = Instant::now() + PATIENCE;
    while cookies.iter().any(is_captured) {
        assert!(Instant::now() < deadline, "still captured");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_under_way_reaches_the_proxy_which_is_told_what_was_dialled() {
    for everything in [false, true] {
        let mut world = World::new();
        let [client, server, outside] = [world.pod(), world.pod(), world.pod()];
        let (outbound, inbound) = (Sleeper::new(&client, OUTBOUND), Sleeper::new(&server, INBOUND));
        let _programs = [program(&server, 8080), program(&outside, 8080)];
        world.capture(&client, &rules());
        world.capture(&server, &rules());
        let dialled = [of(server.v4, 9999), of(server.v6, 9999)];
        let _under_way = dialled.map(|to| [connect(&client, to), connect(&outside, to)]);
        let node = world.node;
        let (pins, cookies) = (&node.options.pins, [&client, &server].map(cookie));
        std::thread::scope(|scope| {
            let removal = scope.spawn(move || match everything {
                true => services::remove(pins).unwrap(),
                false => {
                    let mut captures = Captures::open(pins).unwrap();
                    cookies.into_iter().for_each(|cookie| captures.remove_deferred(cookie).unwrap());
                    captures.remove(cookies[0]).unwrap();
                }
            });
            wait_for_end(pins, &cookies);
            for (from, to) in [(&client, of(outside.v4, 8080)), (&outside, of(server.v6, 8080))] {
                let met = dial_as(from, ROOT, to).unwrap();
                assert_eq!((met.seen.listener, met.peer), (8080, to), "what is new goes by itself");
            }
            // The proxy is slow: a removal without waiting would be over by then.
            std::thread::sleep(LATE);
            for (v6, to) in [(false, dialled[0]), (true, dialled[1])] {
                assert_eq!(outbound.accept(v6), Some(to), "outbound, everything: {everything}");
                assert_eq!(inbound.accept(v6), Some(to), "inbound, everything: {everything}");
            }
            removal.join().unwrap();
        });
        let tables = Captures::open_read_only(pins);
        assert_eq!(tables.is_err(), everything, "the tables are there, or not");
        assert!(tables.map_or(Vec::new(), |tables| tables.fill_by_others()).iter().all(|fill| fill.used == 0));
    }
}

#[test]
fn a_proxy_that_accepts_nothing_does_not_keep_its_pod() {
    let mut world = World::new();
    let [pod, other] = [world.pod(), world.pod()];
    let _proxy = Sleeper::new(&pod, OUTBOUND);
    world.capture(&pod, &rules());
    let _under_way = connect(&pod, of(other.v4, 9999));
    let begun = Instant::now();
    world.captures.remove(cookie(&pod)).unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(2), "it was not waited for: {:?}", begun.elapsed());
    assert!(world.captures.next_end().is_none());
    assert_eq!(world.captures.fill_by_others()[1].used, 0, "listeners of the proxy are known");
}

#[test]
fn a_pod_that_is_captured_again_while_it_ends_stays_captured() {
    let mut world = World::new();
    let [client, server] = [world.pod(), world.pod()];
    let (_proxy, _program) = (proxy(&client), program(&server, 8080));
    let is_proxied = || dial_as(&client, ROOT, of(server.v4, 8080)).unwrap().seen.listener == OUTBOUND;
    world.capture(&client, &rules());
    world.captures.remove_deferred(cookie(&client)).unwrap();
    assert!(!is_proxied());
    world.capture(&client, &rules());
    assert!(world.captures.next_end().is_none() && is_proxied());
    assert_eq!(world.captures.differences(true).unwrap(), []);
    world.captures.remove(cookie(&client)).unwrap();
    assert!(!is_proxied());
}
