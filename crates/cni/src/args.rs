//! Command-line options and their help.

use crate::config::{LEAST_SECONDS, MOST_SECONDS, TIMEOUT_SECONDS};
use clap::{Args as Group, Parser, Subcommand, value_parser};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  sidestep-cni install                        this program into /opt/cni/bin, and into the first configuration in /etc/cni/net.d
  sidestep-cni install --watch                ... and again whenever another program takes it out
  sidestep-cni uninstall                      out of both

A container runtime runs the program with CNI_COMMAND and a network configuration; see sidestep-cni(8).";

/// Have pods captured and under their policies before their first process runs
///
/// A chained CNI plugin, to be installed behind the plugins that give pods their interfaces. It asks the agent of the node,
/// which needs the option --admissions, and fails if the agent is away.
#[derive(Debug, Parser)]
#[command(name = "sidestep-cni", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Copy this program to the runtime's plugins, and append it to the runtime's first network configuration
    Install(Install),
    /// Take this program out of all network configurations, and remove it from the runtime's plugins
    Uninstall(Place),
}

#[derive(Debug, Group)]
pub struct Install {
    #[command(flatten)]
    pub place: Place,
    /// Socket of the agent
    #[arg(long, value_name = "PATH", default_value = sidestep_agent_api::DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Seconds that a pod may wait for the agent
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT_SECONDS)]
    #[arg(value_parser = value_parser!(u64).range(LEAST_SECONDS..=MOST_SECONDS))]
    pub timeout: u64,
    /// Go on, until SIGTERM or SIGINT: wait for a configuration if there is none, and install again what another program removes
    #[arg(long)]
    pub watch: bool,
    /// Succeed although there is no configuration yet, for a program with --watch that is started later
    #[arg(long, conflicts_with = "watch")]
    pub allow_missing: bool,
}

#[derive(Debug, Group)]
pub struct Place {
    /// The runtime's plugins
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    pub bin_dir: PathBuf,
    /// The runtime's network configurations
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    pub conf_dir: PathBuf,
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
