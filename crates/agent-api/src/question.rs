//! Questions.

use crate::Admission;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// A question to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Question {
    /// The agent's state, its sources, and how full its tables are.
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
    /// Compares the kernel's tables with what they are meant to hold.
    Check,
    /// What happens to a connection from a process to an address.
    Explain {
        /// The caller.
        from: Caller,
        /// Protocol of the connection.
        protocol: Protocol,
        /// The destination.
        to: SocketAddr,
    },
    /// What happens to an incoming connection of a pod. The pod's network namespace is given as in a document of kind Capture (a
    /// name, a path, a process); the interface is by default that of the pod's routes.
    ExplainInbound {
        /// Network namespace of the pod.
        netns: String,
        /// The dialled port.
        port: u16,
        /// Name of the interface by which the connection arrives.
        interface: Option<String>,
        /// Address of the client, for policies.
        #[serde(default)]
        source: Option<IpAddr>,
        /// TCP by default.
        #[serde(default)]
        protocol: Protocol,
    },
    /// What happens to the first packet of a connection that arrives at a device of the node, with `--replace-kube-proxy`.
    ExplainPacket {
        /// The packet's source.
        from: IpAddr,
        /// Protocol of the connection.
        protocol: Protocol,
        /// The packet's destination.
        to: SocketAddr,
    },
    /// All captured pods. `pins`: as for `Stop`.
    Captures {
        /// Device and inode numbers of the directory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pins: Option<(u64, u64)>,
    },
    /// All policies, and the pods of this node that they select.
    Policies,
    /// The data of all metrics.
    Metrics,
    /// A request of the CNI plugin.
    Admission(Admission),
    /// Ends the agent. With `detach` it removes everything. With `pins`, the device and inode numbers of a directory, it does so
    /// only if its programs and tables are there.
    Stop {
        /// Remove programs, tables and the socket.
        detach: bool,
        /// Device and inode numbers of the directory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pins: Option<(u64, u64)>,
    },
}

/// The caller of a connection.
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
