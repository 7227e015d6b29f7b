//! The command line.

use clap::{Args as Group, Parser, Subcommand};
use sidestep_injection::{directory, file_name};
use sidestep_nri::injection::Injection;
use sidestep_nri::namespaces::Namespaces;
use sidestep_nri::run::Settings;
use std::net::SocketAddr;
use std::path::PathBuf;

const LIBRARY: &str = "/usr/lib/sidestep";

/// Starts the containers of enrolled pods with Sidestep's library.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  sidestep-nri install --from /opt/sidestep/lib
  sidestep-nri run --namespaces shop,web --metrics 0.0.0.0:9420
  sidestep-nri collect";

#[derive(Subcommand)]
pub enum Command {
    /// The plugin: connects to the runtime, and again whenever the runtime has gone
    Run(Run),
    /// Puts a version of the library in place on the node
    Install(Install),
    /// Removes versions of the library that nobody uses
    Collect(Collect),
}

#[derive(Group)]
pub struct Run {
    /// The runtime's NRI socket
    #[arg(long, value_name = "FILE", default_value = "/var/run/nri/nri.sock")]
    socket: PathBuf,
    /// Two digits: the runtime asks its plugins in this order
    #[arg(long, value_name = "NN", default_value = "10", value_parser = index)]
    index: String,
    /// Directory with the installed versions of the library
    #[arg(long, value_name = "DIR", default_value = LIBRARY, value_parser = directory)]
    library: PathBuf,
    /// Directory of the broker's socket for members
    #[arg(long, value_name = "DIR", default_value = "/run/sidestep/member", value_parser = directory)]
    member: PathBuf,
    /// Name of the broker's socket in that directory
    #[arg(long, value_name = "NAME", default_value = "broker", value_parser = file_name)]
    member_socket: String,
    /// Namespaces of the cluster whose pods are enrolled without a label of their own
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// A file with further such namespaces, a name a line; it is followed
    #[arg(long, value_name = "FILE")]
    namespaces_file: Option<PathBuf>,
    /// Add a JSON line to this file for each container that does not use rings, with the reason
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Serve /metrics, /healthz and /readyz at this address
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = sidestep_http::address)]
    metrics: Option<SocketAddr>,
    /// The host's /proc
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc: PathBuf,
}

impl Run {
    pub fn settings(self) -> Settings {
        Settings {
            socket: self.socket,
            index: self.index,
            namespaces: Namespaces::new(self.namespaces, self.namespaces_file),
            injection: Injection { library: self.library, member: self.member, socket: self.member_socket },
            events: self.events,
            metrics: self.metrics,
            proc: self.proc,
        }
    }
}

#[derive(Group)]
pub struct Install {
    /// Directory with libsidestep.so
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// Directory for the installed versions
    #[arg(long, value_name = "DIR", default_value = LIBRARY)]
    pub to: PathBuf,
}

#[derive(Group)]
pub struct Collect {
    /// Directory with the installed versions
    #[arg(long, value_name = "DIR", default_value = LIBRARY)]
    pub library: PathBuf,
    /// Keep all versions until the current one has been so for this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub keep: u64,
    /// Also remove the current version, and the directory if nothing is left in it: new containers get no library
    #[arg(long, conflicts_with = "keep")]
    pub all: bool,
    /// If versions cannot be removed, say why and succeed: they stay, for instance since a process cannot be looked at, or
    /// nothing has been installed yet
    #[arg(long)]
    pub if_possible: bool,
    /// The host's /proc
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub proc: PathBuf,
}

/// An option's value that cannot be used.
#[derive(Debug, thiserror::Error)]
enum ValueError {
    #[error("the index has two digits, such as 10")]
    Index,
}

fn index(text: &str) -> Result<String, ValueError> {
    let is_index = text.len() == 2 && text.bytes().all(|digit| digit.is_ascii_digit());
    is_index.then(|| text.to_owned()).ok_or(ValueError::Index)
}
