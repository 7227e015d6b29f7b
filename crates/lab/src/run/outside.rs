//! The half that the user has started: it starts the other one, passes Ctrl-C on, and cleans up after it.

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

/// Exit status of the half that measures if the scenario is wrong; as clap's.
pub const WRONG: i32 = 2;

/// What a run needs to know besides its scenario.
pub struct Request {
    pub scenario: Scenario,
    pub text: String,
    pub seed: u64,
    pub profile: bool,
    pub out: PathBuf,
}

/// Measures, and writes the result. The error says what did not work.
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
    let pipe = child.stdin.take().expect("it is piped");
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

/// The first Ctrl-C ends the run after its trial, the second one at once: the pipe closes.
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
            // The terminal may be gone.
            let _ = writeln!(std::io::stderr(), "\nending; once more for at once");
        }
    };
    ctrlc::set_handler(handler).map_err(RunError::Signals)
}

/// The scratch directory gets a file system that nobody outside sees or can write to, and the outer /proc stays in sight there:
/// foreign load shows nowhere else.
const ENTER: &str = "mount -t tmpfs -o mode=755 sidestep-lab \"$0\" && mkdir \"$0/proc\" && mount --rbind /proc \"$0/proc\" && \
    exec unshare --pid --fork --kill-child --mount-proc -- \"$@\"";

/// In namespaces of its own, in which it is process 1. It gets no signal from the terminal.
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

/// Taken away when it is dropped.
struct Scratch {
    dir: PathBuf,
    cgroup: Option<Cgroup>,
    _claims: Vec<File>,
}

impl Scratch {
    /// The directory is empty for ever, as seen from outside: what is in it is in a file system of the run's.
    fn new() -> Result<Scratch, FileError> {
        let dir = leftovers::scratch();
        let made = leftovers::make(&dir, |path| DirBuilder::new().mode(0o700).create(path));
        let claim = made.at("make the directory", &dir)?;
        // An ordinary user may make none, and does without.
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
