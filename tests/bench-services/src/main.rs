//! Puts Services from files into the kernel half's maps. Reads commands from standard input and answers each with a
//! line of JSON:
//!
//! ```text
//! put FILE       the objects of the file, beside those that are there
//! all FILE       the objects of the file, and no others
//! ```

#![forbid(unsafe_code)]

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sidestep_ebpf::plane::Maps;
use sidestep_ebpf::services::{self, Options};
use sidestep_mesh::choose::Node;
use sidestep_mesh::reconcile::Reconciler;
use sidestep_mesh::state::{Change, State};
use sidestep_mesh::yaml;
use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: sidestep-bench-services PINS CGROUP NODE-NAMESPACE";

struct Driver {
    maps: Maps,
    reconciler: Reconciler,
    state: State,
    begun: Instant,
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [pins, cgroup, namespace] = words.as_slice() else { return Err(USAGE.into()) };
    let options = Options { pins: pins.into(), cgroup: cgroup.into(), node_netns: cookie_of(namespace.clone())? };
    let mut driver = Driver::install(&options)?;
    answer("{}")?;
    for line in std::io::stdin().lines() {
        answer(&driver.obey(&line?)?)?;
    }
    Ok(())
}

impl Driver {
    fn install(options: &Options) -> Result<Driver> {
        let node = Node { name: "node".into(), zone: None };
        let (maps, reconciler) = services::install(options, |mut maps| {
            let reconciler = Reconciler::new(node, &mut maps).map_err(|why| maps_error(&why))?;
            Ok((maps, reconciler))
        })?;
        Ok(Driver { maps, reconciler, state: State::default(), begun: Instant::now() })
    }

    fn obey(&mut self, line: &str) -> Result<String> {
        let begin = Instant::now();
        let changes = match line.split_once(' ') {
            Some(("put", file)) => objects(file)?.into_iter().map(Change::Put).collect(),
            Some(("all", file)) => vec![Change::All(objects(file)?)],
            _ => return Err(format!("'{line}' is neither put FILE nor all FILE").into()),
        };
        let read = begin.elapsed();
        self.apply(changes)?;
        let used = self.reconciler.used();
        Ok(format!(
            "{{\"read_s\":{:.6},\"apply_s\":{:.6},\"services\":{},\"backends\":{}}}",
            read.as_secs_f64(),
            (begin.elapsed() - read).as_secs_f64(),
            used.services,
            used.backends,
        ))
    }

    fn apply(&mut self, changes: Vec<Change>) -> Result<()> {
        let now = u64::try_from(self.begun.elapsed().as_nanos())?;
        self.reconciler.tidy(&mut self.maps, now)?;
        let names = changes.into_iter().flat_map(|change| self.state.apply(change)).collect();
        self.reconciler.apply(&self.state, names, &mut self.maps, now)?;
        match self.reconciler.problems().next() {
            Some((name, problem)) => Err(format!("{name}: {problem:?}").into()),
            None => Ok(()),
        }
    }
}

fn objects(file: &str) -> Result<Vec<sidestep_mesh::object::Object>> {
    let text = fs::read_to_string(file).map_err(|why| format!("{file}: {why}"))?;
    yaml::parse(&text).map_err(|wrong| format!("{file}: {wrong}").into())
}

fn maps_error(why: &std::io::Error) -> sidestep_ebpf::error::Error {
    sidestep_ebpf::error::Error::new("read the maps".to_string(), why.to_string())
}

/// Asked by a thread that goes there: this process stays where it is.
fn cookie_of(namespace: String) -> Result<u64> {
    let there = std::thread::spawn(move || {
        let file = File::open(&namespace)?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        sidestep_ebpf::netns::cookie()
    });
    Ok(there.join().expect("the thread does not panic")?)
}

fn answer(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
