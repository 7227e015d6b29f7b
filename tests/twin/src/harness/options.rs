//! The command line.

use std::path::PathBuf;

const LONG: &str = "\
twin: random programs of socket calls, on the kernel and with Sidestep, compared call by call

A seed makes a program: connections, listeners, pipes and files in the slots of two sides, and hundreds of calls on them,
including invalid ones, by several threads, with signals and forked children. It runs on the kernel twice; the results that
both runs share are the reference. Then it runs in each mode with Sidestep, and every return value, errno, byte, event and the
order of events must be the same. LIMITATIONS.md and src/harness/rules.rs list the permitted differences.

Ways: upgraded     both sides in one process, connections change to the ring at the first byte
      flip         each direction changes its carrier every few hundred bytes
      defaults     with the default settings
      ...-two      a process for each side;  small-two: rings of 4 KiB;  spin-two: waits spin
      only-0/1     only one side's process is preloaded
      hosts        clients' sockets on one host and servers' on another (needs root): hosts-both, hosts-both-two: with the stack
                   at both ends; hosts-client, hosts-server-two: at one end; hosts-flip: connections go to the stack and back

A fault is shown as the first call with another result; then the program is minimized, and written to a file, which --replay
runs again.

  twin                              seeds 1 to 20, each in four modes
  twin --seeds 1..500 --steps 300   more and longer programs
  twin --time 3600                  new seeds for an hour
  twin --replay FILE --modes flip    one program, with its trace
  twin --seeds 0..0 --programs tests/twin/programs   the programs that once showed a fault
  twin --show 17                    the program of a seed

The last line is `twin: N passed, N failed`; each program counts once for each mode.
Exit code: 0 all passed, 1 some failed, 2 nothing ran.";

#[derive(clap::Parser)]
#[command(about = "Random programs of socket calls, on the kernel and with Sidestep", long_about = LONG)]
pub struct Options {
    #[command(subcommand)]
    pub part: Option<Part>,
    /// Seeds FROM..TO (TO not included), or one seed
    #[arg(long, default_value = "1..21")]
    pub seeds: String,
    /// Steps of a program
    #[arg(long, default_value_t = 150)]
    pub steps: usize,
    /// all, some (four, chosen by the seed), hosts, or names separated by commas
    #[arg(long, default_value = "some")]
    pub modes: String,
    /// Programs that run at a time
    #[arg(long, default_value_t = 2)]
    pub jobs: usize,
    /// Run new seeds for this many seconds; the first one comes from the clock
    #[arg(long)]
    pub time: Option<u64>,
    /// Number of new seeds to run after the others; the first one comes from the clock
    #[arg(long, default_value_t = 0)]
    pub new: u64,
    /// Run only this program, and show its trace
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Print the program of a seed and exit
    #[arg(long, value_name = "SEED")]
    pub show: Option<u64>,
    /// Directory of programs (*.twin) that always run
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
    /// Also count known faults that are not fixed yet, and events of a set in another order
    #[arg(long)]
    pub strict: bool,
    /// Seconds for minimizing a program that shows a fault; 0: do not minimize
    #[arg(long, default_value_t = 60)]
    pub shrink: u64,
    /// Directory for programs that show a fault
    #[arg(long, value_name = "DIR", default_value = "target/twin")]
    pub out: PathBuf,
    /// Time limit of one run, in seconds
    #[arg(long, default_value_t = 60)]
    pub deadline: u64,
    /// Path of the sidestep command (default: that of target/release)
    #[arg(long, value_name = "PATH")]
    pub sidestep: Option<PathBuf>,
    /// Print one JSON object instead of the last line; progress is on standard error in any case
    #[arg(long)]
    pub json: bool,
}

/// Internal commands, which the harness starts.
#[derive(clap::Subcommand)]
pub enum Part {
    /// Execute the program in a directory of the harness
    #[command(hide = true)]
    Exec {
        dir: PathBuf,
        #[arg(long)]
        reference: bool,
        /// Sides of connections that must go by ring once they are warmed up
        #[arg(long)]
        ring: Vec<String>,
        /// The command of side 1
        #[arg(last = true)]
        side: Vec<String>,
    },
    /// Side 1 of a program
    #[command(hide = true)]
    Side {
        #[arg(long)]
        meet: String,
    },
}

impl Options {
    pub fn seed_range(&self) -> Result<std::ops::Range<u64>, String> {
        let number = |text: &str| text.trim_matches('=').parse().map_err(|_| format!("--seeds: '{text}' is no number"));
        match self.seeds.split_once("..") {
            Some((from, to)) => Ok(number(from)?..number(to)?),
            None => number(&self.seeds).map(|n: u64| n..n + 1),
        }
    }
}
