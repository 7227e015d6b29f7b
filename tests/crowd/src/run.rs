//! A run of a seed in one mode: its processes, their deadline, what they say and what the library reports.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use sidestep_posix::runner::report::Report;
use sidestep_posix::runner::scratch::Scratch;
use sidestep_posix::sys::process::die_with_parent;

use crate::modes::Mode;
use crate::options::Options;
use crate::plan::Run;

pub struct Runner<'a> {
    pub options: &'a Options,
    pub scratch: &'a Scratch,
}

/// What a run that passed has shown.
pub struct Passed {
    /// Bytes that its ends have sent and received.
    pub bytes: u64,
    /// Those of connections that nothing takes to the kernel.
    pub by_ring: u64,
    pub report: Report,
}

/// Processes say themselves what hangs before they are ended.
const GRACE: Duration = Duration::from_secs(5);
/// Lines of what processes have said that are shown.
const SHOWN: usize = 8;

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The files of a run, and its broker's address.
struct Place {
    said: PathBuf,
    report: PathBuf,
    broker: String,
}

impl Runner<'_> {
    /// Err: why it failed, and what its processes have said.
    pub fn run(&self, run: &Run, mode: Mode) -> Result<Passed, String> {
        let name = format!("{}-{}", mode.name, NUMBER.fetch_add(1, Relaxed));
        let at = |ending: &str| self.scratch.path().join(format!("{name}.{ending}"));
        let broker = format!("@crowd-{}-{name}", std::process::id());
        let place = Place { said: at("said"), report: at("report"), broker };
        let ended = self.processes(run, mode, &place);
        let said = std::fs::read_to_string(&place.said).unwrap_or_default();
        let told = |what: String| format!("{what}\n{}", shown(&said));
        ended.map_err(told)?;
        let report = Report::read(&place.report).map_err(told)?;
        let [bytes, by_ring] = run.bytes();
        complaint(mode, by_ring, &report).map_or(Ok(Passed { bytes, by_ring, report }), |what| Err(told(what)))
    }

    fn processes(&self, run: &Run, mode: Mode, place: &Place) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(self.options.deadline) + GRACE;
        let mut server = self.start(run, mode, place, &["server".into()])?;
        let port = port_of(&mut server)?;
        let client =
            |number: u32| self.start(run, mode, place, &["client".into(), number.to_string(), port.to_string()]);
        let mut all = vec![("the server".to_owned(), server)];
        for number in 0..run.clients {
            all.push((format!("client {number}"), client(number)?));
        }
        // The clients first: the server may have waited for one of them.
        all.rotate_left(1);
        let ends = all.iter_mut().map(|(name, child)| wait(child, deadline).map_err(|what| format!("{name}: {what}")));
        // All are waited for, whatever the first says.
        ends.collect::<Vec<_>>().into_iter().collect()
    }

    fn start(&self, run: &Run, mode: Mode, place: &Place, role: &[String]) -> Result<Child, String> {
        let me = std::env::current_exe().map_err(|e| format!("where is this program: {e}"))?;
        let mut command = Command::new(if mode.is_preloaded { &self.options.sidestep } else { &me });
        if mode.is_preloaded {
            command.args(["run", "--"]).arg(&me);
        }
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SIDESTEP")) {
            command.env_remove(name);
        }
        command.args(self.options.of_run(run)).args(role).env_remove("LD_PRELOAD").env("RUST_BACKTRACE", "0");
        command
            .env("SIDESTEP_BROKER", &place.broker)
            .env("SIDESTEP_REPORT", &place.report)
            .envs(mode.settings.iter().copied());
        if mode.flips {
            command.env("SIDESTEP_FLIP", (200 + run.seed % 3501).to_string());
        }
        command.stdin(Stdio::null()).stderr(appended(&place.said)?);
        command.stdout(if role[0] == "server" { Stdio::piped() } else { Stdio::null() }).process_group(0);
        // SAFETY: one system call, which is allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                die_with_parent();
                Ok(())
            })
        };
        command.spawn().map_err(|e| format!("{:?}: {e}", command.get_program()))
    }
}

fn appended(path: &Path) -> Result<File, String> {
    OpenOptions::new().create(true).append(true).open(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// The server's first line. One that says nothing ends at its own deadline.
fn port_of(server: &mut Child) -> Result<u16, String> {
    let mut line = String::new();
    let out = server.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut line).map_err(|e| format!("the server's port: {e}"))?;
    line.trim().parse().map_err(|_| format!("the server told no port but '{line}'"))
}

/// Ends the process, and those that it has forked, at the deadline.
fn wait(child: &mut Child, deadline: Instant) -> Result<(), String> {
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() > deadline => break None,
            Ok(None) => thread::sleep(Duration::from_millis(2)), // between two looks
            Err(e) => return Err(format!("cannot wait for it: {e}")),
        }
    };
    // SAFETY: no pointers; the child leads the group.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(ending(status)),
        None => {
            let _ = child.wait();
            Err("it did not end, nor did it say what hangs".into())
        }
    }
}

fn ending(status: ExitStatus) -> String {
    match status.code() {
        Some(3) => "something hangs".into(),
        Some(1 | 101) => "a promise was broken".into(),
        _ => status.to_string(),
    }
}

/// The first lines: what came later may follow from them.
fn shown(said: &str) -> String {
    said.lines().take(SHOWN).map(|line| format!("      | {line}\n")).collect()
}

/// How the report contradicts what the mode promises. `bytes`: those of connections that nothing takes to the kernel.
fn complaint(mode: Mode, bytes: u64, report: &Report) -> Option<String> {
    match mode.is_preloaded {
        false => None,
        _ if report.processes == 0 => Some("no process wrote a report: was the library loaded?".into()),
        // How many do is judged over all runs: few of one run do if its readers are late.
        _ if mode.least > 0 && bytes > 1_000_000 && report.ring == 0 => {
            Some(format!("no byte went by ring ({report:?})"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modes;

    #[test]
    fn a_run_that_stayed_on_the_kernel_fails() {
        let mode = |name| modes::named(name).expect("a mode")[0];
        let kernel = Report { processes: 3, kernel: 100, ..Report::default() };
        let ring = Report { processes: 3, ring: 100, ..Report::default() };
        assert!(complaint(mode("upgraded"), 2_000_000, &kernel).is_some());
        assert!(complaint(mode("upgraded"), 0, &Report::default()).is_some());
        assert_eq!(complaint(mode("upgraded"), 2_000_000, &ring), None);
        assert_eq!(complaint(mode("plain"), 2_000_000, &Report::default()), None);
    }
}
