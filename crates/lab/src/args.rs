//! Command-line options and their help.

use clap::{Parser, Subcommand};
use jiff::SignedDuration;
use std::path::PathBuf;

/// Measure whether Sidestep helps on this machine, how much, and whether the difference is significant.
///
/// The lab measures variants of a set-up in turn, in random order, until the intervals of their ratios are narrow enough or
/// the time limit is reached. Everything runs in separate namespaces, without a route to the outside, and is removed
/// afterwards.
#[derive(Parser)]
#[command(name = "sidestep lab", bin_name = "sidestep lab", version, after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  sidestep lab list                                the built-in scenarios
  sidestep lab run demo --quick                    a minute or two: an answer for this machine
  sidestep lab run mine.yaml --out today.json      your own scenario
  sidestep lab run mine --server 'redis-server --port 7000' --port 7000 \\
      --tool redis-benchmark --target 127.0.0.1:7000 --connections 16 --requests 20000
  sidestep lab report today.json --html today.html
  sidestep lab compare yesterday.json today.json   what changed between two runs

docs/lab.md explains scenarios, and how to read the verdicts.";

#[derive(Subcommand)]
pub enum Command {
    Run(Box<Run>),
    List(List),
    Compare(Compare),
    Report(Report),
    /// The half of a run that measures
    #[command(name = sidestep_lab::run::INSIDE, hide = true)]
    Inside,
}

const RUN_EXAMPLES: &str = "\
Examples:
  sidestep lab run demo
  sidestep lab run kmap --quick
  sidestep lab run ./shop.yaml --limit 30m --only plain,rings
  sidestep lab run mine --server 'nginx -c /srv/nginx.conf' --port 8080 --tool wrk --target http://127.0.0.1:8080/
  sidestep lab run mine --server ./server --port 9000 --load './client --count 1000'

Writes NAME.json (all raw data) and NAME.html (the report), and prints the verdicts. Ctrl-C drops the trial that is
being measured, and evaluates the finished ones; a second Ctrl-C ends the run at once. Rings need no privilege; capture,
splice, Services and programs of several users need root.
Exit code: 0 measured; 1 nothing could be measured, or a check of the scenario failed, or with --strict a variant has no
figures in some cell; 2 nothing was started: the scenario or an option is invalid, or a program is missing.";

/// Measure a scenario: a file, one of `sidestep lab list`, or `mine` with your own commands
#[derive(clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct Run {
    /// NAME, or FILE.yaml
    #[arg(value_name = "SCENARIO")]
    pub scenario: String,
    /// Fewer cells, rounds and seconds: an answer in a minute or two
    #[arg(long)]
    pub quick: bool,
    /// Only these variants; the baseline is always included
    #[arg(long, value_name = "VARIANT,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Only these values of an axis; may be given several times
    #[arg(long = "axis", value_name = "AXIS=VALUE,...", value_parser = axis)]
    pub axes: Vec<(String, Vec<String>)>,
    /// Replace one of the scenario's `values`; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = value)]
    pub values: Vec<(String, String)>,
    /// End after this time, even if intervals are not narrow enough
    #[arg(long, value_name = "15m")]
    pub limit: Option<SignedDuration>,
    /// An interval is narrow enough if half its width is below this fraction of the ratio
    #[arg(long, value_name = "0.05")]
    pub precision: Option<f64>,
    /// End after this many rounds
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Seconds of a trial
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// After the measurement, sample where CPU time goes, in one more trial of each variant and cell
    #[arg(long)]
    pub profile: bool,
    /// Fail if a variant could not be measured in some cell
    #[arg(long)]
    pub strict: bool,
    /// Seed of the random order of trials
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// File for the result
    #[arg(long, value_name = "FILE", default_value = "NAME.json")]
    pub out: PathBuf,
    /// File for the report; `none` for no report
    #[arg(long, value_name = "FILE", default_value = "NAME.html")]
    pub html: PathBuf,
    /// Print the verdicts as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub mine: Mine,
}

/// For the scenario `mine`.
#[derive(clap::Args)]
#[command(next_help_heading = "For the scenario mine")]
pub struct Mine {
    /// A server's command line; may be given several times: servers are started in this order
    #[arg(long, value_name = "COMMAND")]
    pub server: Vec<String>,
    /// The port at which the server listens: one for each --server
    #[arg(long, value_name = "PORT")]
    pub port: Vec<u16>,
    /// The tool that generates the load: wrk, oha, h2load, redis-benchmark, iperf3, sockperf, fortio, k6
    #[arg(long, value_name = "TOOL", conflicts_with = "load")]
    pub tool: Option<String>,
    /// The tool's target: a URL, or ADDRESS:PORT
    #[arg(long, value_name = "TARGET", requires = "tool")]
    pub target: Option<String>,
    /// Connections of the tool; several numbers are measured separately
    #[arg(long, value_name = "N,...", value_delimiter = ',', requires = "tool")]
    pub connections: Vec<u32>,
    /// Requests a second, for tools that keep a rate
    #[arg(long, value_name = "N", requires = "tool")]
    pub rate: Option<f64>,
    /// Requests in a trial, for tools that cannot run for a given time
    #[arg(long, value_name = "N", requires = "tool")]
    pub requests: Option<u64>,
    /// Instead of a tool, any command line: the time that one run of it takes is compared
    #[arg(long, value_name = "COMMAND")]
    pub load: Option<String>,
    /// The variants that are compared with the plain set-up
    #[arg(long, value_name = "rings|splice", value_delimiter = ',', default_value = "rings")]
    pub variants: Vec<String>,
}

/// List the scenarios, or print one of them, as a template for your own
#[derive(clap::Args)]
pub struct List {
    /// Print the file of this scenario
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Compare two results of a scenario, of other times, machines or versions
#[derive(clap::Args)]
pub struct Compare {
    #[arg(value_name = "A.json")]
    pub a: PathBuf,
    #[arg(value_name = "B.json")]
    pub b: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Print the verdicts of a result, or write its report again
#[derive(clap::Args)]
pub struct Report {
    #[arg(value_name = "RESULT.json")]
    pub result: PathBuf,
    /// Compare with this variant instead of the scenario's baseline; then there is no control
    #[arg(long, value_name = "VARIANT")]
    pub baseline: Option<String>,
    /// Write the report as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print the report as Markdown
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("expected AXIS=VALUE,..., such as connections=1,16")]
struct NoAxis;

/// `AXIS=VALUE,VALUE`
fn axis(text: &str) -> Result<(String, Vec<String>), NoAxis> {
    let (axis, values) = text.split_once('=').ok_or(NoAxis)?;
    Ok((axis.into(), values.split(',').map(String::from).collect()))
}

#[derive(Debug, thiserror::Error)]
#[error("expected NAME=VALUE")]
struct NoValue;

/// `NAME=VALUE`
fn value(text: &str) -> Result<(String, String), NoValue> {
    let (name, value) = text.split_once('=').ok_or(NoValue)?;
    Ok((name.into(), value.into()))
}
