//! All of it together: a runtime's chain of Debian's `ptp` and `sidestep-cni`, and the agent.

use crate::admission::Cluster;
use serde_json::{Value, json};
use sidestep_testkit::greeter::{Greeter, OUTBOUND, PROXY, ROOT, any, greeted};
use sidestep_testkit::{Namespace, Pod};
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Of the package containernetworking-plugins.
const PLUGINS: &str = "/usr/lib/cni";

/// The plugin's program. cargo builds only this package's programs for its tests.
fn program() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_sidestep-agent")).parent().expect("a directory");
    let program = beside.join("sidestep-cni");
    if !sidestep_shape::built::is_current(&program, &["agent-api", "cni", "error"]) {
        let profile = if beside.ends_with("debug") { "dev" } else { "release" };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--profile", profile, "-p", "sidestep-cni", "--target-dir"]);
        cargo.arg(beside.parent().expect("the target directory")).current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(cargo.status().expect("cargo").success(), "sidestep-cni was not built");
    }
    program
}

/// A container runtime on the node.
struct Runtime<'a> {
    cluster: &'a Cluster,
    pod: &'a Namespace,
    own: PathBuf,
    plugins: [Value; 2],
    _state: TempDir,
}

impl Runtime<'_> {
    fn new<'a>(cluster: &'a Cluster, pod: &'a Namespace) -> Runtime<'a> {
        let state = tempfile::tempdir().unwrap();
        let ipam = json!({"type": "host-local", "dataDir": state.path(), "ranges": [[{"subnet": "10.246.0.0/24"}]],
                          "routes": [{"dst": "0.0.0.0/0"}]});
        let first = json!({"cniVersion": "1.0.0", "name": "net", "type": "ptp", "ipam": ipam});
        let second = json!({"cniVersion": "1.0.0", "name": "net", "type": "sidestep-cni", "timeoutSeconds": 30,
                            "agentSocket": cluster.node.socket()});
        Runtime { cluster, pod, own: program(), plugins: [first, second], _state: state }
    }

    /// The plugin's output, or its error's code.
    fn run(&self, command: &str, plugin: usize, result: Option<&Value>) -> Result<String, u64> {
        let mut config = self.plugins[plugin].clone();
        if let Some(result) = result {
            config["prevResult"] = result.clone();
        }
        let mut program = Command::new(if plugin == 0 { Path::new(PLUGINS).join("ptp") } else { self.own.clone() });
        program.env("CNI_COMMAND", command).env("CNI_CONTAINERID", "sandbox").env("CNI_NETNS", self.pod.path());
        program.env("CNI_IFNAME", "eth0").env("CNI_PATH", PLUGINS);
        program.env("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_UID=uid-web");
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = self
            .cluster
            .node
            .testbed
            .node
            .run(|| program.spawn().unwrap_or_else(|error| panic!("{error}: install containernetworking-plugins")));
        child.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8(out.stdout).unwrap();
        if out.status.success() {
            return Ok(said);
        }
        let error: Value = serde_json::from_str(&said).unwrap();
        println!("{error}");
        Err(error["code"].as_u64().unwrap())
    }

    fn add(&self) -> Result<Value, u64> {
        let first: Value = serde_json::from_str(&self.run("ADD", 0, None)?).unwrap();
        let second: Value = serde_json::from_str(&self.run("ADD", 1, Some(&first))?).unwrap();
        assert_eq!(first, second);
        Ok(second)
    }

    fn del(&self) {
        for plugin in [1, 0] {
            self.run("DEL", plugin, None).unwrap();
        }
    }
}

#[test]
fn a_pod_that_a_runtime_starts_is_captured_from_its_first_connection_on() {
    let mut cluster = Cluster::new(&[]);
    let peer = cluster.node.routed();
    let (_program, to) = (Greeter::program(&peer, 8080), SocketAddr::new(peer.v4, 8080));
    cluster.meshed("web", json!({}));
    let namespace = Namespace::fresh();
    let runtime = Runtime::new(&cluster, &namespace);
    runtime.run("STATUS", 1, None).unwrap();
    let result = runtime.add().unwrap();
    let address: IpAddr = result["ips"][0]["address"].as_str().unwrap().split('/').next().unwrap().parse().unwrap();
    assert_eq!(cluster.node.capture("web").unwrap().troubles, Vec::<String>::new());
    runtime.run("CHECK", 1, Some(&result)).unwrap();
    drop(runtime);
    let pod = Pod { namespace, v4: address, v6: Ipv6Addr::LOCALHOST.into() };
    assert_eq!(greeted(&pod, ROOT, to).unwrap_err().kind(), ErrorKind::ConnectionRefused, "there is no proxy yet");
    let proxy = Greeter::new(&pod, PROXY, &any(OUTBOUND));
    let seen = greeted(&pod, ROOT, to).unwrap();
    assert_eq!((seen.listener, seen.original), (OUTBOUND, Some(to)));
    drop(proxy);
    let runtime = Runtime::new(&cluster, &pod.namespace);
    runtime.del();
    runtime.del();
    assert_eq!(runtime.run("CHECK", 1, Some(&result)), Err(100));
    assert!(cluster.kept().is_empty(), "{:?}", cluster.kept());
}

#[test]
fn without_an_agent_no_pod_starts() {
    let mut cluster = Cluster::new(&[]);
    cluster.meshed("web", json!({}));
    cluster.node.kill();
    let namespace = Namespace::fresh();
    let runtime = Runtime::new(&cluster, &namespace);
    assert_eq!((runtime.run("STATUS", 1, None), runtime.add()), (Err(50), Err(11)));
    runtime.del();
}
