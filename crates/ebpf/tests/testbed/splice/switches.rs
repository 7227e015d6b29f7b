//! Pausing, resuming, exchanging and removing the programs under load does no harm.

use super::stream::{exchange, stream};
use super::world::{End, World};
use crate::sockets::until;
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{MapCore, MapHandle};
use sidestep_ebpf::splice;
use sidestep_error::chain;
use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

#[test]
fn a_pause_keeps_new_ones_out_and_leaves_the_others_alone() {
    let world = World::new();
    let (mut client, mut server) = world.spliced();
    client.write_all(b"queued before").unwrap();
    splice::pause(&world.options.pins, true).unwrap();
    let (mut late_client, mut late_server) = world.pair();
    late_client.write_all(b"by TCP").unwrap();
    assert_eq!(late_server.hear(6), b"by TCP");
    let status = world.status();
    assert!(status.paused && status.reason("paused") >= 1, "{:?}", status.reasons);
    assert_eq!((status.reason("spliced"), status.redirected.bytes), (1, 13));
    client.write_all(b", and after").unwrap();
    assert_eq!(server.hear(24), b"queued before, and after");
    assert_eq!(world.redirected(), 24);
    splice::pause(&world.options.pins, false).unwrap();
    let (_client, _server) = world.spliced();
}

/// Ids of these programs in the kernel.
fn programs() -> BTreeSet<u32> {
    let all = ProgInfoIter::default().filter(|program| program.name.to_string_lossy().starts_with("splice_"));
    all.map(|program| program.id).collect()
}

#[test]
fn removal_under_load_loses_nothing_and_leaves_nothing() {
    let others = programs();
    let world = World::new();
    let pairs: Vec<_> = (0..8).map(|_| world.spliced()).collect();
    let (mut quiet, mut reader) = world.spliced();
    quiet.write_all(b"read after the removal").unwrap();
    std::thread::scope(|scope| {
        for (number, (client, server)) in (10..).zip(&pairs) {
            scope.spawn(move || exchange(client, server, [3_000_000, 3_000_000], 3000, number));
        }
        std::thread::sleep(Duration::from_millis(30)); // in the middle of the load
        splice::remove(&world.options.pins).unwrap();
    });
    assert!(splice::status(&world.options.pins).unwrap().is_none());
    assert!(!world.options.pins.join("splice").exists());
    assert_eq!(reader.hear(22), b"read after the removal");
    quiet.write_all(b"still by queue").unwrap();
    assert_eq!(reader.hear(14), b"still by queue");
    assert!(!programs().is_subset(&others), "they are kept by those who need them");
    // A peer that closes is not mistaken for a lost key.
    drop(reader);
    assert_eq!(quiet.write(b"nobody").unwrap(), 6);
    drop((pairs, quiet));
    // The kernel frees a socket some time after its end.
    until("no program is left", || programs().is_subset(&others));
}

#[test]
fn programs_are_exchanged_under_load() {
    let world = World::new();
    let pairs: Vec<_> = (0..4).map(|_| world.spliced()).collect();
    std::thread::scope(|scope| {
        for (number, (client, server)) in (20..).zip(&pairs) {
            scope.spawn(move || exchange(client, server, [2_000_000, 2_000_000], 3000, number));
        }
        for round in 0..5 {
            splice::install(&world.options).unwrap();
            assert!(splice::is_attached(&world.options.pins, &world.options.cgroup));
            let (client, server) = world.spliced();
            exchange(&client, &server, [10_000, 10_000], 3000, 30 + round);
        }
    });
    assert_eq!(world.reason("missed"), 0);
}

/// Takes the client's socket out of the sockmap, which Sidestep never does.
fn take_out(world: &World, socket: &End) {
    let map = MapHandle::from_pinned_path(world.options.pins.join("splice/maps-1/sockets")).unwrap();
    let cookie = rustix::net::sockopt::socket_cookie(&socket.0).unwrap();
    map.delete(&cookie.to_ne_bytes()).unwrap();
}

/// A byte would be missing, so the direction fails from then on.
#[test]
fn a_key_that_is_missing_is_an_error() {
    let world = World::new();
    let (mut client, mut server) = world.spliced();
    server.write_all(b"thrown away").unwrap();
    take_out(&world, &client);
    for _ in 0..3 {
        assert_eq!(server.write(b"too late").unwrap_err().raw_os_error(), Some(libc::EACCES));
    }
    assert_eq!(world.reason("missed"), 1);
    // The other direction has lost nothing.
    client.write_all(&stream(1, 1000)).unwrap();
    assert_eq!(server.hear(1000), stream(1, 1000));
}

#[test]
fn a_hook_that_somebody_else_holds_leaves_nothing_attached() {
    let world = World::new();
    let below = world.testbed.cgroup.child("below");
    let bpftool = |words: &[&str]| {
        let done = sidestep_testkit::program::command("bpftool").args(words).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap().lines().count()
    };
    let link = libbpf_rs::Link::open(world.options.pins.join("splice/links/splice_join")).unwrap();
    let program = link.info().unwrap().prog_id.to_string();
    let cgroup = below.path().to_str().unwrap();
    bpftool(&["cgroup", "attach", cgroup, "cgroup_sock_ops", "id", &program]);
    let options = splice::Options {
        pins: world.testbed.bpffs().join("other"),
        cgroup: below.path().into(),
        ..world.options.clone()
    };
    let error = chain(&splice::install(&options).unwrap_err()).to_string();
    assert!(error.contains("choose another --cgroup"), "{error}");
    assert_eq!((bpftool(&["cgroup", "show", cgroup]), splice::is_attached(&options.pins, below.path())), (2, false));
    bpftool(&["cgroup", "detach", cgroup, "cgroup_sock_ops", "id", &program]);
    splice::install(&options).unwrap();
    splice::remove(&options.pins).unwrap();
}
