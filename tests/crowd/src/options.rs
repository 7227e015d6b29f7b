//! The command line.

use std::path::PathBuf;

use crate::modes::{self, Mode};
use crate::plan::Run;

pub const HELP: &str = "\
crowd: several clients at once against one server, on the kernel and with Sidestep

  crowd [--seeds FROM..TO[,…]] [--new N] [--time SECONDS] [--modes MODE[,MODE]…] [--clients N] [--load N]
        [--only CONNECTION[,CONNECTION]…] [--times N] [--deadline SECONDS] [--sidestep PATH] [--plans]

A seed makes a run: processes that are clients, each with several connections at once, and one server. Each end of a
connection draws how it sends, receives and waits, its buffers, who ends first, and whether a copy of the descriptor,
SCM_RIGHTS or a forked child goes on with it. Each byte tells its connection, direction and position, and each end checks
every byte, their number, and that the end comes after them. A process that has not ended by the deadline says what
each of its connections does.

  --seeds     those of these numbers, TO not included, or single ones (default 1..5)
  --new       so many seeds more, that are new
  --time      new seeds for so many seconds, after the others
  --modes     plain     kernel TCP, nothing preloaded: what fails here is a fault of the test
              upgraded  preloaded, connections change to the ring at the first byte
              flip      and each direction changes its carrier every few hundred bytes
              small     with rings of 4 KiB
              spin      waits spin
              in-time   calls do not wait for the other end's consent
              defaults  with the default settings
              all       these (default: plain, upgraded, flip, small)
  --clients   processes (default: 2, 4, 6 or 8, by the seed)
  --load      so many threads compete for the processors
  --only      only these connections of each run
  --times     each run so often
  --deadline  seconds of a run (default 20)
  --sidestep  the sidestep command (default: that of target/release)
  --plans     prints what each end of a run does, and ends

With the library a run also fails if the report does not show that its bytes went by ring.
The last line is `crowd: N passed, N failed`. Exit code: 0 all passed, 1 some failed, 2 nothing ran.
";

/// What this process is.
pub enum Role {
    Campaign,
    Server,
    Client { number: u32, port: u16 },
}

pub struct Options {
    pub role: Role,
    pub seeds: Vec<u64>,
    pub new: u64,
    pub time: u64,
    pub modes: Vec<Mode>,
    clients: Option<u32>,
    pub load: usize,
    pub only: Vec<u32>,
    pub times: u64,
    pub deadline: u64,
    pub sidestep: PathBuf,
    pub plans: bool,
    pub help: bool,
}

impl Options {
    pub fn from_args(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            role: Role::Campaign,
            seeds: (1..5).collect(),
            new: 0,
            time: 0,
            modes: modes::named("plain,upgraded,flip,small")?,
            clients: None,
            load: 0,
            only: vec![],
            times: 1,
            deadline: 20,
            sidestep: sidestep_posix::shipped::program("sidestep"),
            plans: false,
            help: false,
        };
        while let Some(name) = args.next() {
            options.take(&name, &mut args)?;
        }
        Ok(options)
    }

    fn take(&mut self, name: &str, args: &mut impl Iterator<Item = String>) -> Result<(), String> {
        let mut value = || args.next().ok_or_else(|| format!("{name} needs a value"));
        match name {
            "server" => self.role = Role::Server,
            "client" => self.role = Role::Client { number: number(name, &value()?)?, port: number(name, &value()?)? },
            "--seeds" => self.seeds = numbers(name, &value()?)?,
            "--new" => self.new = number(name, &value()?)?,
            "--time" => self.time = number(name, &value()?)?,
            "--modes" => self.modes = modes::named(&value()?)?,
            "--clients" => self.clients = Some(number::<u32>(name, &value()?)?.clamp(1, 30)),
            "--load" => self.load = number(name, &value()?)?,
            "--only" => self.only = value()?.split(',').map(|one| number(name, one)).collect::<Result<_, _>>()?,
            "--times" => self.times = number(name, &value()?)?,
            "--deadline" => self.deadline = number(name, &value()?)?,
            "--sidestep" => self.sidestep = value()?.into(),
            "--plans" => self.plans = true,
            "--help" | "-h" => self.help = true,
            _ => return Err(format!("unknown option '{name}'")),
        }
        Ok(())
    }

    pub fn run_of(&self, seed: u64) -> Run {
        let clients = self.clients.unwrap_or([4, 8, 2, 6][(seed % 4) as usize]);
        Run::new(seed, clients, self.only.clone())
    }

    /// In a process of a run.
    pub fn run(&self) -> Run {
        self.run_of(self.seeds[0])
    }

    /// What the processes of a run are told, and whoever repeats it.
    pub fn of_run(&self, run: &Run) -> Vec<String> {
        let mut words =
            vec!["--seeds".to_owned(), run.seed.to_string(), "--clients".to_owned(), run.clients.to_string()];
        if !self.only.is_empty() {
            let only: Vec<String> = self.only.iter().map(u32::to_string).collect();
            words.extend(["--only".to_owned(), only.join(",")]);
        }
        words.extend(["--deadline".to_owned(), self.deadline.to_string()]);
        words
    }
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name} needs a number, not '{value}'"))
}

/// Of ranges and single numbers, separated by commas.
fn numbers(name: &str, value: &str) -> Result<Vec<u64>, String> {
    let mut all: Vec<u64> = vec![];
    for one in value.split(',') {
        match one.split_once("..") {
            Some((from, to)) => all.extend(number::<u64>(name, from)?..number(name, to)?),
            None => all.push(number(name, one)?),
        }
    }
    Ok(all)
}
