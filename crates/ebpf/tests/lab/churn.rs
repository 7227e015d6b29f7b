//! Clients that dial without a pause while the endpoints change without a pause: nobody ever sees a change half made.

use crate::node::{Node, backend};
use crate::sockets::{ask, at, dial, echo, socket, until};
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use sidestep_testkit::Pod;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const VIP: &str = "10.96.0.1";
/// At least so many sets of endpoints, and so many connections of each client, all of it at once.
const CHANGES: usize = 200;
const DIALS: usize = 1000;
/// Of these one is followed by a wait for readers, which takes longer than all the rest on a busy machine.
const WAIT_EVERY: usize = 20;
/// A second, in which what was replaced has rested.
const SECOND_NS: u64 = 1_000_000_000;

/// Every non-empty set of the pods, in an order in which neighbours grow, shrink and have nothing in common.
fn sets(pods: &[Pod]) -> Vec<Vec<IpAddr>> {
    let all = (1u32..1 << pods.len()).map(|set| (set * 5) % (1 << pods.len()));
    let members = |set: u32| (0..pods.len()).filter(move |i| set & 1 << i != 0).map(|i| pods[i].v4);
    all.map(|set| members(set).collect::<Vec<_>>()).filter(|set: &Vec<_>| !set.is_empty()).collect()
}

#[test]
fn no_client_ever_sees_a_change() {
    let mut node = Node::new();
    let client = node.lab.pod();
    let pods: Vec<_> = (0..4).map(|_| node.lab.pod()).collect();
    let _servers: Vec<_> = pods.iter().map(|pod| backend(pod, 8080)).collect();
    let _echoes: Vec<_> = pods.iter().map(|pod| echo(pod, 8080)).collect();
    let everybody: BTreeSet<IpAddr> = pods.iter().map(|pod| pod.v4).collect();
    node.service("web", Tcp, VIP, 80, [(pods[0].v4, 8080)]);
    node.service("dns", Udp, VIP, 80, [(pods[0].v4, 8080)]);
    let (over, dialled, asked) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let work = |count: &AtomicUsize, once: &dyn Fn() -> (IpAddr, std::net::SocketAddr)| {
        client.namespace.enter();
        while !over.load(Ordering::Relaxed) {
            let (who, peer) = once();
            assert!(everybody.contains(&who) && peer == at(VIP, 80), "{who} as {peer}");
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        // Ends the clients also when a change fails.
        let _over = Over(&over);
        let streams = scope.spawn(|| work(&dialled, &|| dial(at(VIP, 80)).unwrap()));
        let datagrams = scope.spawn(|| work(&asked, &|| ask(&socket(), at(VIP, 80))));
        let mut sets = sets(&pods).into_iter().cycle();
        let mut changes = 0;
        until("clients have met changes", || {
            changes += 1;
            let set = sets.next().expect("they go on for ever");
            for (name, protocol) in [("web", Tcp), ("dns", Udp)] {
                node.endpoints(name, protocol, set.iter().map(|ip| (*ip, 8080)));
            }
            // What was replaced is given back, and so is written again soon.
            if changes % WAIT_EVERY == 0 {
                node.reconciler.tidy(&mut node.maps, SECOND_NS).unwrap();
            }
            let has_met = |count: &AtomicUsize| count.load(Ordering::Relaxed) > DIALS;
            let failed = streams.is_finished() || datagrams.is_finished();
            failed || changes > CHANGES && has_met(&dialled) && has_met(&asked)
        });
    });
    assert_eq!((node.reason("refused"), node.reason("backend-missing")), (0, 0));
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
