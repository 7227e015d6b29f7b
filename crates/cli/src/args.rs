//! Command-line options and their help.

pub use crate::endpoints::{AgentSocket, Broker, connection};
use clap::{Parser, Subcommand};
use sidestep_agent_api::DEFAULT_SOCKET;
use sidestep_broker::broker::hold::Scope;
use sidestep_broker::settings::{IoUring, RingSize, Spin, UpgradeAfter};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The hidden command that the doctor's trial runs under the library.
pub const TALK_TO_YOURSELF: &str = "talk-to-yourself";

/// Makes local TCP connections of unchanged programs cheaper.
///
/// Local TCP connections use shared memory if both ends run under `sidestep run`, as the same user. Other connections
/// stay on kernel TCP, work as without Sidestep, and are counted under a reason. Connections to Kubernetes Services are
/// balanced at the socket, by BPF programs that `sidestep agent` loads.
#[derive(Parser)]
#[command(name = "sidestep", version, after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Run(Run),
    Status(Status),
    Detach(Hold),
    Attach(Hold),
    Doctor(Doctor),
    Reasons(Reasons),
    /// Balance connections to Kubernetes Services at the socket (see `sidestep agent --help`)
    Agent(Passed),
    /// Send a pod's connections through its proxy without iptables (see `sidestep capture --help`)
    Capture(Passed),
    /// Splice local TCP sockets in the kernel, by port (see `sidestep splice --help`)
    Splice(Passed),
    /// Carry connections to other hosts in user space (see `sidestep stack --help`)
    Stack(Passed),
    /// Measure whether Sidestep helps on this machine, and how much (see `sidestep lab --help`)
    Lab(Passed),
    #[command(subcommand)]
    Service(Service),
    #[command(subcommand)]
    Policy(Policy),
    Explain(Explain),
    Bugreport(Bugreport),
    Completions(Completions),
    /// Part of the doctor's trial
    #[command(name = TALK_TO_YOURSELF, hide = true)]
    Talk,
}

const EXAMPLES: &str = "\
Examples:
  sidestep run nginx -g 'daemon off;'      a server ...
  sidestep run wrk http://127.0.0.1/       ... and its client: their connections use shared memory
  sidestep status                          which connections use rings, which the kernel, and why
  sidestep detach --all                    return all connections to the kernel, now, without losing a byte
  sidestep doctor nginx                    will it work here, and with this program?
  sidestep reasons                         what the reason codes mean

  sidestep agent --config services/        balance connections to the Services of these YAML files
  sidestep service list                    Services, their backends, and how often each was used
  sidestep policy list                     policies, their pods, and what was denied
  sidestep explain 4711 10.96.0.10:80      what happens to a connection of this process, and why

  sidestep stack --device eth0             carry connections to other hosts in user space, too
  sidestep splice --port 5432              splice local connections to this port, in the kernel

  sidestep lab run demo --quick            measure whether Sidestep helps on this machine, and how much
  sidestep bugreport                       one file with what a bug report needs";

const RUN_EXAMPLES: &str = "\
Examples:
  sidestep run redis-server --port 6379
  sidestep run --report /tmp/r.jsonl curl -s http://127.0.0.1:8080/
  sidestep run --upgrade-after 0ops --spin off ./server --spin 3   arguments after CMD are CMD's own, also without --

Each setting comes from the first of these that has it: these options, the SIDESTEP_* variables, the configuration file
($SIDESTEP_CONFIG, ~/.config/sidestep/config.toml, /etc/sidestep/config.toml), the defaults.
SIDESTEP=off runs the program without Sidestep.

Exit code: the program's own; 2 bad option or --config file, 126 CMD cannot be executed, 127 CMD not found.";

/// Run a program with Sidestep
///
/// Starts the broker if none runs for this user, preloads the library, and becomes the program: process id,
/// signals and exit code are the program's own. Without broker or library the program runs on kernel TCP.
#[derive(clap::Args)]
#[command(after_help = RUN_EXAMPLES, override_usage = "sidestep run [OPTIONS] [--] CMD [ARGS]...")]
pub struct Run {
    /// How long a waiting thread spins before it sleeps: as long as that pays (auto), never (off), or MICROSECONDS
    #[arg(long, value_name = "auto|off|MICROSECONDS")]
    pub spin: Option<Spin>,
    /// Upgrade a connection after 8 reads and writes in quick succession (auto), after this many BYTES (64K), or after this many
    /// reads and writes however far apart (4ops)
    #[arg(long, value_name = "BYTES|Nops")]
    pub upgrade_after: Option<UpgradeAfter>,
    /// Memory for one direction of one connection: a power of two, such as 65536, 256K or 1M
    #[arg(long, value_name = "BYTES")]
    pub ring_size: Option<RingSize>,
    /// For a program that uses io_uring through libc: keep connections on the kernel that io_uring uses (follow), or make
    /// io_uring_setup fail with EPERM, as in a container that forbids it (refuse)
    #[arg(long, value_name = "follow|refuse")]
    pub io_uring: Option<IoUring>,
    /// Each process appends one JSON line to this file at its exit: connections, bytes by ring and kernel, reasons
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Read settings from this file instead of the default places
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The program and its arguments: options after the program's name are the program's own
    // A single argument that begins with the program: clap then takes everything after the first word as it is.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Show processes, links, connections, the carrier of each direction, and reasons
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  sidestep status\n  sidestep status --json | jq '.connections[].directions[].carrier'\n  sidestep status --metrics > /var/lib/node_exporter/sidestep.prom"
)]
pub struct Status {
    /// Print JSON with stable field names
    #[arg(long)]
    pub json: bool,
    /// Print metrics in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    pub metrics: bool,
    /// With --metrics: serve them at http://ADDRESS/metrics, until the process is ended
    #[arg(long, value_name = "ADDRESS:PORT", requires = "metrics", value_parser = sidestep_http::address)]
    pub serve: Option<SocketAddr>,
    #[command(flatten)]
    pub broker: Broker,
}

const HOLD_EXAMPLES: &str = "\
Examples:
  sidestep detach --all       every connection, and those of programs started later, until `attach --all`
  sidestep detach --pid 4711  every connection of one process
  sidestep detach 3.17        one connection, by its name in `sidestep status`
  sidestep attach --all       all may be upgraded again";

/// Return connections to the kernel (detach), or let them be upgraded again (attach); no byte is lost
#[derive(clap::Args)]
#[command(after_help = HOLD_EXAMPLES)]
#[group(id = "scope", required = true, multiple = false, args = ["all", "pid", "connection"])]
pub struct Hold {
    /// All processes, including those that start later
    #[arg(long)]
    pub all: bool,
    /// All connections of this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// One connection, as named by `sidestep status`
    #[arg(value_name = "CONNECTION", value_parser = connection)]
    pub connection: Option<Scope>,
    #[command(flatten)]
    pub broker: Broker,
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  sidestep doctor              this machine, this user, library and broker, and a trial
  sidestep doctor nginx        ... and whether the library can be loaded into nginx
  sidestep doctor --device eth0   ... whether `sidestep stack` can carry connections of this device
  sidestep doctor --json ./a   for scripts; the exit code is 0 only if all is well";

/// Check what works on this machine, and with a program; say why something does not, and what to do
#[derive(clap::Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct Doctor {
    /// Also check whether the stack can use this device; may be given several times
    #[arg(long = "device", value_name = "DEV")]
    pub devices: Vec<String>,
    /// Also check this program: a path, or a name in PATH
    #[arg(value_name = "BINARY")]
    pub binary: Option<OsString>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub broker: Broker,
}

/// What another program of Sidestep gets as it is.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Passed {
    /// Its options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub args: Vec<OsString>,
}

/// List all reasons why a connection stays on, or returns to, the kernel
#[derive(clap::Args)]
pub struct Reasons {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const SERVICE_EXAMPLES: &str = "\
Examples:
  sidestep service list                    every port of every Service, and how often it was used
  sidestep service list shop               ... of the namespace shop
  sidestep service show shop/cart          its backends, and the endpoints that are not used, and why
  sidestep service check && echo well      exit code 1: something is not as it should be";

/// Show the Services that the agent of this node balances
#[derive(Subcommand)]
#[command(after_help = SERVICE_EXAMPLES)]
pub enum Service {
    /// List Services, their addresses and counters
    List(ServiceList),
    /// Show one Service with its backends, and the endpoints that are not used, and why
    Show(ServiceShow),
    /// Compare the tables in the kernel with what they should contain
    Check(ServiceCheck),
}

#[derive(clap::Args)]
pub struct ServiceList {
    /// Only Services of this namespace
    #[arg(value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub agent: AgentSocket,
}

#[derive(clap::Args)]
pub struct ServiceShow {
    /// The Service; without a namespace, the one in the namespace `default`
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub name: String,
    #[command(flatten)]
    pub agent: AgentSocket,
}

#[derive(clap::Args)]
pub struct ServiceCheck {
    #[command(flatten)]
    pub agent: AgentSocket,
}

const POLICY_EXAMPLES: &str = "\
Examples:
  sidestep policy list                     every policy, and the pods of this node that are not enforced, and why
  sidestep policy show shop/web            its rules, as `sidestep explain` numbers them, and its pods
  sidestep policy check && echo well       exit code 1: something is not as it should be";

/// Show the policies that the agent of this node enforces
#[derive(Subcommand)]
#[command(after_help = POLICY_EXAMPLES)]
pub enum Policy {
    /// List policies, and what they have denied
    List(PolicyList),
    /// Show one policy with its rules, and the pods of this node that it selects
    Show(PolicyShow),
    /// Compare the tables in the kernel with what they should contain; as `sidestep service check`
    Check(ServiceCheck),
}

#[derive(clap::Args)]
pub struct PolicyList {
    /// Only policies of this namespace
    #[arg(value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub agent: AgentSocket,
}

#[derive(clap::Args)]
pub struct PolicyShow {
    /// The policy; without a namespace, the one in the namespace `default`
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub name: String,
    #[command(flatten)]
    pub agent: AgentSocket,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  sidestep explain 4711                          what carries the connections of process 4711, and why
  sidestep explain 3.17                          one connection, as `sidestep status` names it
  sidestep explain 4711 10.96.0.10:80            a TCP connection of process 4711
  sidestep explain 4711 udp:[fd00:96::a]:53      datagrams
  sidestep explain /sys/fs/cgroup/kubepods 10.96.0.10:80   any process in that cgroup
  sidestep explain 192.0.2.7 203.0.113.5:30080   packets of that address that arrive here (--replace-kube-proxy)
  sidestep explain --inbound web-1 8080          a connection to the captured pod of that network namespace
  sidestep explain --inbound web-1 8080 --source 10.244.0.7   ... from that address, as policies decide";

/// Say what happens to a connection, and which rule decides
#[derive(clap::Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub struct Explain {
    /// The client: a process, any process in a cgroup v2 directory, or an address from which packets arrive. With --inbound the pod that is the server: its
    /// network namespace by name in /run/netns, by path, or by a process in it. Without a destination: a process or a connection
    #[arg(value_name = "PID|CGROUP|ADDRESS|NETNS|CONNECTION")]
    pub from: String,
    /// The destination, for the agent; with --inbound only the port. Without it: ask the broker what carries the connections
    #[arg(value_name = "[tcp:|udp:]ADDRESS:PORT|[udp:]PORT", required_if_eq("inbound", "true"))]
    pub to: Option<String>,
    /// Explain a connection to the pod, instead of one from it
    #[arg(long)]
    pub inbound: bool,
    /// With --inbound: the interface by which it arrives [default: that of the pod's default route]
    #[arg(long, value_name = "NAME", requires = "inbound")]
    pub interface: Option<String>,
    /// With --inbound: the client's address, which policies evaluate
    #[arg(long, value_name = "ADDRESS", requires = "inbound")]
    pub source: Option<IpAddr>,
    #[command(flatten)]
    pub agent: AgentSocket,
    #[command(flatten)]
    pub broker: Broker,
}

const BUGREPORT_EXAMPLES: &str = "\
Examples:
  sidestep bugreport --list                      what a report contains; nothing is written
  sudo sidestep bugreport --address /run/sidestep/broker --output report.tar.gz";

/// Write a file for a bug report: versions, kernel, doctor, status, the agent's checks, metrics
///
/// Says first what the file contains. What cannot be had is left out, and the file says why.
#[derive(clap::Args)]
#[command(after_help = BUGREPORT_EXAMPLES)]
pub struct Bugreport {
    /// The file, which must not exist yet; -: standard output [default: sidestep-bugreport-TIME.tar.gz]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only say what the file would contain
    #[arg(long)]
    pub list: bool,
    /// The agent's socket
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
    #[command(flatten)]
    pub broker: Broker,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  sidestep completions bash > ~/.local/share/bash-completion/completions/sidestep
  sidestep completions zsh > \"${fpath[1]}/_sidestep\"
  sidestep completions fish > ~/.config/fish/completions/sidestep.fish";

/// Print a script that completes this command line in a shell
#[derive(clap::Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

impl Hold {
    pub fn scope(&self) -> Scope {
        match (self.pid, self.connection) {
            (Some(pid), _) => Scope::Process(pid),
            (_, Some(connection)) => connection,
            _ => Scope::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_consistent() {
        Args::command().debug_assert();
    }
}
