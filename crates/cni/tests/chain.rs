//! A chain of Debian's `ptp` and this plugin, run as a runtime runs it, in network namespaces of the test's own.

use crate::common::{Agent, Out, PROGRAM, done};
use serde_json::{Value, json};
use sidestep_agent_api::{Admission, Admitted, Answer, Attachment, Refusal};
use sidestep_testkit::Namespace;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Of the package containernetworking-plugins.
const PLUGINS: &str = "/usr/lib/cni";

/// A node on which a pod's sandbox is made.
struct Runtime {
    node: Namespace,
    pod: Namespace,
    plugins: Vec<Value>,
    _state: tempfile::TempDir,
}

impl Runtime {
    fn new(agent: &Agent, version: &str) -> Runtime {
        let state = tempfile::tempdir().unwrap();
        let ipam = json!({"type": "host-local", "dataDir": state.path(), "ranges": [[{"subnet": "10.245.0.0/24"}]],
                          "routes": [{"dst": "0.0.0.0/0"}]});
        let first = json!({"type": "ptp", "cniVersion": version, "name": "net", "ipam": ipam});
        let mut own = agent.config(version, json!({}));
        own.as_object_mut().unwrap().remove("prevResult");
        Runtime { node: Namespace::fresh(), pod: Namespace::fresh(), plugins: vec![first, own], _state: state }
    }

    /// Runs one plugin in the node's namespace.
    fn run(&self, command: &str, config: &Value) -> Out {
        let kind = config["type"].as_str().unwrap();
        let program = if kind == "sidestep-cni" { PathBuf::from(PROGRAM) } else { Path::new(PLUGINS).join(kind) };
        let arguments = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=u1";
        let mut command_line = Command::new(&program);
        command_line.env_clear().env("PATH", std::env::var("PATH").unwrap()).env("CNI_COMMAND", command);
        command_line.env("CNI_CONTAINERID", "c1").env("CNI_NETNS", self.pod.path()).env("CNI_IFNAME", "eth0");
        command_line.env("CNI_ARGS", arguments).env("CNI_PATH", PLUGINS);
        command_line.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let missing = "install the package containernetworking-plugins";
        let mut child = self
            .node
            .run(|| command_line.spawn().unwrap_or_else(|error| panic!("{}: {error}: {missing}", program.display())));
        child.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
        let out = child.wait_with_output().unwrap();
        let [stdout, stderr] = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        Out { status: out.status, stdout, stderr }
    }

    /// Runs the plugins in their order, each with the result of the one before.
    fn add(&self) -> Out {
        let mut result: Option<Value> = None;
        let mut last = None;
        for plugin in &self.plugins {
            let out = self.run("ADD", &with_result(plugin, result.as_ref()));
            if !out.is_success() {
                return out;
            }
            result = Some(out.json());
            last = Some(out);
        }
        last.unwrap()
    }

    /// Runs the plugins in the opposite order, each with the chain's result.
    fn del(&self, result: Option<&Value>) {
        for plugin in self.plugins.iter().rev() {
            let out = self.run("DEL", &with_result(plugin, result));
            assert!(out.is_success(), "{out:?}");
        }
    }
}

fn with_result(plugin: &Value, result: Option<&Value>) -> Value {
    let mut config = plugin.clone();
    if let Some(result) = result {
        config["prevResult"] = result.clone();
    }
    config
}

#[test]
fn a_pod_behind_ptp_is_admitted_with_the_address_that_it_has() {
    for version in ["0.3.1", "0.4.0", "1.0.0"] {
        let agent = Agent::new(|request| match request {
            Admission::Admit(_) => Ok(Answer::Admitted(Admitted { uncaptured: None })),
            _ => Ok(done()),
        });
        let runtime = Runtime::new(&agent, version);
        let out = runtime.add();
        assert!(out.is_success(), "{out:?}");
        let result = out.json();
        assert_eq!(result["cniVersion"], version);
        let Some(Admission::Admit(asked)) = agent.asked().into_iter().next() else { panic!("{:?}", agent.asked()) };
        let address = result["ips"][0]["address"].as_str().unwrap().split('/').next().unwrap().parse::<IpAddr>();
        assert_eq!(asked.addresses, [address.clone().unwrap()]);
        assert_eq!(asked.netns, runtime.pod.path());
        let addresses = runtime.pod.run(|| Command::new("ip").args(["addr", "show", "eth0"]).output().unwrap());
        let shown = String::from_utf8_lossy(&addresses.stdout).into_owned();
        assert!(shown.contains(&address.unwrap().to_string()), "{shown}");
        let checked = runtime.run("CHECK", &with_result(&runtime.plugins[1], Some(&result)));
        assert!(checked.is_success(), "{checked:?}");
        runtime.del(Some(&result));
        let attachment = Attachment { network: "net".into(), container: "c1".into(), interface: "eth0".into() };
        assert_eq!(agent.asked()[1..], [Admission::Verify(attachment.clone()), Admission::Release(attachment)]);
    }
}

/// The runtime gets the refusal as the chain's error, and undoes what came before.
#[test]
fn a_refusal_ends_the_chain() {
    let agent = Agent::new(|request| match request {
        Admission::Admit(_) => Err(Refusal("not captured in time".into())),
        _ => Ok(done()),
    });
    let runtime = Runtime::new(&agent, "1.0.0");
    let out = runtime.add();
    assert_eq!(out.error().0, 100);
    assert_eq!(out.json()["details"], "the agent says: not captured in time");
    runtime.del(None);
    assert!(matches!(&agent.asked()[..], [Admission::Admit(_), Admission::Release(_)]), "{:?}", agent.asked());
}
