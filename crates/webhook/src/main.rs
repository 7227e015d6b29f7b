//! `sidestep-webhook`: the admission webhook.
#![forbid(unsafe_code)]

use clap::Parser;
use sidestep_error::chain;
use sidestep_injection::{directory, file_name};
use sidestep_log::{Format, Line};
use sidestep_webhook::Places;
use sidestep_webhook::run::{Installers, Settings, run};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Starts the containers of enrolled pods with Sidestep's library: an admission webhook, for runtimes without NRI
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
struct Args {
    /// Where the API server reaches the webhook
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:9443", value_parser = sidestep_http::address)]
    listen: SocketAddr,
    /// Directory with tls.crt and tls.key, as PEM; they are read again when they have changed
    #[arg(long, value_name = "DIR", default_value = "/etc/sidestep/webhook")]
    certificate: PathBuf,
    /// Directory of nodes with the installed versions of the library
    #[arg(long, value_name = "DIR", default_value = "/usr/lib/sidestep", value_parser = directory)]
    library: PathBuf,
    /// Directory of nodes for the broker's socket for members
    #[arg(long, value_name = "DIR", default_value = "/run/sidestep/member", value_parser = directory)]
    member: PathBuf,
    /// Name of the broker's socket in that directory
    #[arg(long, value_name = "NAME", default_value = "broker", value_parser = file_name)]
    member_socket: String,
    /// Namespace of the pods that install the library on nodes
    #[arg(long, value_name = "NAME", required_unless_present = "assume_library")]
    namespace: Option<String>,
    /// Selector of their labels
    #[arg(long, value_name = "SELECTOR", default_value = "app.kubernetes.io/name=sidestep")]
    installers: String,
    /// Do not ask the API server which nodes have the library: all have. On one that does not, pods wait
    #[arg(long, conflicts_with = "namespace")]
    assume_library: bool,
    /// Serve /metrics, /healthz and /readyz at this address
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = sidestep_http::address)]
    metrics: Option<SocketAddr>,
    /// How to log, on standard error; RUST_LOG says what
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    log_format: Format,
}

const EXAMPLES: &str = "\
Examples:
  sidestep-webhook --namespace sidestep --metrics [::]:9421
  sidestep-webhook --assume-library --certificate /tmp/certificate --listen 127.0.0.1:9443";

impl Args {
    fn settings(self) -> Settings {
        let (selector, library) = (self.installers, self.library.clone());
        Settings {
            listen: self.listen,
            certificate: self.certificate,
            places: Places { library: self.library, member: self.member, socket: self.member_socket },
            installers: self.namespace.map(|namespace| Installers { namespace, selector, library }),
            metrics: self.metrics,
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    sidestep_log::init(args.log_format, Line::Dated, sidestep_watch::LOGGED);
    match run(args.settings()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", chain(&error));
            ExitCode::FAILURE
        }
    }
}
