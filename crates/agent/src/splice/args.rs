//! Options of `sidestep splice` and their help.

use clap::{ArgGroup, Parser, Subcommand};
use sidestep_ebpf::splice::PortRange;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  sidestep splice --port 5432 --cgroup /sys/fs/cgroup/app.slice   connections to this port, within that cgroup
  sidestep splice --port 8080 --port 9000-9010                    ... of all processes, to these ports
  sidestep splice status                                          what goes from socket to socket, what does not, and why
  sidestep splice --pause                                         new connections are ordinary ones from now on
  sidestep splice --remove                                        leave nothing behind

Programs that read by splice(2), MSG_WAITALL or TCP_ZEROCOPY_RECEIVE, or that send urgent data, do not work on a spliced
port: docs/splice.md. Needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON.";

/// Let local TCP sockets write into each other's queues, for programs that cannot load the library
///
/// By port, and off for all others. Both ends must be on this node. A connection is spliced from its first byte on or
/// not at all.
#[derive(Parser)]
#[command(name = "sidestep splice", bin_name = "sidestep splice", version, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
#[command(group = ArgGroup::new("what").required(true).args(["port", "pause", "resume", "remove"]))]
pub struct Args {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Splice connections to these ports of servers, and to no others. May be given several times
    #[arg(long, value_name = "PORT|FIRST-LAST", value_delimiter = ',')]
    pub port: Vec<PortRange>,
    /// Only if both ends are sockets of processes in this cgroup v2 directory, or below [default: where cgroup v2 is
    /// mounted]
    #[arg(long, value_name = "DIR", requires = "port")]
    pub cgroup: Option<PathBuf>,
    /// Only sockets of this network namespace: a name of ip-netns(8), or a file. May be given several times
    #[arg(long, value_name = "NAME|FILE", requires = "port")]
    pub netns: Vec<PathBuf>,
    /// Programs that wait in their calls, too. When something else wakes such a call up (a signal, another thread that reads,
    /// shutdown, a reset), it fails with EAGAIN; MSG_WAITALL is not obeyed
    #[arg(long, requires = "port")]
    pub blocking: bool,
    /// Room for so many sockets, two a connection [default: 131072]
    #[arg(long, value_name = "N", requires = "port", value_parser = clap::value_parser!(u32).range(2..1 << 24))]
    pub sockets: Option<u32>,
    /// Splice no more connections. Those that are stay so until they are closed
    #[arg(long)]
    pub pause: bool,
    /// Go on
    #[arg(long)]
    pub resume: bool,
    /// Take programs and tables away. What spliced connections need goes with the last of them
    #[arg(long)]
    pub remove: bool,
    /// Keep programs and tables here, in a BPF file system [default: /sys/fs/bpf/sidestep]
    #[arg(long, value_name = "DIR")]
    pub pins: Option<PathBuf>,
}

#[derive(Subcommand)]
pub enum Command {
    /// What goes from socket to socket, what does not, and why
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
