//! The process outside, which the user has started: it starts the process inside, passes Ctrl-C on, and cleans up.

use super::error::{Failure, RunError};
use super::leftovers;
use super::order::{INSIDE, Order, STOP};
use crate::cgroup::{self, Cgroup};
use crate::error::{AtPath, FileError};
use crate::scenario::Scenario;
use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

/// Exit status of the process inside for an invalid scenario, as clap's.
pub const WRONG: i32 = 2;

/// A scenario, and how to run it.
pub struct Request {
    /// Already checked and, with `--quick`, shortened.
    pub scenario: Scenario,
    /// The scenario's file as read, for the result.
    pub text: String,
    /// Of the order of the trials in each round.
    pub seed: u64,
    /// Whether each variant is sampled after the measurement.
    pub profile: bool,
    /// The result file. It must be writable: see [`may_write`](crate::result::may_write).
    pub out: PathBuf,
}

/// Measures, and writes the result.
pub fn run(request: Request) -> Result<(), Failure> {
    leftovers::sweep();
    let context = Scratch::new().map_err(RunError::File)?;
    let order = Order {
        scenario: request.scenario,
        text: request.text,
        command: ["sidestep", "lab"].map(String::from).into_iter().chain(std::env::args().skip(1)).collect(),
        seed: request.seed,
        profile: request.profile,
        out: request.out,
        dir: context.dir.clone(),
        cgroup: context.cgroup.as_ref().map(|each| each.path().into()),
        root: is_root(),
    };
    let mut child = start(&context.dir)?;
    let pipe = child.stdin.take().expect("stdin is piped");
    say(pipe, &order)?;
    let status = child.wait().map_err(RunError::Wait)?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::Said { code: if code == WRONG { WRONG as u8 } else { 1 } }),
        None => Err(RunError::Ended(status).into()),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Sends the order. The first Ctrl-C drops the trial under way and ends the run, the second one ends it at once, by closing the
/// pipe.
fn say(mut pipe: ChildStdin, order: &Order) -> Result<(), RunError> {
    let line = serde_json::to_string(order).map_err(RunError::Order)?;
    writeln!(pipe, "{line}").map_err(RunError::WriteOrder)?;
    let pipe = Arc::new(Mutex::new(Some(pipe)));
    let mut asked = false;
    let handler = move || {
        let mut pipe = pipe.lock().expect("no holder panics");
        if std::mem::replace(&mut asked, true) {
            pipe.take();
        } else if let Some(pipe) = pipe.as_mut() {
            let _ = writeln!(pipe, "{STOP}");
            // The terminal may be gone, so an error is ignored.
            let _ = writeln!(std::io::stderr(), "\nending; once more for at once");
        }
    };
    ctrlc::set_handler(handler).map_err(RunError::Signals)
}

/// Mounts a file system on the scratch directory that nobody outside can see or write to. The host's /proc is mounted there, since
/// foreign load is visible only in it.
const ENTER: &str = "mount -t tmpfs -o mode=755 sidestep-lab \"$0\" && mkdir \"$0/proc\" && mount --rbind /proc \"$0/proc\" && \
    exec unshare --pid --fork --kill-child --mount-proc -- \"$@\"";

/// Starts the process inside, in namespaces of its own, as process 1. Signals of the terminal do not reach it.
fn start(dir: &Path) -> Result<Child, RunError> {
    let own = std::env::current_exe().map_err(RunError::OwnFile)?;
    let mut command = Command::new("unshare");
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--mount", "--propagation", "private", "--", "sh", "-c", ENTER]);
    command.arg(dir).arg(own).arg(INSIDE).stdin(Stdio::piped()).process_group(0);
    command.spawn().map_err(RunError::Unshare)
}

/// The scratch directory and the cgroup, removed on drop.
struct Scratch {
    dir: PathBuf,
    cgroup: Option<Cgroup>,
    _claims: Vec<File>,
}

impl Scratch {
    /// As seen from outside, the directory stays empty: its content is in a file system of the run's mount namespace.
    fn new() -> Result<Scratch, FileError> {
        let dir = leftovers::scratch();
        let made = leftovers::make(&dir, |path| DirBuilder::new().mode(0o700).create(path));
        let claim = made.at("make the directory", &dir)?;
        // An ordinary user may not create cgroups, and does without.
        let cgroup = cgroup::root().map(|root| root.join(leftovers::name()));
        let cgroup =
            cgroup.and_then(|path| Some((leftovers::make(&path, |path| std::fs::create_dir(path)).ok()?, path)));
        let (claim_too, cgroup) = cgroup.map(|(claim, path)| (claim, Cgroup::at(&path))).unzip();
        Ok(Scratch { dir, cgroup, _claims: [claim].into_iter().chain(claim_too).collect() })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(cgroup) = self.cgroup.take() {
            cgroup.remove();
        }
        let _ = std::fs::remove_dir(&self.dir);
    }
}
