//! The process inside, which measures: process 1 of its own PID namespace, without a network but the loopback.

use super::error::{Failure, RunError};
use super::experiment::Experiment;
use super::order::Order;
use super::stop::Stop;
use crate::cgroup::Cgroup;
use crate::context::{BPF, RunContext, SHARED, open_dir};
use crate::environment::{Cmd, run};
use crate::error::{AtPath, FileError};
use rustix::mount::{MountFlags, mount};
use std::ffi::CStr;
use std::io::BufRead;
use std::path::Path;

/// Prints its error, and ends with an exit status that the process outside understands.
pub fn inside() -> Result<(), Failure> {
    let mut pipe = std::io::BufReader::new(std::io::stdin());
    let mut line = String::new();
    pipe.read_line(&mut line).map_err(RunError::ReadOrder)?;
    let order: Order = serde_json::from_str(&line).map_err(RunError::Order)?;
    let stop = Stop::watch(pipe);
    let context = prepare(&order)?;
    Ok(Experiment::new(&order, &context, stop)?.run()?)
}

fn prepare(order: &Order) -> Result<RunContext, RunError> {
    private_netns()?;
    run(&Cmd::new("ip", &["ip", "link", "set", "lo", "up"]), None)?;
    open_dir(&order.dir.join(SHARED))?;
    if order.root {
        open_dir(&order.dir.join(BPF))?;
        mount_at("mount the file system bpf at", c"bpf", &order.dir.join(BPF))?;
    }
    let cgroup = order.cgroup.as_deref().map(join).transpose()?;
    Ok(RunContext::new(&order.dir, cgroup))
}

/// Names of network namespaces are visible only to this run, and end with it.
fn private_netns() -> Result<(), FileError> {
    let names = Path::new(crate::environment::NETNS);
    if std::fs::create_dir_all(names).is_err() {
        // An ordinary user cannot write to /run, but can mount there in this mount namespace.
        mount_tmpfs(Path::new("/run"))?;
        std::fs::create_dir_all(names).at("make the directory", names)?;
    }
    mount_tmpfs(names)
}

fn mount_tmpfs(place: &Path) -> Result<(), FileError> {
    mount_at("mount a tmpfs at", c"tmpfs", place)
}

fn mount_at(doing: &'static str, kind: &CStr, place: &Path) -> Result<(), FileError> {
    mount(kind, place, kind, MountFlags::empty(), None::<&CStr>).at(doing, place)
}

/// Puts the lab itself into a cgroup of its own: its work is neither the scenario's nor foreign.
fn join(path: &Path) -> Result<Cgroup, FileError> {
    let all = Cgroup::at(path);
    let own = all.child("lab")?;
    let members = own.path().join("cgroup.procs");
    std::fs::write(&members, "0").at("write", &members)?;
    Ok(all)
}
