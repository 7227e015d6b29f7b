//! `sidestep capture --run-validation`: a trial before the proxy runs.

use crate::agent::Node;
use sidestep_testkit::Pod;
use sidestep_testkit::greeter::Greeter;
use std::process::{Command, Output};

fn capture(node: &Node, pod: &Pod, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidestep-agent"));
    command.args(["capture", "--netns", pod.namespace.name(), "--pins"]).arg(node.pins());
    command.arg("--cgroup").arg(node.testbed.cgroup.path()).args(more);
    // The command starts outside of the pod's cgroup, which it has to enter.
    node.testbed.cgroup.outside(|| command.output().unwrap())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const ALL: [&str; 4] = ["-i", "*", "-b", "*"];

#[test]
fn a_pod_is_tried_out_before_its_proxy_runs() {
    let mut node = Node::new();
    let pod = node.routed();
    let validate = [&ALL[..], &["--run-validation"]].concat();
    let done = capture(&node, &pod, &validate);
    let text = said(&done);
    assert!(done.status.success(), "{text}");
    for line in [
        "listeners at ports 15001 and 15006 are found",
        "192.0.2.1:80 comes to port 15001, as 192.0.2.1:80, from 10.244.0.2",
        "[2001:db8::1]:80 comes to port 15001, as [2001:db8::1]:80, from fd00:244::2",
        "the proxy's own way to 192.0.2.1:80 is free",
        "the proxy's own way to [2001:db8::1]:80 is free",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // With other rules the trial uses destinations that they capture.
    let some = ["-i", "10.96.0.0/12", "-x", "10.96.0.1/32", "-q", "5432", "-o", "80", "-b", "", "--run-validation"];
    let text = said(&capture(&node, &pod, &some));
    assert!(text.contains("192.0.2.1:5432 comes to port 15001") && text.contains("[2001:db8::1]:5432"), "{text}");
    // A pod with one family.
    pod.namespace.ip("-6 route del default");
    let text = said(&capture(&node, &pod, &validate));
    assert!(text.contains("192.0.2.1:80 comes") && !text.contains("2001:db8"), "{text}");
    assert!(capture(&node, &pod, &["--remove"]).status.success());
    assert!(!node.pins().exists());
}

#[test]
fn what_is_in_the_way_of_validation_is_said() {
    let mut node = Node::new();
    let pod = node.routed();
    let proxy = Greeter::proxy(&pod);
    let validate = [&ALL[..], &["--run-validation"]].concat();
    let done = capture(&node, &pod, &validate);
    assert!(!done.status.success() && said(&done).contains("a proxy already listens at port 15001"), "{}", said(&done));
    drop(proxy);
    let done = capture(&node, &pod, &["-b", "*", "--run-validation"]);
    assert!(
        !done.status.success() && said(&done).contains("no connection of a program is captured"),
        "{}",
        said(&done)
    );
    // All users of the trial are the proxy's.
    let everybody = ["-i", "*", "-u", "65534,0,1000", "-g", "65534,0,1000", "--run-validation"];
    let done = capture(&node, &pod, &everybody);
    assert!(
        !done.status.success() && said(&done).contains("no connection of a program is captured"),
        "{}",
        said(&done)
    );
    // A program was detached by somebody else.
    assert!(capture(&node, &pod, &ALL).status.success());
    std::fs::remove_file(node.pins().join("services/links/getpeername4")).unwrap();
    assert!(capture(&node, &pod, &validate).status.success(), "they are attached again");
}
