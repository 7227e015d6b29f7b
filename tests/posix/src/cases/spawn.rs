//! posix_spawn: its file actions happen in the child, and in the child only.

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::peer::{Peer, Preload};
use crate::spawn::{FileActions, Start, puppet_with};
use crate::sys::net::Family::V4;
use crate::sys::{Fd, fds};

pub const CASES: &[Case] = &[
    case("spawn.child_goes_on_preloaded", || child_goes_on(Preload::Kept, false)),
    case("spawn.child_goes_on_unpreloaded", || child_goes_on(Preload::Stripped, false)),
    case("spawn.posix_spawnp", || child_goes_on(Preload::Kept, true)),
    case("spawn.actions_name_a_later_connection", named_before),
    case("spawn.actions_close_in_the_child_only", closes_in_child),
    case("spawn.actions_close_from_in_the_child_only", closes_from_in_child),
    case("spawn.actions_copy_over_in_the_child_only", copies_over_in_child),
    case("spawn.while_streaming", while_streaming).bulk(),
];

/// A puppet that starts with `actions`. It has its channel, and the descriptors that the actions leave.
fn spawn(mut actions: FileActions, preload: Preload, by_path: bool, args: &[String]) -> Peer {
    let (ours, theirs) = fds::unix_pair();
    actions.dup2(theirs, 0);
    let pid = puppet_with(&Start { preload, keep: &[], args }, &actions, by_path);
    fds::close(theirs).expect("close");
    Peer::over(ours, pid)
}

/// The number under which a spawned puppet gets the connection.
const THERE: Fd = 9;

/// The child reads the waiting bytes and continues under another descriptor.
fn child_goes_on(preload: Preload, by_path: bool) {
    let (end, mut peer) = link::client(V4);
    peer.send(2500);
    end.rx.await_bytes(2500);
    let mut actions = FileActions::new();
    actions.dup2(end.fd(), THERE);
    goes_on_in_child((end, peer), actions, preload, by_path);
}

/// The connection gets its number after the list of actions has named it.
fn named_before() {
    const NUMBER: Fd = 60;
    let mut actions = FileActions::new();
    actions.dup2(NUMBER, THERE);
    let (mut end, mut peer) = link::client(V4);
    fds::dup3(end.fd(), NUMBER, libc::O_CLOEXEC).expect("dup3");
    end.close();
    end.moved_to(NUMBER);
    peer.send(2500);
    end.rx.await_bytes(2500);
    goes_on_in_child((end, peer), actions, Preload::Stripped, false);
}

fn goes_on_in_child((mut end, mut peer): (End, Peer), actions: FileActions, preload: Preload, by_path: bool) {
    let args = [THERE as u64, 0, end.tx.at, end.rx.at].map(|n| n.to_string());
    let mut child = spawn(actions, preload, by_path, &args);
    child.finish();
    child.recv(2000);
    end.rx.skipped(2000);
    end.recv(500);
    end.close();
    child.call("skip", &[500]);
    peer.start("echo", &[20, 300]);
    for _ in 0..20 {
        child.send(300);
        child.recv(300);
    }
    peer.finish();
    child.close();
    assert_eq!(peer.call("ending", &[]), 0);
}

fn untouched(end: &mut End, peer: &mut Peer, actions: FileActions) {
    peer.send(500);
    end.rx.await_bytes(500);
    let helper = spawn(actions, Preload::Kept, false, &[]);
    end.recv(500);
    link::warm_up(end, peer);
    drop(helper);
    link::warm_up(end, peer);
}

fn closes_in_child() {
    let (mut end, mut peer) = link::client(V4);
    fds::set_cloexec(end.fd(), false);
    let mut actions = FileActions::new();
    actions.close(end.fd());
    untouched(&mut end, &mut peer, actions);
}

fn closes_from_in_child() {
    let (mut end, mut peer) = link::client(V4);
    fds::set_cloexec(end.fd(), false);
    // The channel's duplicate, made after this, has a lower number.
    let mut actions = FileActions::new();
    let (ours, theirs) = fds::unix_pair();
    actions.dup2(theirs, 0);
    actions.close_from(3);
    let start = Start { preload: Preload::Kept, keep: &[], args: &[] };
    let pid = puppet_with(&start, &actions, false);
    fds::close(theirs).expect("close");
    let helper = Peer::over(ours, pid);
    link::warm_up(&mut end, &mut peer);
    drop(helper);
    end.close();
    assert_eq!(peer.call("ending", &[]), 0, "the child did not keep it");
}

fn copies_over_in_child() {
    let (mut end, mut peer) = link::client(V4);
    fds::set_cloexec(end.fd(), false);
    let mut actions = FileActions::new();
    actions.dup2(2, end.fd());
    untouched(&mut end, &mut peer, actions);
}

fn while_streaming() {
    let (mut end, mut peer) = link::client(V4);
    let n = 6 << 20;
    peer.start("mixed", &[n, n, 20_000, 1]);
    std::thread::scope(|s| {
        let stream = s.spawn(|| crate::traffic::both_ways(&mut end, n, n, 20_000, 2));
        let mut times = 0;
        while !stream.is_finished() || times < 3 {
            drop(Peer::spawn(Preload::Kept));
            times += 1;
        }
    });
    peer.finish();
    link::warm_up(&mut end, &mut peer);
}
