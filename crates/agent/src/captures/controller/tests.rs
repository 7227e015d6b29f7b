//! Ends of namespaces that are heard late. Needs root.

use super::*;
use crate::args::Args;
use crate::captures::PolicyPlan;
use clap::Parser;
use sidestep_ebpf::netns::cookie_of;
use sidestep_mesh::object::Object;
use sidestep_mesh::yaml;
use sidestep_testkit::Namespace;
use std::sync::mpsc::channel;

/// A number that the kernel gives out again.
const NUMBER: i32 = 7;
/// The cookie of a namespace that has ended.
const ENDED: u64 = u64::MAX;

fn settings() -> Settings {
    let words = ["agent", "--in-cluster", "--cgroup", "/c", "--node-name", "n"];
    Settings::new(&Args::try_parse_from(words).unwrap()).unwrap()
}

fn capture(name: &Name, netns: &Path) -> Arc<Capture> {
    let (name, netns) = (&name.name, netns.display());
    let text =
        format!("{{apiVersion: sidestep.dev/v1, kind: Capture, metadata: {{name: {name}}}, spec: {{netns: {netns}}}}}");
    match yaml::parse(&text).unwrap().pop() {
        Some(Object::Capture(capture)) => Arc::from(capture),
        other => panic!("{other:?}"),
    }
}

/// Lets the document name the namespace, as a visit does, and counts it as captured.
fn claim(controller: &mut CaptureController, name: &Name, netns: &Path, cookie: u64) {
    let capture = capture(name, netns);
    controller.want(name.clone(), Arc::clone(&capture));
    controller.claim(name, cookie, Some(NUMBER));
    controller.namespaces.get_mut(cookie).unwrap().applied = Some(capture);
}

#[test]
fn the_late_end_of_a_namespace_does_not_end_a_live_one_that_got_its_number() {
    let settings = settings();
    let ((own, _orders), (inbox, _messages)) = (channel(), channel());
    let mut controller = CaptureController::new(&settings, 0, &own, &inbox);
    let (old, new) = (Name::new("default", "old"), Name::new("default", "new"));
    claim(&mut controller, &old, Path::new("/run/netns/no-such-namespace"), ENDED);
    let namespace = Namespace::fresh();
    let cookie = cookie_of(&namespace.path()).unwrap();
    claim(&mut controller, &new, &namespace.path(), cookie);
    // The number is the new one's, so the old one has ended, whatever is heard of that.
    assert_eq!((controller.namespaces.cookies(), controller.ended), (BTreeSet::from([cookie]), 1));
    controller.handle(Order::Ended(NUMBER));
    assert_eq!((controller.namespaces.cookies(), controller.ended), (BTreeSet::from([cookie]), 1));
    // Its own end.
    drop(namespace);
    controller.handle(Order::Ended(NUMBER));
    assert_eq!((controller.namespaces.cookies(), controller.ended), (BTreeSet::new(), 2));
}

/// Another namespace may have got the name, and even the inode number.
#[test]
fn a_namespace_that_only_shares_a_name_with_a_live_one_ends() {
    let settings = settings();
    let ((own, _orders), (inbox, _messages)) = (channel(), channel());
    let mut controller = CaptureController::new(&settings, 0, &own, &inbox);
    let namesake = Namespace::fresh();
    claim(&mut controller, &Name::new("default", "web"), &namesake.path(), ENDED);
    controller.handle(Order::Ended(NUMBER));
    assert_eq!((controller.namespaces.cookies(), controller.ended), (BTreeSet::new(), 1));
}

#[test]
fn a_plan_whose_tables_cannot_be_opened_is_not_in_force_and_is_tried_again() {
    // Nothing can be made there, and there is no such cgroup.
    let settings = Settings { pins: "/proc/nowhere".into(), ..settings() };
    let ((own, _orders), (inbox, _messages)) = (channel(), channel());
    let mut controller = CaptureController::new(&settings, 0, &own, &inbox);
    let (name, namespace) = (Name::new("default", "web"), Namespace::fresh());
    claim(&mut controller, &name, &namespace.path(), cookie_of(&namespace.path()).unwrap());
    let mut plan = PolicyPlan {
        policies: Arc::default(),
        bypasses: Arc::default(),
        required: Arc::new(BTreeSet::from([name.clone()])),
        is_whole: true,
        unread: Arc::default(),
    };
    for _ in 0..2 {
        controller.enforce_plan(plan);
        let why = controller.pods[&name].unenforced.clone().expect("policies are not in force");
        assert!(why.starts_with("policies cannot be enforced: "), "{why}");
        plan = controller.enforcer.take_waiting().expect("it waits for the next attempt");
    }
}
