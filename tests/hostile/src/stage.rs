//! The broker, the victims and the honest client, each a process of its own, and what must be true of them.

use crate::disguise::ATTACKER;
use crate::peers::PATIENCE;
use crate::watch::{self, Look};
use rustix::process::Signal;
use sidestep_broker::listen::Address;
use sidestep_posix::shipped;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Processor time that a process may use in a second in which nobody wants anything of it: 20 %. A thread that spins
/// has 100 %, or its share of a busy machine; one that looks every millisecond, as it must while a peer says that it
/// holds no doorbell, about 3 %.
const QUIET_TICKS: u64 = 20;
/// Descriptors and mappings of a victim may go up and down with the threads that wait at once.
const SLACK: [usize; 2] = [24, 64];

const KILL: Signal = Signal::KILL;

/// A process that takes orders on its standard input and answers with lines.
pub struct Actor {
    pub name: String,
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    baseline: Option<Look>,
}

impl Actor {
    fn start(name: &str, mut command: Command) -> Actor {
        // SAFETY: one system call between fork and exec: nothing outlives a test that is killed.
        unsafe {
            command.pre_exec(|| rustix::process::set_parent_process_death_signal(Some(KILL)).map_err(Into::into))
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{name} cannot be started: {e}"));
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        let orders = child.stdin.take();
        Actor { name: name.to_owned(), child, orders, answers, baseline: None }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn answer(&mut self) -> Option<u64> {
        let mut line = String::new();
        self.answers.read_line(&mut line).ok()?;
        line.trim().parse().ok()
    }

    pub fn order(&mut self, rounds: u32) {
        if let Some(orders) = &mut self.orders {
            let _ = writeln!(orders, "{rounds}");
        }
    }

    pub fn look(&self) -> Option<Look> {
        watch::look(self.pid())
    }

    /// Whether it uses processor time now although nobody wants anything.
    pub fn quiet(&self, before: Look) -> Result<(), String> {
        let now = self.look().ok_or_else(|| format!("{} is gone", self.name))?;
        match now.ticks - before.ticks {
            ticks if ticks <= QUIET_TICKS => Ok(()),
            ticks => Err(format!("{} spins: {ticks} % of a processor, {}", self.name, watch::threads(self.pid()))),
        }
    }

    /// Whether it still holds what attackers of long ago have left.
    pub fn steady(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let now = self.look().ok_or_else(|| format!("{} is gone", self.name))?;
            let first = *self.baseline.get_or_insert(now);
            if now.descriptors <= first.descriptors + SLACK[0] && now.mappings <= first.mappings + SLACK[1] {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("{} grows: from {first:?} to {now:?}", self.name));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Everything that is not the attacker.
pub struct Stage {
    pub directory: tempfile::TempDir,
    pub address: Address,
    pub broker: Actor,
}

impl Stage {
    pub fn new() -> Stage {
        let directory = tempfile::tempdir().expect("temporary directory");
        let address = Address::Path(directory.path().join("broker"));
        // Others reach the socket, and may share memory.
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
        let config = directory.path().join("config.toml");
        std::fs::write(&config, format!("[[allow]]\nuids = [0, {ATTACKER}]\n")).expect("write");
        let mut command = Command::new(shipped::program("sidestepd"));
        command
            .args(["--idle-exit", "0", "--ready-fd", "1", "--address", &address.to_string(), "--config"])
            .arg(config);
        let mut broker = Actor::start("the broker", command);
        broker.answer(); // the line `ready`
        Stage { directory, address, broker }
    }

    /// A program of ours under `sidestep run`.
    pub fn upgraded(&self, name: &str, args: &[&str]) -> Actor {
        let mut command = Command::new(shipped::program("sidestep"));
        command.args(["run", "--upgrade-after", "0ops", "--ring-size", "16K", "--report"]);
        command.arg(self.report()).arg("--").arg(std::env::current_exe().expect("own path")).args(args);
        command.env("SIDESTEP_BROKER", self.address.to_string());
        Actor::start(name, command)
    }

    pub fn report(&self) -> PathBuf {
        self.directory.path().join("report.jsonl")
    }
}

/// Orders round trips and waits for the answer. Err: not within [`PATIENCE`], or not the right bytes.
pub fn honest(clients: &mut [Actor], rounds: u32) -> Result<Duration, String> {
    clients.iter_mut().for_each(|c| c.order(rounds));
    let mut worst = Duration::ZERO;
    for client in clients {
        // It gives up by itself when its answer does not come, so this ends.
        let micros = client.answer().ok_or_else(|| {
            format!("{}: an honest connection has failed or was not answered within {PATIENCE:?}", client.name)
        })?;
        worst = worst.max(Duration::from_micros(micros));
    }
    Ok(worst)
}
