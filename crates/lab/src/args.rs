//! Command-line options and their help.

use clap::{Parser, Subcommand};
use jiff::SignedDuration;
use std::path::PathBuf;

/// Measure whether Sidestep helps here, how much, and whether the difference is real.
///
/// Variants of a set-up are measured in turn, in random order, until the intervals of their ratios are narrow enough or the
/// time is over. Everything runs in namespaces of its own, without a way out of this machine, and is gone afterwards.
#[derive(Parser)]
#[command(name = "sidestep lab", bin_name = "sidestep lab", version, after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  sidestep lab list                                the scenarios there are
  sidestep lab run demo --quick                    a minute or two: an answer for this machine
  sidestep lab run mine.yaml --out today.json      a scenario of your own
  sidestep lab run mine --server 'redis-server --port 7000' --port 7000 \\
      --tool redis-benchmark --target 127.0.0.1:7000 --connections 16 --requests 20000
  sidestep lab report today.json --html today.html
  sidestep lab compare yesterday.json today.json   what has changed between two runs

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

Writes NAME.json (everything, raw) and NAME.html (the report), and prints the verdicts. Ctrl-C drops the trial that is
being measured, and judges what there is by then; a second one ends at once. Rings need no privilege; capture,
splice, Services and programs of several users need root.
Exit code: 0 measured; 1 not, or a check of the scenario has failed, or with --strict a variant has no figures in some
cell; 2 nothing was started: the scenario or an option is wrong, or a program is missing.";

/// Measure a scenario: a file, or one of `sidestep lab list`, or `mine` with commands of your own
#[derive(clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct Run {
    /// NAME, or FILE.yaml
    #[arg(value_name = "SCENARIO")]
    pub scenario: String,
    /// Fewer cells, rounds and seconds: an answer in a minute or two
    #[arg(long)]
    pub quick: bool,
    /// Only these variants; the baseline is always among them
    #[arg(long, value_name = "VARIANT,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Only these values of an axis; may be given several times
    #[arg(long = "axis", value_name = "AXIS=VALUE,...", value_parser = axis)]
    pub axes: Vec<(String, Vec<String>)>,
    /// Another text for a name of the scenario's `values`; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = value)]
    pub values: Vec<(String, String)>,
    /// End by then, whatever has been reached
    #[arg(long, value_name = "15m")]
    pub limit: Option<SignedDuration>,
    /// Half the width of an interval that is narrow enough, as a part of the ratio
    #[arg(long, value_name = "0.05")]
    pub precision: Option<f64>,
    /// End after so many rounds
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Length of a trial
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// Afterwards, sample where CPU time goes in one more trial of each variant and cell
    #[arg(long)]
    pub profile: bool,
    /// Fail if a variant could not be measured in some cell
    #[arg(long)]
    pub strict: bool,
    /// From which the order of trials comes
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Where the result goes
    #[arg(long, value_name = "FILE", default_value = "NAME.json")]
    pub out: PathBuf,
    /// Where the report goes; `none` for none
    #[arg(long, value_name = "FILE", default_value = "NAME.html")]
    pub html: PathBuf,
    /// Print the result's judgement as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub mine: Mine,
}

/// For the scenario `mine`.
#[derive(clap::Args)]
#[command(next_help_heading = "For the scenario mine")]
pub struct Mine {
    /// A server's command line; may be given several times, in the order in which they are started
    #[arg(long, value_name = "COMMAND")]
    pub server: Vec<String>,
    /// At which port it listens: one for each --server
    #[arg(long, value_name = "PORT")]
    pub port: Vec<u16>,
    /// A load by a tool that is understood: wrk, oha, h2load, redis-benchmark, iperf3, sockperf, fortio, k6
    #[arg(long, value_name = "TOOL", conflicts_with = "load")]
    pub tool: Option<String>,
    /// A URL, or ADDRESS:PORT
    #[arg(long, value_name = "TARGET", requires = "tool")]
    pub target: Option<String>,
    /// Connections of the tool, or several numbers to compare
    #[arg(long, value_name = "N,...", value_delimiter = ',', requires = "tool")]
    pub connections: Vec<u32>,
    /// Requests a second, for tools that keep a rate
    #[arg(long, value_name = "N", requires = "tool")]
    pub rate: Option<f64>,
    /// Requests a trial, for tools that have no clock
    #[arg(long, value_name = "N", requires = "tool")]
    pub requests: Option<u64>,
    /// Or a command line: how long one run of it takes is what is compared
    #[arg(long, value_name = "COMMAND")]
    pub load: Option<String>,
    /// What is compared with the plain set-up
    #[arg(long, value_name = "rings|splice", value_delimiter = ',', default_value = "rings")]
    pub variants: Vec<String>,
}

/// List the scenarios, or print one of them as a start for your own
#[derive(clap::Args)]
pub struct List {
    /// Print this one's file
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Compare two results of a scenario: other times, machines or versions
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

/// Print what a result says, or make its report again
#[derive(clap::Args)]
pub struct Report {
    #[arg(value_name = "RESULT.json")]
    pub result: PathBuf,
    /// Beside this variant instead of the scenario's baseline; without a control
    #[arg(long, value_name = "VARIANT")]
    pub baseline: Option<String>,
    /// Write the report as a page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print it as Markdown
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
