//! Options of `sidestep splice` and their help.

use clap::{ArgGroup, Parser, Subcommand};
use sidestep_ebpf::splice::PortRange;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  sidestep splice --port 5432 --cgroup /sys/fs/cgroup/app.slice   connections to this port, within that cgroup
  sidestep splice --port 8080 --port 9000-9010                    ... of all processes, to these ports
  sidestep splice status                                          what is spliced, what is not, and why
  sidestep splice --pause                                         splice no new connections
  sidestep splice --remove                                        remove everything

Programs that read by splice(2), MSG_WAITALL or TCP_ZEROCOPY_RECEIVE, or that send urgent data, do not work on a spliced
port: docs/splice.md. Needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON.";

/// Splice local TCP sockets in the kernel, for programs that cannot load the library
///
/// Spliced sockets write directly into each other's receive queues. Only connections to the given ports are spliced. Both
/// ends must be on this node. A connection is spliced from its first byte on or not at all.
#[derive(Parser)]
#[command(name = "sidestep splice", bin_name = "sidestep splice", version, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
#[command(group = ArgGroup::new("what").required(true).args(["port", "pause", "resume", "remove"]))]
pub struct Args {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Splice connections to these server ports, and to no others. May be given several times
    #[arg(long, value_name = "PORT|FIRST-LAST", value_delimiter = ',')]
    pub port: Vec<PortRange>,
    /// Splice only if both ends are sockets of processes in this cgroup v2 directory, or below [default: where cgroup v2 is
    /// mounted]
    #[arg(long, value_name = "DIR", requires = "port")]
    pub cgroup: Option<PathBuf>,
    /// Splice only sockets of this network namespace: a name of ip-netns(8), or a file. May be given several times
    #[arg(long, value_name = "NAME|FILE", requires = "port")]
    pub netns: Vec<PathBuf>,
    /// Also splice sockets in blocking mode. If anything but bytes wakes a blocked call (a signal, another thread that reads,
    /// shutdown, a reset), the call fails with EAGAIN; MSG_WAITALL has no effect
    #[arg(long, requires = "port")]
    pub blocking: bool,
    /// Room for this many sockets, two for each connection [default: 131072]
    #[arg(long, value_name = "N", requires = "port", value_parser = clap::value_parser!(u32).range(2..1 << 24))]
    pub sockets: Option<u32>,
    /// Splice no new connections. Spliced connections stay spliced until they are closed
    #[arg(long)]
    pub pause: bool,
    /// Splice new connections again, after --pause
    #[arg(long)]
    pub resume: bool,
    /// Remove programs and tables. The kernel keeps what spliced connections need until the last of them is closed
    #[arg(long)]
    pub remove: bool,
    /// Keep programs and tables here, in a BPF file system [default: /sys/fs/bpf/sidestep]
    #[arg(long, value_name = "DIR")]
    pub pins: Option<PathBuf>,
}

#[derive(Subcommand)]
pub enum Command {
    /// Show what is spliced, what is not, and why
    Status(Status),
}

#[derive(clap::Args)]
pub struct Status {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where programs and tables are kept [default: /sys/fs/bpf/sidestep]
    #[arg(long, value_name = "DIR")]
    pub pins: Option<PathBuf>,
}
