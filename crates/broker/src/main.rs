//! `sidestepd`: the broker as a program.
#![forbid(unsafe_code)]

mod background;

use background::BackgroundError;
use clap::Parser;
use rustix::fd::OwnedFd;
use sidestep_broker::broker::Settings;
use sidestep_broker::config::{Config, ConfigError};
use sidestep_broker::host_cgroups::{self, HostCgroupsError};
use sidestep_broker::inherited::{self, InheritedError};
use sidestep_broker::listen::{Address, ListenError, listen};
use sidestep_broker::operator;
use sidestep_broker::server::{self, Reload, Reloaded, Server, Signals};
use sidestep_broker::subordinates::{self, Subordinates};
use sidestep_broker::trust::Trust;
use sidestep_error::chain;
use sidestep_log::{Format, Line};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The broker of Sidestep: pairs the two ends of local TCP connections and makes the memory that they share.
///
/// `sidestep run` starts a broker if none runs for the user; that broker ends when no process needs it. The broker is never in
/// the data path: when it ends, existing rings stay in use, and new connections stay on the kernel.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
struct Args {
    /// The address at which to listen: @name (abstract), or an absolute path [default: the socket of a socket unit, else
    /// @sidestep-UID]
    #[arg(long, value_name = "ADDRESS", env = sidestep_abi::env::BROKER)]
    address: Option<Address>,
    /// Read this configuration file (allow-list of users, cross-namespaces)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// End after this many seconds without a member; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    idle_exit: u64,
    /// How the broker logs, on standard error
    #[arg(long, value_enum, default_value_t)]
    log_format: Format,
    /// In a container: enter the cgroup namespace of process 1, so that pods and services are known by their cgroups, and read
    /// its /etc/subuid
    #[arg(long)]
    host_cgroups: bool,
    /// Write the line `ready` to this inherited descriptor once connections are accepted
    #[arg(long, value_name = "N")]
    ready_fd: Option<u32>,
    /// Run in the background, in a new session: return as soon as the broker is ready
    #[arg(long, conflicts_with = "ready_fd")]
    background: bool,
}

const EXAMPLES: &str = "\
Examples:
  sidestepd                                   in the foreground, for your own user
  sidestepd --background --idle-exit 0        as a service of your own
  sidestepd --address /run/sidestep/broker --config /etc/sidestep/config.toml --idle-exit 0
                                              as root, for several users (see [[allow]] in the file)";

fn main() -> ExitCode {
    let args = Args::parse();
    // A broker in the background was executed as /proc/self/exe, and the kernel would call it `exe`. A name that cannot be set
    // costs nothing else.
    let _ = rustix::thread::set_name(c"sidestepd");
    sidestep_log::init(args.log_format, Line::Named("sidestepd"), "info");
    let done = if args.background { background::start().map_err(Error::from) } else { serve(&args) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Why the broker does not run, or ended.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Background(#[from] BackgroundError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Inherited(#[from] InheritedError),
    #[error(transparent)]
    HostCgroups(#[from] HostCgroupsError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("cannot handle signals")]
    Signals(#[source] io::Error),
    #[error("cannot set up epoll")]
    Epoll(#[source] io::Error),
    #[error("--ready-fd {fd}: cannot write to it")]
    Ready { fd: u32, source: io::Error },
    #[error("cannot wait for events")]
    Wait(#[source] io::Error),
}

fn serve(args: &Args) -> Result<(), Error> {
    let passed = inherited::take(args.address.as_ref())?;
    if args.host_cgroups {
        host_cgroups::enter()?;
    }
    let config = args.config.as_deref().map(Config::load).transpose()?.unwrap_or_default();
    let trust = Trust::of_this_process(config.rules);
    let (listener, address) = match passed {
        Some(passed) => passed,
        None => {
            let address = args.address.clone().unwrap_or_else(Address::of_this_user);
            (listen(&address, trust.has_guests())?, address)
        }
    };
    // Without the operator's socket, connections are still upgraded.
    let operators = operator::listen(&address).inspect_err(|error| tracing::warn!("warning: {}", chain(error))).ok();
    server::raise_fd_limit();
    server::raise_file_size_limit();
    let granted = if args.host_cgroups { subordinates::OF_THE_HOST } else { subordinates::OF_THIS_SYSTEM };
    let settings = Settings {
        address: address.to_string(),
        trust,
        subordinates: Subordinates::read(granted),
        across_namespaces: config.cross_namespaces,
    };
    let idle_exit = Some(Duration::from_secs(args.idle_exit)).filter(|limit| !limit.is_zero());
    let signals = signals(args.config.clone(), granted).map_err(Error::Signals)?;
    let server = Server::new(listener, operators, settings, signals, idle_exit).map_err(Error::Epoll)?;
    if let Some(fd) = args.ready_fd {
        say_ready(fd).map_err(|source| Error::Ready { fd, source })?;
    }
    server.run().map(drop).map_err(Error::Wait)
}

/// SIGTERM and SIGINT end the broker. SIGHUP makes it read the configuration again, if there is one, and the subordinate users, which the
/// file `granted` names. SIGXFSZ would end it when RLIMIT_FSIZE permits no memory of a link's size: that call only fails.
fn signals(config: Option<PathBuf>, granted: &'static str) -> io::Result<Signals> {
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    let stop = readable_at(&[SIGTERM, SIGINT])?;
    let hang_up = readable_at(&[SIGHUP])?;
    // A broker in the background has another working directory.
    let config = config.map(std::path::absolute).transpose()?;
    let load = move || -> Result<Reloaded, ConfigError> {
        let config = config.as_deref().map(Config::load).transpose()?.unwrap_or_default();
        Ok(Reloaded { trust: Trust::of_this_process(config.rules), subordinates: Subordinates::read(granted) })
    };
    Ok(Signals { stop, reload: Some(Reload::new(hang_up, load)?) })
}

fn readable_at(signals: &[i32]) -> io::Result<OwnedFd> {
    let (reader, writer) = UnixStream::pair()?;
    for &signal in signals {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
    }
    Ok(reader.into())
}

fn say_ready(fd: u32) -> io::Result<()> {
    OpenOptions::new().write(true).open(format!("/proc/self/fd/{fd}"))?.write_all(b"ready\n")?;
    background::let_go()
}
