//! A set-up with every template filled in: what is started, where, and with what.
//!
//! Cells whose set-ups are the same share one that stands; the load alone may differ.

use super::cgroup::Cgroup;
use super::command::Cmd;
use super::namespaces;
use super::ready::Ready;
use crate::ground::Ground;
use crate::load::Job;
use crate::scenario::{
    Capture, Check, LOAD, Load, NODE, Process, Ready as Wanted, Rings, Scenario, Scope, Setup, Splice, Text, Values,
    Variant,
};
use indexmap::IndexMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// `node` is the first.
    pub namespaces: Vec<String>,
    pub files: IndexMap<String, String>,
    pub rules: Vec<RulesSpec>,
    pub processes: IndexMap<String, ProcessSpec>,
    pub setup: Vec<Cmd>,
    pub checks: Vec<Cmd>,
    pub load: LoadSpec,
    pub rings: bool,
    pub captures: Vec<CaptureSpec>,
    pub splices: Vec<SpliceSpec>,
    pub agent: Option<AgentSpec>,
    pub place: Place,
}

/// Where it all is.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub dir: PathBuf,
    pub prefix: String,
    pub cgroup: Option<PathBuf>,
}

impl Place {
    /// The broker's socket.
    fn broker(&self) -> PathBuf {
        self.dir.join("broker")
    }

    /// Each process under `sidestep run` adds a line at its end.
    fn report(&self) -> PathBuf {
        self.dir.join("report.jsonl")
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProcessSpec {
    pub command: Cmd,
    /// Its path, without what stands before it.
    pub program: String,
    pub ready: Ready,
    pub background: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RulesSpec {
    pub namespace: String,
    pub command: String,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CaptureSpec {
    pub namespace: String,
    pub options: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SpliceSpec {
    pub namespace: Option<String>,
    pub ports: Vec<String>,
    pub options: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AgentSpec {
    pub objects: String,
    pub captures: Vec<CaptureSpec>,
    pub options: Vec<String>,
}

/// The load of a cell. Its measurement and warm-up are two jobs of it.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadSpec {
    /// Without the words of the tool.
    pub command: Cmd,
    pub job: Job,
    pub warmup: f64,
}

impl Spec {
    pub fn fill(
        ground: &Ground,
        scenario: &Scenario,
        (name, variant): (&str, &Variant),
        cell: &Values,
        dir: &Path,
        prefix: &str,
        cgroup: Option<&Cgroup>,
    ) -> Result<Spec, String> {
        let place = Place { dir: dir.into(), prefix: prefix.into(), cgroup: cgroup.map(|each| each.path().into()) };
        let scope = scope(ground, scenario, variant, cell, &place);
        let filler = Filler { scope, place, variant, ground };
        let at = |what: &str, why: String| format!("{what}, variant {name}: {why}");
        let processes = scenario.processes.iter().filter(|(_, process)| process.when.holds(name, cell));
        let processes: Result<_, String> = processes
            .map(|(key, process)| Ok((key.clone(), filler.process(key, process).map_err(|why| at(key, why))?)))
            .collect();
        Ok(Spec {
            namespaces: [NODE.to_string()].into_iter().chain(scenario.namespaces.iter().cloned()).collect(),
            files: filler.map(&scenario.files).map_err(|why| at("files", why))?,
            rules: variant
                .iptables
                .iter()
                .map(|each| filler.rules(each))
                .collect::<Result<_, _>>()
                .map_err(|why| at("iptables", why))?,
            processes: processes?,
            setup: filler.setup(&scenario.setup).map_err(|why| at("setup", why))?,
            checks: filler.checks(scenario, name, cell).map_err(|why| at("checks", why))?,
            load: filler.load(&scenario.load).map_err(|why| at("load", why))?,
            rings: variant.rings.is_some(),
            captures: filler.captures(&variant.capture).map_err(|why| at("capture", why))?,
            splices: variant
                .splice
                .iter()
                .map(|each| filler.splice(each))
                .collect::<Result<_, _>>()
                .map_err(|why| at("splice", why))?,
            agent: filler.agent().map_err(|why| at("agent", why))?,
            place: filler.place,
        })
    }

    /// The same place with what another cell would have there.
    pub fn refill(
        &self,
        ground: &Ground,
        scenario: &Scenario,
        variant: (&str, &Variant),
        cell: &Values,
    ) -> Result<Spec, String> {
        let cgroup = self.place.cgroup.as_deref().map(Cgroup::at);
        Spec::fill(ground, scenario, variant, cell, &self.place.dir, &self.place.prefix, cgroup.as_ref())
    }

    /// Name and path of all programs that the scenario names.
    pub fn programs(&self) -> Vec<(String, String)> {
        self.processes.iter().map(|(name, each)| (name.clone(), each.program.clone())).collect()
    }

    /// Whether one that stands will do for the other's cell, if the other's load is put in its place.
    pub fn same_setup(&self, other: &Spec) -> bool {
        Spec { load: other.load.clone(), ..self.clone() } == *other
    }

    /// Everything that has a cgroup of its own, but for Sidestep's daemons.
    pub fn cgroups(&self) -> impl Iterator<Item = &Path> {
        let commands = self.processes.values().map(|each| &each.command).chain([&self.load.command]);
        commands.filter_map(|command| command.cgroup.as_deref())
    }

    /// Users of processes: who may share memory.
    pub fn users(&self) -> Vec<u32> {
        let commands = self.processes.values().map(|each| &each.command).chain([&self.load.command]);
        let mut users: Vec<u32> = commands.filter_map(|command| command.user.map(|user| user.uid)).collect();
        users.sort_unstable();
        users.dedup();
        users
    }

    pub fn broker(&self) -> PathBuf {
        self.place.broker()
    }

    pub fn report(&self) -> PathBuf {
        self.place.report()
    }
}

/// Names of Sidestep's own daemons.
pub const BROKER: &str = "sidestepd";
pub const AGENT: &str = "sidestep-agent";

/// What templates may name wherever they are: the lab's places, and values of the scenario.
pub fn base_scope(ground: &Ground, scenario: &Scenario) -> Scope {
    let mut scope = Scope::default();
    scope.set("shared", ground.shared().display().to_string());
    for (name, path) in ground.programs() {
        scope.set(name, path);
    }
    scope.set("node.address", "127.0.0.1");
    for (number, name) in scenario.namespaces.iter().enumerate() {
        scope.set(format!("{name}.address"), namespaces::address(number + 1));
    }
    scope.layer(&scenario.values);
    scope
}

/// ... and of the variant, and of the cell.
fn scope(ground: &Ground, scenario: &Scenario, variant: &Variant, cell: &Values, place: &Place) -> Scope {
    let mut scope = base_scope(ground, scenario);
    scope.set("dir", place.dir.display().to_string());
    scope.layer(&variant.values);
    for (axis, value) in cell {
        scope.set(axis, value);
    }
    scope
}

struct Filler<'a> {
    scope: Scope,
    place: Place,
    variant: &'a Variant,
    ground: &'a Ground,
}

impl Filler<'_> {
    fn one(&self, text: &Text) -> Result<String, String> {
        text.fill(&self.scope)
    }

    fn all(&self, texts: &[Text]) -> Result<Vec<String>, String> {
        texts.iter().map(|text| self.one(text)).collect()
    }

    fn map(&self, texts: &IndexMap<String, Text>) -> Result<IndexMap<String, String>, String> {
        texts.iter().map(|(name, text)| Ok((name.clone(), self.one(text)?))).collect()
    }

    fn option(&self, text: &Option<Text>) -> Result<Option<String>, String> {
        text.as_ref().map(|text| self.one(text)).transpose()
    }

    fn number<T: std::str::FromStr>(&self, what: &str, text: &Text) -> Result<T, String> {
        let text = self.one(text)?;
        text.parse().map_err(|_| format!("{what}: '{text}' is not such a number"))
    }

    /// None for nothing, and for 0.
    fn some_number<T: std::str::FromStr + PartialEq + Default>(
        &self,
        what: &str,
        text: &Option<Text>,
    ) -> Result<Option<T>, String> {
        let number = text.as_ref().map(|text| self.number(what, text)).transpose()?;
        Ok(number.filter(|value| *value != T::default()))
    }

    fn namespace(&self, name: Option<&str>) -> String {
        format!("{}-{}", self.place.prefix, name.unwrap_or(NODE))
    }

    /// Of what disturbs on purpose: no part of the set-up's whole.
    fn beside(&self, name: &str) -> Option<PathBuf> {
        self.place.cgroup.as_ref().map(|all| all.with_file_name(format!("{}-{name}", self.place.prefix)))
    }

    fn cgroup(&self, name: &str) -> Option<PathBuf> {
        self.place.cgroup.as_ref().map(|all| all.join(name))
    }

    fn process(&self, name: &str, process: &Process) -> Result<ProcessSpec, String> {
        let argv = self.ground.resolve(self.all(&process.run)?)?;
        let program = argv[0].clone();
        let command = Cmd {
            name: name.into(),
            argv: [self.prefix(name)?, argv].concat(),
            env: self.environment(&process.env)?,
            namespace: Some(self.namespace(process.namespace.as_deref())),
            cgroup: if process.background { self.beside(name) } else { self.cgroup(name) },
            user: process.user,
            cpus: self.option(&process.cpus)?,
        };
        let ready = self.ready(&process.ready)?;
        Ok(ProcessSpec { command, program, ready, background: process.background })
    }

    fn ready(&self, wanted: &Wanted) -> Result<Ready, String> {
        let seconds = wanted.seconds.as_ref().map(|text| self.number("ready.seconds", text)).transpose()?;
        Ok(Ready {
            port: wanted.port.as_ref().map(|text| self.number("ready.port", text)).transpose()?,
            path: self.option(&wanted.path)?.map(PathBuf::from),
            limit: seconds.map_or(Ready::default().limit, Duration::from_secs_f64),
        })
    }

    /// What the variant puts before a program.
    fn prefix(&self, name: &str) -> Result<Vec<String>, String> {
        let rings = self
            .variant
            .rings
            .as_ref()
            .filter(|rings| rings.only.is_empty() || rings.only.iter().any(|each| each == name));
        let rings = rings.map(|rings| self.run(rings)).transpose()?.unwrap_or_default();
        Ok([self.all(&self.variant.prefix)?, rings].concat())
    }

    fn run(&self, rings: &Rings) -> Result<Vec<String>, String> {
        let report = self.place.report().display().to_string();
        let words = [self.ground.sidestep()?, "run".into(), "--report".into(), report];
        Ok([words.to_vec(), self.all(&rings.options)?, vec!["--".into()]].concat())
    }

    fn environment(&self, own: &IndexMap<String, Text>) -> Result<IndexMap<String, String>, String> {
        let mut environment = self.map(&self.variant.env)?;
        if self.variant.rings.is_some() {
            environment.insert("SIDESTEP_BROKER".into(), self.place.broker().display().to_string());
        }
        environment.extend(self.map(own)?);
        Ok(environment)
    }

    fn rules(&self, rules: &crate::scenario::Iptables) -> Result<RulesSpec, String> {
        let mut scope = self.scope.clone();
        if let Some(fill) = &rules.fill {
            scope.set("fill", super::rules::fill(&fill.chain, self.number("fill.count", &fill.count)?));
        }
        Ok(RulesSpec {
            namespace: self.namespace(rules.namespace.as_deref()),
            command: super::rules::restore(rules.backend.as_deref())?,
            text: rules.rules.fill(&scope)?,
        })
    }

    fn captures(&self, captures: &[Capture]) -> Result<Vec<CaptureSpec>, String> {
        let one = |each: &Capture| {
            Ok(CaptureSpec { namespace: self.namespace(Some(&each.namespace)), options: self.all(&each.options)? })
        };
        captures.iter().map(one).collect()
    }

    fn splice(&self, splice: &Splice) -> Result<SpliceSpec, String> {
        Ok(SpliceSpec {
            namespace: splice.namespace.as_deref().map(|name| self.namespace(Some(name))),
            ports: self.all(&splice.ports)?,
            options: self.all(&splice.options)?,
        })
    }

    fn agent(&self) -> Result<Option<AgentSpec>, String> {
        let one = |agent: &crate::scenario::Agent| {
            Ok(AgentSpec {
                objects: self.one(&agent.objects)?,
                captures: self.captures(&agent.capture)?,
                options: self.all(&agent.options)?,
            })
        };
        self.variant.agent.as_ref().map(one).transpose()
    }

    fn setup(&self, common: &[Setup]) -> Result<Vec<Cmd>, String> {
        let all = common.iter().chain(&self.variant.setup).enumerate();
        all.map(|(number, each)| self.step(format!("setup {}", number + 1), &each.run, each.namespace.as_deref()))
            .collect()
    }

    /// They run as the load does: as another client.
    fn checks(&self, scenario: &Scenario, variant: &str, cell: &Values) -> Result<Vec<Cmd>, String> {
        let those = scenario.checks.iter().enumerate().filter(|(_, each)| each.when.holds(variant, cell));
        those.map(|(number, check)| self.check(number, check, &scenario.load)).collect()
    }

    fn check(&self, number: usize, check: &Check, load: &Load) -> Result<Cmd, String> {
        let mut command = self.load(load)?.command;
        command.name = format!("check {}", number + 1);
        command.argv.extend(self.ground.resolve(self.all(&check.run)?)?);
        Ok(command)
    }

    /// A command that runs to its end.
    fn step(&self, name: String, run: &[Text], namespace: Option<&str>) -> Result<Cmd, String> {
        Ok(Cmd {
            name,
            argv: self.ground.resolve(self.all(run)?)?,
            env: self.map(&self.variant.env)?,
            namespace: Some(self.namespace(namespace)),
            ..Cmd::default()
        })
    }

    fn load(&self, load: &Load) -> Result<LoadSpec, String> {
        let command = Cmd {
            name: LOAD.into(),
            argv: self.prefix(LOAD)?,
            env: self.environment(&load.env)?,
            namespace: Some(self.namespace(load.namespace.as_deref())),
            cgroup: self.cgroup(LOAD),
            user: load.user,
            cpus: self.option(&load.cpus)?,
        };
        let job = Job {
            tool: load.tool,
            target: self.one(&load.target)?,
            connections: self.number("connections", &load.connections)?,
            threads: self.number("threads", &load.threads)?,
            rate: self.some_number("rate", &load.rate)?,
            seconds: self.number("seconds", &load.seconds)?,
            body: self.some_number("body", &load.body)?,
            requests: self.some_number("requests", &load.requests)?,
            options: self.all(&load.options)?,
            command: self.all(&load.command)?,
            folder: self.place.dir.join("load"),
        };
        Ok(LoadSpec { command, job, warmup: self.number("warmup", &load.warmup)? })
    }
}
