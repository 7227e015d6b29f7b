//! Simulates kernels that lack a feature, or whose verifier rejects a program: the agent's calls to load programs fail.

use crate::agent::Node;
use libbpf_rs::ProgramType;
use sidestep_testkit::greeter::{Greeter, INBOUND, OUTBOUND, ROOT, greeted};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

/// Overrides libc's function: a program of that type with at least so many instructions is refused.
const REFUSAL: &str = "
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>

static int is_refused(const union bpf_attr *wanted)
{
	return wanted->prog_type == (unsigned)atoi(getenv(\"REFUSED_KIND\")) &&
	       wanted->insn_cnt >= (unsigned)atoi(getenv(\"REFUSED_FROM\"));
}

long syscall(long number, ...)
{
	long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, \"syscall\");
	long words[6];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		words[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_bpf && words[0] == BPF_PROG_LOAD && is_refused((const union bpf_attr *)words[1])) {
		errno = EINVAL;
		return -1;
	}
	return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
";

/// More instructions than a program that only probes for the type has.
const REAL: u32 = 50;

fn refusal(node: &Node) -> PathBuf {
    let (source, library) = (node.directory.path().join("refusal.c"), node.directory.path().join("refusal.so"));
    std::fs::write(&source, REFUSAL).unwrap();
    let done = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").output();
    let done = done.unwrap();
    assert!(done.status.success(), "{done:?}");
    library
}

/// The agent's command under such a kernel.
fn command(node: &Node, kind: ProgramType, from: u32) -> Command {
    let mut command = node.command();
    command.env("LD_PRELOAD", refusal(node));
    command.env("REFUSED_KIND", (kind as u32).to_string()).env("REFUSED_FROM", from.to_string());
    command
}

fn start(node: &mut Node, kind: ProgramType, from: u32) {
    let (command, services) = (command(node, kind, from), node.services());
    node.spawn_as(command, &["--config", services.to_str().unwrap()]);
}

/// The error of `sidestep capture` under such a kernel. The command must leave nothing.
fn complaint(node: &Node, namespace: &str, kind: ProgramType, from: u32) -> String {
    let pins = node.testbed.bpffs().join("alone");
    let agent = command(node, kind, from);
    let mut capture = Command::new(agent.get_program());
    capture.envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
    capture.args(["capture", "--netns", namespace, "-i", "*", "-b", "*", "--pins"]).arg(&pins);
    let done = capture.arg("--cgroup").arg(node.testbed.cgroup.path()).output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(sidestep_ebpf::services::attached_to(&pins).is_none());
    assert!(sidestep_ebpf::services::tables(&pins).unwrap().is_none());
    String::from_utf8(done.stderr).unwrap()
}

#[test]
fn what_the_kernel_lacks_is_named_and_services_are_balanced() {
    let mut node = Node::new();
    let pod = node.routed();
    let missing = "the kernel has no hook at the look-up of listeners, sk_lookup (5.9)";
    let said = complaint(&node, pod.namespace.name(), ProgramType::SkLookup, 0);
    assert!(said.contains(missing), "{said}");
    let said = complaint(&node, pod.namespace.name(), ProgramType::CgroupSockopt, 0);
    assert!(said.contains("the kernel has no getsockopt hooks (5.3)"), "{said}");
    assert!(!node.testbed.bpffs().join("alone").exists(), "nothing was begun");
    node.captured("a", &pod);
    node.web([&pod]);
    start(&mut node, ProgramType::SkLookup, 0);
    node.wait_until_attached();
    node.wait(|node| node.capture("a").is_some_and(|a| a.troubles.join("").contains(missing)));
    assert!(!node.is_captured("a") && !node.check().is_well());
    assert_eq!(node.show("web").unwrap().ports[0].backend_count, 1);
}

/// The kernel passes all probes, but rejects the program.
#[test]
fn a_verifier_that_refuses_programs_takes_nothing_from_captured_pods() {
    let mut node = Node::with_agent();
    let (pods, other) = ([node.routed(), node.routed()], node.routed());
    let _greeters = [Greeter::proxy(&pods[0]), Greeter::proxy(&pods[1]), Greeter::program(&other, 8080)];
    node.captured("a", &pods[0]);
    node.wait(|node| node.is_captured("a"));
    let inbound = |n: usize| greeted(&other, ROOT, SocketAddr::new(pods[n].v4, 9999)).map(|seen| seen.listener);
    let outbound = || greeted(&pods[0], ROOT, SocketAddr::new(other.v4, 8080)).unwrap().listener;
    let goes_on = || assert_eq!((inbound(0).unwrap(), outbound()), (INBOUND, OUTBOUND));

    let (kind, trouble) = (ProgramType::SkLookup, "load the inbound program");
    let said = complaint(&node, pods[1].namespace.name(), kind, REAL);
    assert!(said.contains(trouble), "{said}");
    node.kill();
    start(&mut node, kind, REAL);
    node.wait_until_attached();
    node.captured("b", &pods[1]);
    node.wait(|node| node.capture("b").is_some_and(|b| b.troubles.join("").contains(trouble)));
    assert!(!node.is_captured("b") && inbound(1).is_err());
    goes_on();
    node.kill();

    let (kind, trouble) = (ProgramType::CgroupSockAddr, "load the Service programs");
    let said = complaint(&node, pods[1].namespace.name(), kind, REAL);
    assert!(said.contains(trouble), "{said}");
    start(&mut node, kind, REAL);
    assert!(!node.wait_for_end().success());
    assert!(node.log().contains(trouble), "{}", node.log());
    goes_on();

    node.start();
    node.wait(|node| node.is_captured("a") && node.is_captured("b") && node.check().is_well());
    assert_eq!((inbound(0).unwrap(), inbound(1).unwrap(), outbound()), (INBOUND, INBOUND, OUTBOUND));
}
