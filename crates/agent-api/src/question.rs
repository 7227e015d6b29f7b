//! Questions.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// What the agent can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Question {
    /// Who it is, where its wishes come from, and how full its tables are.
    Status,
    /// Every port of every Service, with counts instead of backends.
    List,
    /// One Service, with every backend and endpoint.
    Show {
        /// Namespace of the Service.
        namespace: String,
        /// Name of the Service.
        name: String,
    },
    /// Whether the tables of the kernel say what they are meant to.
    Check,
    /// What happens to a connection from a process to an address.
    Explain {
        /// Who connects.
        from: Caller,
        /// Of the connection.
        protocol: Protocol,
        /// Where it goes.
        to: SocketAddr,
    },
    /// What happens to a connection that comes to a pod: its network namespace as in a file of kind Capture (a name, a
    /// path, a process), and the interface by which it comes; by default that of the pod's routes.
    ExplainInbound {
        /// Network namespace of the pod.
        netns: String,
        /// Port that is called.
        port: u16,
        /// Name of the interface.
        interface: Option<String>,
        /// Who calls: policies decide by it.
        #[serde(default)]
        source: Option<IpAddr>,
        /// TCP by default.
        #[serde(default)]
        protocol: Protocol,
    },
    /// Every captured pod. With `pins` as for `Stop`.
    Captures {
        /// Numbers of a device and of a directory's inode.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pins: Option<(u64, u64)>,
    },
    /// Every policy, and every pod that policies judge here.
    Policies,
    /// Everything as the metrics want it.
    Metrics,
    /// The agent ends. With `detach` it takes every trace of itself away. With `pins`, numbers of a device and of a
    /// directory's inode, only if that is where its programs and tables are.
    Stop {
        /// Take every trace away.
        detach: bool,
        /// Numbers of a device and of a directory's inode.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pins: Option<(u64, u64)>,
    },
}

/// Whose connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caller {
    /// This one, by its process id.
    Process(u32),
    /// Any process in this cgroup; an absolute path.
    Cgroup(PathBuf),
}

/// Protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
        })
    }
}
