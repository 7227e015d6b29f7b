//! One run of one program in one mode: a process group with a deadline, and its output.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sidestep_posix::hosts;
use sidestep_posix::runner::report::Report;

use super::modes::{Mode, Preloaded};
use super::worlds::{Worlds, locked};
use crate::program::{self, Step};
use crate::trace::{Line, Printed};

pub struct Runner {
    pub sidestep: PathBuf,
    pub scratch: PathBuf,
    pub deadline: Duration,
    pub worlds: Worlds,
}

pub struct Run {
    pub lines: Vec<Line>,
    /// For each connection that was warmed up: whether it went by ring then.
    pub warm: Vec<bool>,
    pub report: Report,
    /// Why the run did not come to its end; None: it did.
    pub broke: Option<String>,
    /// Its output on standard error.
    pub said: String,
}

/// Limit of descriptors of a program: the library's own begin at 512, the harness's at 900.
const DESCRIPTORS: u64 = 1024;

static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Runner {
    /// `reference`: what the kernel did, if known.
    pub fn run(&self, steps: &[Step], mode: Mode, seed: u64, reference: Option<&[Line]>) -> Result<Run, String> {
        let name = format!("{}-{}", mode.name, NUMBER.fetch_add(1, Relaxed));
        let dir = tempfile::Builder::new().prefix(&name).tempdir_in(&self.scratch).map_err(|e| e.to_string())?;
        let at = |name: &str| dir.path().join(name);
        let write = |name: &str, text: String| std::fs::write(at(name), text).map_err(|e| format!("{name}: {e}"));
        write("program", program::format(steps))?;
        if let Some(lines) = reference {
            write("reference", lines.iter().map(|l| serde_json::to_string(l).expect("it is JSON") + "\n").collect())?;
        }
        let said = File::create(at("said")).map_err(|e| e.to_string())?;
        let world = self.worlds.of(mode)?;
        let world = world.as_ref().map(|world| locked(world));
        let own = || format!("@twin-{}-{name}", std::process::id());
        let broker = world.as_ref().map_or_else(own, |world| world.broker().display().to_string());
        let mut command = self.command(dir.path(), mode, reference.is_some())?;
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SIDESTEP")) {
            command.env_remove(name);
        }
        command.env_remove("LD_PRELOAD").env("SIDESTEP_BROKER", &broker).env("SIDESTEP_REPORT", at("report"));
        command.envs(mode.settings.iter().copied());
        if mode.flips {
            command.env("SIDESTEP_FLIP", (100 + seed % 1901).to_string());
        }
        if let Some(world) = &world {
            world.settle(&mut command)?;
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said).process_group(0);
        // SAFETY: two system calls, which are allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                sidestep_posix::sys::process::die_with_parent();
                sidestep_posix::sys::process::set_limit(libc::RLIMIT_NOFILE, DESCRIPTORS);
                Ok(())
            })
        };
        let child = command.spawn().map_err(|e| format!("{:?}: {e}", command.get_program()))?;
        let mut run = self.follow(child, &broker, mode);
        run.said = std::fs::read_to_string(at("said")).unwrap_or_default();
        run.report = Report::read(&at("report"))?;
        Ok(run)
    }

    fn command(&self, dir: &Path, mode: Mode, reference: bool) -> Result<Command, String> {
        let me = std::env::current_exe().map_err(|e| format!("where is this program: {e}"))?;
        let under = [self.sidestep.clone().into_os_string(), "run".into(), "--".into()];
        let mut line = vec![];
        if matches!(mode.preloaded, Preloaded::Both | Preloaded::Only(0)) {
            line.extend(under.clone());
        }
        line.extend([me.clone().into_os_string(), "exec".into(), dir.as_os_str().to_owned()]);
        if reference {
            line.push("--reference".into());
        }
        for side in mode.rings() {
            line.extend(["--ring", hosts::name(side)].map(Into::into));
        }
        if mode.two {
            line.push("--".into());
            match mode.preloaded {
                Preloaded::Only(1) => line.extend(under),
                Preloaded::Only(_) => line.extend(["env", "-u", "LD_PRELOAD"].map(Into::into)),
                _ => {}
            }
            line.extend([me.into_os_string(), "side".into()]);
        }
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]);
        Ok(command)
    }

    /// Reads all that the program prints, and acts as the operator when the program asks for that.
    fn follow(&self, mut child: Child, broker: &str, mode: Mode) -> Run {
        let group = child.id() as i32;
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let deadline = self.deadline;
        let watch = std::thread::spawn(move || {
            let in_time = told.recv_timeout(deadline).is_ok();
            if !in_time {
                // SAFETY: no pointers; the group is that of the child, which has not been waited for.
                unsafe { libc::kill(-group, libc::SIGKILL) };
            }
            in_time
        });
        let mut run = Run { lines: vec![], warm: vec![], report: Report::default(), broke: None, said: String::new() };
        let mut ended = false;
        let mut stdin = child.stdin.take().expect("a pipe");
        for line in BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(Printed::Line(line)) => run.lines.push(line),
                Ok(Printed::Warm { ring }) => run.warm.push(ring),
                Ok(Printed::End) => ended = true,
                Ok(Printed::Operator { detach }) => {
                    self.operate(broker, mode, detach);
                    let _ = stdin.write_all(b"\n");
                }
                Err(e) => run.broke = Some(format!("it printed what is no line of a trace ({e}): {line}")),
            }
        }
        let status = child.wait();
        let _ = tell.send(());
        let in_time = watch.join().expect("the watch");
        run.broke = run.broke.or_else(|| match status {
            _ if !in_time => Some(format!("not finished after {} s", self.deadline.as_secs())),
            Err(e) => Some(e.to_string()),
            Ok(status) if status.signal().is_some() => {
                Some(format!("ended by signal {}", status.signal().unwrap_or(0)))
            }
            Ok(status) if !status.success() => Some(status.to_string()),
            Ok(_) if !ended => Some("it ended too early".into()),
            Ok(_) => None,
        });
        run
    }

    fn operate(&self, broker: &str, mode: Mode, detach: bool) {
        if mode.preloaded == Preloaded::Nobody {
            return;
        }
        let what = if detach { "detach" } else { "attach" };
        let mut command = Command::new(&self.sidestep);
        command.args([what, "--all"]).env("SIDESTEP_BROKER", broker).stdout(Stdio::null()).stderr(Stdio::null());
        let _ = command.status();
    }
}
