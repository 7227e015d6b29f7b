//! Network namespaces of a set-up: `node`, and those that the scenario names, each connected to `node` by a veth pair.
//!
//! None has a way out of the machine: default routes lead to `node`, which has none.

use super::command::{Cmd, NETNS};
use super::process::{ProcessError, run};
use std::path::Path;

pub struct Namespaces(Vec<String>);

/// 10.77.N.1 is the node's end, 10.77.N.2 that of the namespace.
pub fn address(number: usize) -> String {
    format!("10.77.{number}.2")
}

/// Without IPv6 there are no router advertisements and the like during measurements.
const QUIET: [&str; 2] = ["net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"];
const FORWARD: &str = "net.ipv4.ip_forward=1";

impl Namespaces {
    /// `names`: `node` first, then the others.
    pub fn new(prefix: &str, names: &[String]) -> Result<Namespaces, ProcessError> {
        let mut made = Namespaces(Vec::new());
        for (number, name) in names.iter().enumerate() {
            made.add(format!("{prefix}-{name}"))?;
            if number > 0 {
                join(&made.0[0], &made.0[number], number)?;
            }
        }
        Ok(made)
    }

    fn add(&mut self, full: String) -> Result<(), ProcessError> {
        ip(&["netns", "add", &full])?;
        self.0.push(full.clone());
        ip(&["-n", &full, "link", "set", "lo", "up"])?;
        let command =
            Cmd { namespace: Some(full), ..Cmd::new("sysctl", &["sysctl", "-qew", QUIET[0], QUIET[1], FORWARD]) };
        run(&command, None).map(drop)
    }
}

fn join(node: &str, namespace: &str, number: usize) -> Result<(), ProcessError> {
    let (ours, theirs) = (format!("10.77.{number}.1"), address(number));
    let end = format!("v{number}");
    ip(&["link", "add", &end, "netns", node, "type", "veth", "peer", "name", "eth0", "netns", namespace])?;
    ip(&["-n", node, "address", "add", &format!("{ours}/30"), "dev", &end])?;
    ip(&["-n", namespace, "address", "add", &format!("{theirs}/30"), "dev", "eth0"])?;
    ip(&["-n", node, "link", "set", &end, "up"])?;
    ip(&["-n", namespace, "link", "set", "eth0", "up"])?;
    ip(&["-n", namespace, "route", "add", "default", "via", &ours])
}

fn ip(words: &[&str]) -> Result<(), ProcessError> {
    let argv: Vec<&str> = ["ip"].iter().chain(words).copied().collect();
    run(&Cmd::new("ip", &argv), None).map(drop)
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in self.0.drain(..).rev() {
            // Leftovers end with the lab's own mount namespace.
            let _ = ip(&["netns", "delete", &name]);
            debug_assert!(!Path::new(NETNS).join(name).exists());
        }
    }
}
