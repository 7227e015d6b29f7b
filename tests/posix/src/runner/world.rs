//! Two hosts for a run, with one broker and one stack: see [`Hairpin`]. The stack has the devices of those sides whose connections it
//! is to carry.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sidestep_testkit::hairpin::{DEVICES, Hairpin};

use crate::hosts::{self, Side};
use crate::shipped;

/// The hosts, and what runs on them.
pub struct World {
    hairpin: Hairpin,
    directory: PathBuf,
    /// In the order in which they are ended.
    running: Vec<Running>,
    stacks: &'static [Side],
}

struct Running {
    name: &'static str,
    process: Child,
}

/// Longest time for a program to start, or to end.
const PATIENCE: Duration = Duration::from_secs(20);

impl World {
    /// `directory`: where sockets and logs go. `flips`: connections that have gone back are taken again at once.
    pub fn new(directory: &Path, stacks: &'static [Side], flips: bool) -> Result<World, String> {
        std::fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        let mut it = World { hairpin: Hairpin::new(), directory: directory.into(), running: vec![], stacks };
        let mut broker = Command::new(shipped::program("sidestepd"));
        it.start("sidestepd", broker.env("SIDESTEP_BROKER", it.broker()))?;
        let socket = it.broker();
        it.until("sidestepd", || socket.exists())?;
        if !stacks.is_empty() {
            it.start_stack(flips)?;
        }
        Ok(it)
    }

    fn start_stack(&mut self, flips: bool) -> Result<(), String> {
        let ready = self.directory.join("ready");
        let _ = std::fs::remove_file(&ready); // may be left by an earlier world
        let mut stack = Command::new(shipped::beside("sidestep-stack"));
        for side in self.stacks {
            stack.args(["--device", DEVICES[*side as usize]]);
        }
        stack.arg("--broker").arg(self.broker()).arg("--ready-file").arg(&ready).arg("--verbose");
        // On a busy machine the stack tries again soon.
        stack.args(["--pause", if flips { "0" } else { "20" }]);
        // Streams, too, are to go by the stack here.
        stack.args(["--longest-message", "1000000000"]);
        self.start("sidestep-stack", &mut stack)?;
        self.until("sidestep-stack", || ready.exists())
    }

    /// Address of the broker.
    pub fn broker(&self) -> PathBuf {
        self.directory.join("broker")
    }

    /// Where a program's output goes.
    fn log(&self, name: &str) -> PathBuf {
        self.directory.join(name).with_extension("log")
    }

    /// Starts a program on the host.
    fn start(&mut self, name: &'static str, command: &mut Command) -> Result<(), String> {
        let log = self.log(name);
        let fail = |e: std::io::Error| format!("{name}: {e}");
        let file = File::create(log).map_err(fail)?;
        let copy = file.try_clone().map_err(fail)?;
        command.stdin(Stdio::null()).stdout(file).stderr(copy).process_group(0);
        let process = self.hairpin.host.run(|| command.spawn()).map_err(fail)?;
        self.running.insert(0, Running { name, process });
        Ok(())
    }

    /// Waits for a program's sign that it serves.
    fn until(&mut self, name: &str, holds: impl Fn() -> bool) -> Result<(), String> {
        let began = Instant::now();
        while !holds() {
            let ended = self.running.first_mut().and_then(|one| one.process.try_wait().ok().flatten());
            if ended.is_some() || began.elapsed() > PATIENCE {
                return Err(format!("{name} does not serve ({ended:?}): {}", self.said(name)));
            }
            std::thread::sleep(Duration::from_millis(5)); // between two looks
        }
        Ok(())
    }

    fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.log(name)).unwrap_or_default()
    }

    /// The command's program, which makes clients' sockets where it starts, runs on the clients' host.
    pub fn settle(&self, command: &mut Command) -> Result<(), String> {
        let [clients, servers] = self.hairpin.pods.each_ref().map(|pod| pod.path());
        let file = File::open(&clients).map_err(|e| format!("{}: {e}", clients.display()))?;
        let sides: Vec<&str> = self.stacks.iter().map(|side| hosts::name(*side)).collect();
        command.env(hosts::VARIABLE, format!("{} {}", clients.display(), servers.display()));
        command.env(hosts::STACKS, sides.join(" "));
        // SAFETY: one system call, which is allowed between fork and exec.
        unsafe {
            command.pre_exec(move || match libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        Ok(())
    }

    /// Ends all programs; those that have used the stack have ended. Err: the stack did not do what it must.
    pub fn end(mut self) -> Result<(), String> {
        if self.stacks.is_empty() {
            return Ok(());
        }
        let left = self.connections_left();
        self.end_all();
        left?;
        let said = self.said("sidestep-stack");
        let totals: Vec<&str> = said.lines().filter(|line| line.starts_with("taken ")).collect();
        match totals[..] {
            [line] if is_balanced(line) => {
                eprintln!("sidestep-stack: {line}");
                Ok(())
            }
            _ => Err(format!("the stack's worker must end once, and give back what it has taken: {said}")),
        }
    }

    /// Err: the stack still has connections.
    fn connections_left(&self) -> Result<(), String> {
        let (began, mut left) = (Instant::now(), 1);
        while left > 0 && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20)); // between two looks
            let mut status = Command::new(shipped::program("sidestep"));
            status.args(["status", "--json"]).env("SIDESTEP_BROKER", self.broker());
            let said = status.output().map_err(|e| format!("sidestep status: {e}"))?.stdout;
            let said: Value = serde_json::from_slice(&said).map_err(|e| format!("sidestep status --json: {e}"))?;
            left = said["connections"].as_array().map_or(1, Vec::len);
        }
        if left == 0 { Ok(()) } else { Err(format!("{left} connections of programs that have ended are left")) }
    }

    fn end_all(&mut self) {
        for Running { name, mut process } in self.running.drain(..) {
            // SAFETY: no pointers; the process has not been waited for.
            unsafe { libc::kill(process.id() as i32, libc::SIGTERM) };
            let began = Instant::now();
            while matches!(process.try_wait(), Ok(None)) {
                if began.elapsed() > PATIENCE {
                    eprintln!("posix-run: {name} does not end");
                    let _ = process.kill();
                }
                std::thread::sleep(Duration::from_millis(5)); // between two looks
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.end_all();
    }
}

/// `taken N, given back N, not taken M`, of some connections.
fn is_balanced(line: &str) -> bool {
    let numbers: Vec<u64> = line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    numbers.len() == 3 && numbers[0] == numbers[1] && numbers[0] > 0
}

#[cfg(test)]
mod tests {
    use super::is_balanced;

    #[test]
    fn what_is_taken_must_be_given_back() {
        assert!(is_balanced("taken 3, given back 3, not taken 1"));
        assert!(!is_balanced("taken 3, given back 2, not taken 1"));
        assert!(!is_balanced("taken 0, given back 0, not taken 7"));
        assert!(!is_balanced("taken"));
    }
}
