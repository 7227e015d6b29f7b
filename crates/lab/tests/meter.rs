//! The meter on this machine. Other programs may be running, so most values are only checked against a lower bound. Tests that need
//! root fail without it.

use indexmap::IndexMap;
use sidestep_lab::meter::{Account, Meter, Watched, why_no_calls};
use sidestep_lab::result::Usage;
use sidestep_testkit::Cgroup;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Kills its processes and removes the cgroup on drop.
struct Group(Cgroup);

impl Group {
    fn new(name: &str) -> Group {
        // Not named as the lab names its own: a lab that runs meanwhile would take it for the leftover of a killed one.
        Group(Cgroup::new(&format!("meter-test-{name}-{}", std::process::id())))
    }

    fn run(&self, script: &str) -> Child {
        quietly(self.0.command("sh").args(["-c", script]))
    }

    fn watched(&self) -> Watched {
        watched(Account::Cgroup(self.0.path().into()), Some(self.0.path().into()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// A process that ends with the test.
struct Burner(Child);

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn watched(account: Account, whole: Option<PathBuf>) -> Watched {
    Watched { processes: IndexMap::from([("burner".to_owned(), account)]), whole, outside: None }
}

fn shell(script: &str) -> Child {
    quietly(Command::new("sh").args(["-c", script]))
}

fn quietly(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Uses one second of CPU time; then the kernel kills it.
const BURN: &str = "ulimit -t 1; while :; do :; done";

fn burnt(usage: &Usage) -> f64 {
    usage.processes["burner"].cpu()
}

#[test]
fn cpu_of_a_cgroup_is_seen() {
    let cgroup = Group::new("cpu");
    let meter = Meter::begin(&cgroup.watched());
    cgroup.run(BURN).wait().unwrap();
    let usage = meter.end();
    assert!((0.7..1.3).contains(&burnt(&usage)), "{usage:?}");
    assert!(usage.machine_cpu > 0.5 && usage.switches > 0 && usage.seconds >= 0.7, "{usage:?}");
    assert!((0.05..1.5).contains(&usage.highest_cpu), "{usage:?}");
}

/// A shell whose child has used one second of CPU time, however long that took. The shell itself runs on.
fn burn_in_child(meanwhile: impl FnOnce(&Child) -> Meter) -> (Burner, Meter) {
    let place = tempfile::tempdir().unwrap();
    let (begin, done) = (place.path().join("begin"), place.path().join("done"));
    let wait = format!("while [ ! -e {} ]; do sleep 0.05; done", begin.display());
    let burner = Burner(shell(&format!("{wait}; ({BURN}); touch {}; exec sleep 60", done.display())));
    let meter = meanwhile(&burner.0);
    fs::write(begin, "").unwrap();
    let over = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        done.exists()
    });
    assert!(over, "a second of CPU in 30 s");
    (burner, meter)
}

#[test]
fn cpu_of_a_tree_is_seen() {
    let (_burner, meter) = burn_in_child(|root| Meter::begin(&watched(Account::Tree(root.id()), None)));
    let usage = meter.end();
    assert!((0.7..1.3).contains(&burnt(&usage)), "{usage:?}");
    assert!(usage.processes["burner"].memory > 10_000 && usage.highest_cpu > 0.05, "{usage:?}");
}

#[test]
fn others_are_foreign() {
    let cgroup = Group::new("foreign");
    let (_burner, meter) = burn_in_child(|_| Meter::begin(&cgroup.watched()));
    let usage = meter.end();
    assert!(usage.foreign.unwrap() >= 0.7, "{usage:?}");
    assert!(burnt(&usage) < 0.1, "{usage:?}");
}

#[test]
fn memory_of_a_cgroup_is_seen() {
    let cgroup = Group::new("memory");
    let mut child = cgroup.run("exec sleep 60");
    let meter = Meter::begin(&cgroup.watched());
    std::thread::sleep(Duration::from_millis(300));
    let usage = meter.end();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(usage.processes["burner"].memory > 10_000, "{usage:?}");
}

/// dd makes two calls for each block.
#[test]
fn system_calls_are_counted() {
    assert!(why_no_calls().is_none(), "{:?}", why_no_calls());
    let meter = Meter::begin(&Watched::default());
    shell("dd if=/dev/zero of=/dev/null bs=1 count=50000").wait().unwrap();
    let usage = meter.end();
    assert!(usage.calls.unwrap() >= 100_000, "{usage:?}");
}
