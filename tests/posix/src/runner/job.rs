//! One case in one mode: a process group with a deadline, its output, and its report.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::by_stack::{self, Noted};
use super::modes::Mode;
use super::options::Options;
use super::report::Report;
use super::scratch::Scratch;
use super::world::World;
use super::{by_ring, stop};
use crate::case::{Case, Ring};
use crate::hosts;

pub struct Job {
    pub case: &'static Case,
    pub mode: Mode,
}

/// Where cases run.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub scratch: &'a Scratch,
    /// Two hosts, in modes that have them.
    pub world: Option<&'a World>,
}

pub struct Outcome {
    pub case: &'static Case,
    pub mode: Mode,
    pub seconds: f64,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// The end of what it printed.
    pub printed: String,
    pub report: Option<Report>,
    /// A command line that repeats the run.
    pub again: String,
}

impl Outcome {
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.case.name, "mode": self.mode.name(), "seconds": self.seconds,
            "failure": self.failure, "report": self.report.as_ref().map(Report::to_json),
        })
    }
}

/// How much of a failed case's output is shown.
const SHOWN_LINES: usize = 40;

impl Job {
    /// `None` when the run was interrupted.
    pub fn run(&self, options: &Options, place: Place) -> Option<Outcome> {
        if stop::asked() {
            return None;
        }
        // Without dots, so that the file's extension is unambiguous.
        let base = place.scratch.path().join(format!("{}-{}", self.case.name.replace('.', "-"), self.mode.name()));
        let (printed, report) = (base.with_extension("out"), base.with_extension("json"));
        let _ = std::fs::remove_file(&report); // may be left by an earlier run of the case
        let settings = self.settings(options, place, &report);
        let start = Instant::now();
        let ended = self.start(options, place, &settings, &printed).map(|child| wait(child, options.deadline));
        if stop::asked() {
            return None;
        }
        let sums = self.mode.is_preloaded().then(|| Report::read(&report));
        Some(Outcome {
            case: self.case,
            mode: self.mode,
            seconds: start.elapsed().as_secs_f64(),
            failure: ended.and_then(|e| e).and_then(|()| self.judge(options, &sums)).err(),
            printed: tail(&printed),
            report: sums.and_then(Result::ok),
            again: self.again(options, &settings),
        })
    }

    fn judge(&self, options: &Options, report: &Option<Result<Report, String>>) -> Result<(), String> {
        let (ring, least) = self.expected(options);
        match report {
            None => Ok(()),
            Some(Err(what)) => Err(what.clone()),
            Some(Ok(report)) => report.complaint(self.case, ring, self.mode, least).map_or(Ok(()), Err),
        }
    }

    /// Whether bytes go by ring (between hosts that means by the stack), and how many at least.
    fn expected(&self, options: &Options) -> (Ring, u64) {
        let (ring, least) = match self.mode.stacks() {
            None => (self.case.ring, by_ring::least(self.case)),
            Some(_) => match by_stack::of(self.case.name) {
                Noted::Runs { ring, least } => (ring, if options.note { 0 } else { least }),
                Noted::Out(_) => unreachable!("such a case makes no job"),
            },
        };
        let least = match self.mode {
            _ if options.slow => 1,
            // The run as a whole is judged: `by_stack::complaint`.
            Mode::HostsClient | Mode::HostsServer | Mode::HostsFlip => 0,
            // About half of the bytes go by kernel, and short stretches carry fewer by ring.
            _ if self.mode.flips() => 1,
            _ => least,
        };
        (ring, least)
    }

    /// The variables of this run. The caller's own settings are not passed on.
    fn settings(&self, options: &Options, place: Place, report: &Path) -> Vec<(&'static str, String)> {
        let mut settings = vec![("SIDESTEP_POSIX_SEED", options.seed.to_string())];
        if self.mode.is_preloaded() {
            let own = || format!("@sidestep-test-{}", std::process::id());
            settings
                .push(("SIDESTEP_BROKER", place.world.map_or_else(own, |world| world.broker().display().to_string())));
            let after = if self.case.by_pace { "auto" } else { "0ops" };
            settings.push(("SIDESTEP_UPGRADE_AFTER", after.into()));
            settings.push(("SIDESTEP_PAIRING", "sync".into()));
            settings.push(("SIDESTEP_REPORT", report.display().to_string()));
        }
        if self.mode.is_preloaded() && self.case.large_ring {
            settings.push(("SIDESTEP_RING_SIZE", "16M".into()));
        }
        if self.mode.is_preloaded() && self.case.spins {
            settings.push(("SIDESTEP_SPIN", "50".into()));
        }
        if self.mode.flips() {
            settings.push(("SIDESTEP_FLIP", self.flip_every().to_string()));
        }
        settings
    }

    /// 200 to 3700 bytes, odd and even, the same for a case in each run.
    fn flip_every(&self) -> u64 {
        let sum = self.case.name.bytes().fold(7u64, |sum, b| sum.wrapping_mul(31).wrapping_add(b.into()));
        200 + sum % 3501
    }

    fn command(&self, options: &Options) -> Command {
        let mut command = Command::new(if self.mode.is_preloaded() { &options.sidestep } else { &options.cases });
        if self.mode.is_preloaded() {
            command.args(["run", "--"]).arg(&options.cases);
        }
        command.args(["run", self.case.name]);
        command
    }

    fn start(
        &self,
        options: &Options,
        place: Place,
        settings: &[(&str, String)],
        printed: &Path,
    ) -> Result<Child, String> {
        let mut command = self.command(options);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SIDESTEP")) {
            command.env_remove(name);
        }
        let out = File::create(printed).map_err(|e| format!("{}: {e}", printed.display()))?;
        let err = out.try_clone().map_err(|e| format!("{}: {e}", printed.display()))?;
        command.env_remove("LD_PRELOAD").envs(settings.iter().map(|(n, v)| (n, v)));
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        if let Some(world) = place.world {
            world.settle(&mut command)?;
        }
        if self.case.by_pace {
            command.env_remove(hosts::STACKS); // the case has a pace of its own
        }
        // SAFETY: one system call, which is allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                crate::sys::process::die_with_parent();
                Ok(())
            })
        };
        command.spawn().map_err(|e| format!("cannot start {:?}: {e}", command.get_program()))
    }

    fn again(&self, options: &Options, settings: &[(&str, String)]) -> String {
        if self.mode.stacks().is_some() {
            return format!("posix-run --mode {} --filter {}", self.mode.name(), self.case.name);
        }
        let command = self.command(options);
        let words = settings.iter().filter(|(name, _)| !name.ends_with("_REPORT") && !name.ends_with("_BROKER"));
        let mut words: Vec<String> = words.map(|(name, value)| format!("{name}={value}")).collect();
        words.push(command.get_program().to_string_lossy().into_owned());
        words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
        words.join(" ")
    }
}

/// Waits for the end or the deadline, then ends whatever is left of the process group.
fn wait(mut child: Child, deadline: Duration) -> Result<(), String> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(500);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if stop::asked() => break Err("interrupted".into()),
            Ok(None) if start.elapsed() > deadline => {
                break Err(format!("not finished after {} s", deadline.as_secs()));
            }
            Ok(None) => std::thread::sleep(pause),
            Err(e) => break Err(format!("cannot wait for it: {e}")),
        }
        pause = (pause * 2).min(Duration::from_millis(10));
    };
    end_group(child.id() as i32);
    if status.is_err() {
        let _ = child.wait();
    }
    status.and_then(verdict)
}

/// The case leads the group, so only its processes are in it.
fn end_group(leader: i32) {
    // SAFETY: no pointers.
    unsafe { libc::kill(-leader, libc::SIGKILL) };
}

fn verdict(status: ExitStatus) -> Result<(), String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(format!("exit code {code}")),
        (_, signal) => Err(format!("ended by signal {}", signal.unwrap_or(0))),
    }
}

fn tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}
