//! Other cgroups and network namespaces: what counts is where a socket was created, not where its process goes.

use super::caller::as_nobody;
use crate::capture::world::{self, OUTBOUND};
use crate::policy::probe::{Family, Seen};
use crate::policy::world::{PORTS, World};
use crate::sockets::fresh;
use rustix::io::Errno;
use rustix::net::{SocketType, connect};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use sidestep_ebpf::admission::Admission;
use sidestep_ebpf::netns;
use sidestep_mesh::address::Protocol::Tcp;
use sidestep_testkit::{Cgroup, Namespace, Pod};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// Creates a socket in one cgroup, moves to the other, and dials by that socket and by a new one. Prints answers or errors.
const MOVER: &str = "
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
family, host, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
old = socket.socket(family)
print('made', flush=True)
input()
for one in old, socket.socket(family):
    try:
        one.settimeout(5)
        one.connect((host, port))
        print(one.makefile().read().split()[0], flush=True)
    except OSError as error:
        print(error.errno, flush=True)
";

fn moved(pod: &Pod, cgroup: &Cgroup, to: SocketAddr) -> [String; 2] {
    let [one, other] = ["one", "other"].map(|name| cgroup.child(name));
    let family = if to.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
    let words = ["-c", MOVER, &family.to_string(), &to.ip().to_string(), &to.port().to_string()].map(String::from);
    let mut command = one.command("/usr/bin/python3");
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pod.namespace.run(|| command.spawn().unwrap());
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "made");
    other.admit(child.id());
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let outcomes = [said.next().unwrap().unwrap(), said.next().unwrap().unwrap()];
    assert!(child.wait().unwrap().success());
    outcomes
}

#[test]
fn a_process_that_changes_its_cgroup_is_evaluated_as_before() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    let try_both = |world: &World| {
        [Family::V4, Family::V6]
            .map(|family| moved(&world.pods[&web], &world.node.testbed.cgroup, world.place(&db, family, PORTS[0])))
    };
    let answers = [false, true].map(|v6| world.address(&db, v6).to_string());
    assert_eq!(try_both(&world), answers.map(|answer| [answer.clone(), answer]));
    world.policy("web", "select: {matchLabels: {app: web}}, default: {egress: deny}");
    world.settle();
    assert_eq!(try_both(&world).concat(), vec![libc::ECONNREFUSED.to_string(); 4]);
}

#[test]
fn a_process_that_changes_its_cgroup_is_captured_as_before() {
    let mut world = world::World::new();
    let (client, server) = (world.pod(), world.pod());
    let (_server, _proxy) = (world::program(&server, 8080), world::proxy(&client));
    world.capture(&client, &world::rules());
    for ip in [server.v4, server.v6] {
        let met = moved(&client, &world.node.testbed.cgroup, SocketAddr::new(ip, 8080));
        assert_eq!(met, [OUTBOUND, OUTBOUND].map(|port| port.to_string()));
    }
}

/// A process without privileges can create a network namespace of its own, which leads nowhere. Sockets that it has created before
/// stay in its pod's namespace.
#[test]
fn a_namespace_of_ones_own_leads_nowhere_and_old_sockets_stay_the_pods() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    world.policy("web", "select: {matchLabels: {app: web}}, default: {egress: deny}");
    world.settle();
    for v6 in [false, true] {
        let to = SocketAddr::new(world.address(&db, v6), PORTS[0]);
        let (own, old) = as_nobody(&world.pods[&web], || {
            let old = fresh(SocketType::STREAM, v6);
            // Only a single-threaded process can create a user namespace, so a child does.
            let dial = format!(
                "import socket; s = socket.socket({}); print(s.connect_ex(('{}', {})))",
                if v6 { libc::AF_INET6 } else { libc::AF_INET },
                to.ip(),
                to.port()
            );
            let own =
                Command::new("/usr/bin/unshare").args(["-Urn", "/usr/bin/python3", "-c", &dial]).output().unwrap();
            (own, old)
        });
        let error = String::from_utf8_lossy(&own.stdout).trim().parse::<i32>();
        assert!(matches!(error, Ok(libc::ENETUNREACH | libc::EADDRNOTAVAIL)), "{own:?}");
        // Root can enter a new namespace directly: the socket stays where it was.
        std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| {
                // SAFETY: this thread shares no descriptors with whoever would miss them: it leaves a network namespace only.
                unsafe { unshare_unsafe(UnshareFlags::NEWNET).unwrap() };
                connect(&old, &to)
            });
            assert_eq!(elsewhere.join().unwrap(), Err(Errno::CONNREFUSED));
        });
    }
}

/// A namespace behind the pod's, connected by somebody with the right to do so, has no policy of its own. On an armed node it
/// communicates with nobody.
#[test]
fn a_namespace_behind_a_pod_is_another_one() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    world.policy("web", "select: {matchLabels: {app: web}}, default: {egress: deny}");
    world.settle();
    let inner = Namespace::new(&format!("{}-inner", world.pods[&web].namespace.name()));
    let pod = &world.pods[&web].namespace;
    pod.ip(&format!("link add inner type veth peer name eth0 netns {}", inner.name()));
    pod.ip("addr add 10.245.0.1/24 dev inner");
    pod.ip("link set inner up");
    inner.ip("addr add 10.245.0.2/24 dev eth0");
    inner.ip("link set eth0 up");
    inner.ip("route add default via 10.245.0.1");
    pod.run(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    let back = format!("route add 10.245.0.0/24 via {}", world.address(&web, false));
    world.pods[&db].namespace.ip(&back);
    let to = world.place(&db, Family::V4, PORTS[0]);
    let call = || inner.run(|| crate::policy::probe::call(to, Tcp));
    assert_eq!(call(), Seen::Reached, "as docs/policy.md says");
    let admission = Admission::open(&world.node.options.pins).unwrap();
    for name in [&web, &db] {
        admission.admit(netns::cookie_of(&world.pods[name].namespace.path()).unwrap()).unwrap();
    }
    admission.arm(true).unwrap();
    assert_eq!(call(), Seen::Unreachable);
}
