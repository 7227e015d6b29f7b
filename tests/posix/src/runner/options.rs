//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use super::modes::{self, Mode};

pub const HELP: &str = "\
posix-run: every socket case, on plain kernel TCP and with Sidestep

  posix-run [--mode MODE[,MODE]…] [--filter TEXT]… [--jobs N] [--sidestep PATH]
            [--deadline SECONDS] [--seed N] [--slow] [--again] [--note] [--keep] [--json]

  --mode      plain         kernel TCP, nothing preloaded: the reference for the other modes
              upgraded      preloaded, connections change to the ring at the first byte
              flip          preloaded, and each direction changes carrier every few hundred bytes
              all           these three, one after the other (default)
              hosts-kernel  clients' sockets on one host and servers' on another (network namespaces; needs root),
                            nothing preloaded: the reference for the following modes
              hosts-client  preloaded, and the stack carries the connections at the clients' end
              hosts-server  at the servers' end
              hosts-both    at both ends
              hosts-flip    at both ends, and connections change between stack and kernel every few hundred bytes
              hosts         these five
  --filter    only cases whose name contains TEXT; if given several times, all must match
  --jobs      cases at a time (default 2)
  --sidestep  the sidestep command (default: that of target/release)
  --deadline  seconds that a case may take before it is ended and counts as failed (default 20)
  --seed      seed of the pseudo-random sizes and pauses (default 1)
  --slow      for slow programs (sanitizers), whose connections return to the kernel because readers are late: if a
              case declares an amount of bytes by ring, a smaller one is enough
  --again     repeat a case that failed; if it then passes it is shown as unsteady, and does not count as failed
  --note      write the number of bytes by ring into by_ring.txt, and by the stack into by_stack.txt, for cases that are
              new or had fewer bytes than noted
  --keep      leave the directory of the run, with what cases, broker and stack have printed
  --json      print one JSON object instead of the last line; progress is on stderr

In the preloaded modes a case also fails if the library's report does not show what the case
declares (see `posix-cases list`): bytes by ring if they must go by ring, none if they must
not, and in flip mode a return to the kernel for cases that move much data. Between hosts
by_stack.txt says what each case must have carried by the stack, and which do not run there.

Exit code: 0 all passed, 1 some failed, 2 nothing was run.
";

pub struct Options {
    pub modes: Vec<Mode>,
    pub filters: Vec<String>,
    pub jobs: usize,
    pub sidestep: PathBuf,
    pub cases: PathBuf,
    pub deadline: Duration,
    pub seed: u64,
    pub slow: bool,
    pub again: bool,
    pub note: bool,
    pub keep: bool,
    pub json: bool,
    pub help: bool,
}

impl Options {
    pub fn from_args(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
        let here = std::env::current_exe().map_err(|e| format!("where is this program: {e}"))?;
        let mut options = Options {
            modes: modes::named("all").expect("names of modes"),
            filters: vec![],
            jobs: 2,
            sidestep: crate::shipped::program("sidestep"),
            cases: here.with_file_name("posix-cases"),
            deadline: Duration::from_secs(20),
            seed: 1,
            slow: false,
            again: false,
            note: false,
            keep: false,
            json: false,
            help: false,
        };
        while let Some(name) = args.next() {
            options.take(&name, &mut args)?;
        }
        if !options.cases.is_file() {
            return Err(format!("{} is missing: build the whole package", options.cases.display()));
        }
        Ok(options)
    }

    fn take(&mut self, name: &str, args: &mut impl Iterator<Item = String>) -> Result<(), String> {
        let mut value = || args.next().ok_or_else(|| format!("{name} needs a value"));
        match name {
            "--mode" => self.modes = modes::named(&value()?)?,
            "--filter" => self.filters.push(value()?),
            "--jobs" => self.jobs = number(name, &value()?)?.max(1) as usize,
            "--sidestep" => self.sidestep = value()?.into(),
            "--deadline" => self.deadline = Duration::from_secs(number(name, &value()?)?),
            "--seed" => self.seed = number(name, &value()?)?,
            "--slow" => self.slow = true,
            "--again" => self.again = true,
            "--note" => self.note = true,
            "--keep" => self.keep = true,
            "--json" => self.json = true,
            "--help" | "-h" => self.help = true,
            _ => return Err(format!("unknown option '{name}'")),
        }
        Ok(())
    }
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{name} needs a number, not '{value}'"))
}
