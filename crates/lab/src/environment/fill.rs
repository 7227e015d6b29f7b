//! Fills in all templates: from a scenario to the set-up of one variant in one cell.

use super::command::{Cmd, NETNS};
use super::error::{FillError, SpecError};
use super::namespaces;
use super::ready::Ready;
use super::rules;
use super::spec::{
    AgentSpec, BROKER, BrokerSpec, CaptureSpec, CheckSpec, LoadSpec, Place, ProcessSpec, RulesSpec, SIDESTEP, Spec,
    SpliceSpec,
};
use crate::context::RunContext;
use crate::load::Job;
use crate::scenario::{
    Agent, Capture, Check, Iptables, LOAD, Load, NODE, Process, Ready as Wanted, Rings, Scenario, Scope, Setup, Splice,
    Text, Values, Variant,
};
use indexmap::IndexMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

impl Spec {
    /// The set-up of a variant in a cell, in that directory. The error names the field of the scenario.
    pub fn fill(
        context: &RunContext,
        scenario: &Scenario,
        (name, variant): (&str, &Variant),
        cell: &Values,
        place: Place,
    ) -> Result<Spec, SpecError> {
        let scope = scope(context, scenario, variant, cell, &place);
        let filler = Filler { scope, place, variant, context };
        let at = |field: &str, source| SpecError { field: field.into(), variant: name.into(), source };
        let processes = scenario.processes.iter().filter(|(_, process)| process.when.holds(name, cell));
        let processes: Result<_, SpecError> = processes
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
            load: LoadSpec {
                checks: filler.checks(scenario, name, cell).map_err(|why| at("checks", why))?,
                ..filler.load(&scenario.load).map_err(|why| at("load", why))?
            },
            broker: filler.broker().map_err(|why| at("rings", why))?,
            load_rings: filler.rings(LOAD).is_some(),
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
}

/// The names that all templates can use: the lab's directories and programs, and values of the scenario.
pub fn base_scope(context: &RunContext, scenario: &Scenario) -> Scope {
    let mut scope = Scope::default();
    scope.set("shared", context.shared().display().to_string());
    for (name, path) in context.programs() {
        scope.set(name, path);
    }
    scope.set("node.address", "127.0.0.1");
    for (number, name) in scenario.namespaces.iter().enumerate() {
        scope.set(format!("{name}.address"), namespaces::address(number + 1));
    }
    scope.layer(&scenario.values);
    scope
}

/// These, and the names of the variant and the cell.
fn scope(context: &RunContext, scenario: &Scenario, variant: &Variant, cell: &Values, place: &Place) -> Scope {
    let mut scope = base_scope(context, scenario);
    scope.set("dir", place.dir.display().to_string());
    scope.set("pins", super::sidestep::pins(context, place).display().to_string());
    if let Some(cgroup) = &place.cgroup {
        scope.set("cgroup", cgroup.display().to_string());
    }
    for name in [NODE].into_iter().chain(scenario.namespaces.iter().map(String::as_str)) {
        scope.set(format!("{name}.netns"), format!("{NETNS}/{}-{name}", place.prefix));
    }
    scope.layer(&variant.values);
    for (axis, value) in cell {
        scope.set(axis, value);
    }
    scope
}

/// One day in seconds.
const LONGEST: f64 = 86_400.0;

struct Filler<'a> {
    scope: Scope,
    place: Place,
    variant: &'a Variant,
    context: &'a RunContext,
}

impl Filler<'_> {
    fn one(&self, text: &Text) -> Result<String, FillError> {
        Ok(text.fill(&self.scope)?)
    }

    fn all(&self, texts: &[Text]) -> Result<Vec<String>, FillError> {
        texts.iter().map(|text| self.one(text)).collect()
    }

    fn map(&self, texts: &IndexMap<String, Text>) -> Result<IndexMap<String, String>, FillError> {
        texts.iter().map(|(name, text)| Ok((name.clone(), self.one(text)?))).collect()
    }

    fn option(&self, text: &Option<Text>) -> Result<Option<String>, FillError> {
        text.as_ref().map(|text| self.one(text)).transpose()
    }

    fn number<T: std::str::FromStr>(&self, field: &str, text: &Text) -> Result<T, FillError> {
        let text = self.one(text)?;
        text.parse().map_err(|_| FillError::NotANumber { field: field.into(), text })
    }

    /// A duration in seconds.
    fn duration(&self, field: &str, text: &Text) -> Result<f64, FillError> {
        let seconds: f64 = self.number(field, text)?;
        if (0.0..=LONGEST).contains(&seconds) {
            Ok(seconds)
        } else {
            Err(FillError::NotADuration { field: field.into(), seconds })
        }
    }

    /// None if it is absent or 0.
    fn some_number<T: std::str::FromStr + PartialEq + Default>(
        &self,
        field: &str,
        text: &Option<Text>,
    ) -> Result<Option<T>, FillError> {
        let number = text.as_ref().map(|text| self.number(field, text)).transpose()?;
        Ok(number.filter(|value| *value != T::default()))
    }

    fn namespace(&self, name: Option<&str>) -> String {
        format!("{}-{}", self.place.prefix, name.unwrap_or(NODE))
    }

    /// The cgroup of a background process, which is outside the set-up's own.
    fn beside(&self, name: &str) -> Option<PathBuf> {
        self.place.cgroup.as_ref().map(|all| all.with_file_name(format!("{}-{name}", self.place.prefix)))
    }

    fn cgroup(&self, name: &str) -> Option<PathBuf> {
        self.place.cgroup.as_ref().map(|all| all.join(name))
    }

    fn process(&self, name: &str, process: &Process) -> Result<ProcessSpec, FillError> {
        let argv = self.context.resolve(self.all(&process.run)?)?;
        let program = argv[0].clone();
        let command = Cmd {
            name: name.into(),
            argv: [self.prefix(name)?, argv].concat(),
            env: self.env(&process.env)?,
            namespace: Some(self.namespace(process.namespace.as_deref())),
            cgroup: if process.background { self.beside(name) } else { self.cgroup(name) },
            user: process.user,
            cpus: self.option(&process.cpus)?,
        };
        let ready = self.ready(&process.ready)?;
        Ok(ProcessSpec { command, program, ready, background: process.background })
    }

    fn ready(&self, wanted: &Wanted) -> Result<Ready, FillError> {
        let seconds = wanted.seconds.as_ref().map(|text| self.duration("ready.seconds", text)).transpose()?;
        Ok(Ready {
            port: wanted.port.as_ref().map(|text| self.number("ready.port", text)).transpose()?,
            path: self.option(&wanted.path)?.map(PathBuf::from),
            limit: seconds.map_or(Ready::default().limit, Duration::from_secs_f64),
        })
    }

    /// The words that the variant puts before a program.
    fn prefix(&self, name: &str) -> Result<Vec<String>, FillError> {
        let rings = self.rings(name).map(|rings| self.run(rings)).transpose()?.unwrap_or_default();
        Ok([self.all(&self.variant.prefix)?, rings].concat())
    }

    /// The settings for rings, if the program is to use rings.
    fn rings(&self, name: &str) -> Option<&Rings> {
        self.variant.rings.as_ref().filter(|rings| rings.only.is_empty() || rings.only.iter().any(|each| each == name))
    }

    fn run(&self, rings: &Rings) -> Result<Vec<String>, FillError> {
        let report = self.place.report().display().to_string();
        let words = [self.released(rings, SIDESTEP)?, "run".into(), "--report".into(), report];
        Ok([words.to_vec(), self.all(&rings.options)?, vec!["--".into()]].concat())
    }

    fn broker(&self) -> Result<Option<BrokerSpec>, FillError> {
        let one = |rings: &Rings| {
            Ok(BrokerSpec { program: self.released(rings, BROKER)?, settings: self.one(&rings.broker)? })
        };
        self.variant.rings.as_ref().map(one).transpose()
    }

    /// The path of a program of the measured release.
    fn released(&self, rings: &Rings, program: &str) -> Result<String, FillError> {
        let Some(release) = self.option(&rings.release)? else {
            return Ok(self.context.part(program)?);
        };
        let path = Path::new(&release).join(program);
        let found = path.is_absolute() && path.is_file();
        if found { Ok(path.display().to_string()) } else { Err(FillError::NoRelease(path)) }
    }

    fn env(&self, own: &IndexMap<String, Text>) -> Result<IndexMap<String, String>, FillError> {
        let mut env = self.map(&self.variant.env)?;
        if self.variant.rings.is_some() {
            env.insert("SIDESTEP_BROKER".into(), self.place.broker().display().to_string());
        }
        env.extend(self.map(own)?);
        Ok(env)
    }

    fn rules(&self, rules: &Iptables) -> Result<RulesSpec, FillError> {
        let mut scope = self.scope.clone();
        if let Some(fill) = &rules.fill {
            scope.set("fill", rules::fill(&self.one(&fill.chain)?, self.number("fill.count", &fill.count)?));
        }
        Ok(RulesSpec {
            namespace: self.namespace(rules.namespace.as_deref()),
            command: rules::restore(rules.backend.as_deref())?,
            text: rules.rules.fill(&scope)?,
        })
    }

    fn captures(&self, captures: &[Capture]) -> Result<Vec<CaptureSpec>, FillError> {
        let one = |each: &Capture| {
            Ok(CaptureSpec { namespace: self.namespace(Some(&each.namespace)), options: self.all(&each.options)? })
        };
        captures.iter().map(one).collect()
    }

    fn splice(&self, splice: &Splice) -> Result<SpliceSpec, FillError> {
        Ok(SpliceSpec {
            namespace: splice.namespace.as_deref().map(|name| self.namespace(Some(name))),
            ports: self.all(&splice.ports)?,
            options: self.all(&splice.options)?,
        })
    }

    fn agent(&self) -> Result<Option<AgentSpec>, FillError> {
        let one = |agent: &Agent| {
            Ok(AgentSpec {
                objects: self.one(&agent.objects)?,
                captures: self.captures(&agent.capture)?,
                options: self.all(&agent.options)?,
            })
        };
        self.variant.agent.as_ref().map(one).transpose()
    }

    fn setup(&self, common: &[Setup]) -> Result<Vec<Cmd>, FillError> {
        let all = common.iter().chain(&self.variant.setup).enumerate();
        all.map(|(number, each)| self.step(format!("setup {}", number + 1), &each.run, each.namespace.as_deref()))
            .collect()
    }

    /// Checks run in the surroundings of the load, as another client.
    fn checks(&self, scenario: &Scenario, variant: &str, cell: &Values) -> Result<Vec<CheckSpec>, FillError> {
        let those = scenario.checks.iter().enumerate().filter(|(_, each)| each.when.holds(variant, cell));
        let one = |(number, check): (usize, &Check)| match check.moved.as_slice() {
            [] => self.check(number, check, &scenario.load),
            ways => Ok(CheckSpec::Moved(ways.to_vec())),
        };
        those.map(one).collect()
    }

    fn check(&self, number: usize, check: &Check, load: &Load) -> Result<CheckSpec, FillError> {
        let mut command = self.load(load)?.command;
        command.name = format!("check {}", number + 1);
        command.argv.extend(self.context.resolve(self.all(&check.run)?)?);
        Ok(CheckSpec::Run { command, is_noted: check.noted })
    }

    /// A command that ends by itself.
    fn step(&self, name: String, run: &[Text], namespace: Option<&str>) -> Result<Cmd, FillError> {
        Ok(Cmd {
            name,
            argv: self.context.resolve(self.all(run)?)?,
            env: self.map(&self.variant.env)?,
            namespace: Some(self.namespace(namespace)),
            ..Cmd::default()
        })
    }

    fn load(&self, load: &Load) -> Result<LoadSpec, FillError> {
        let command = Cmd {
            name: LOAD.into(),
            argv: self.prefix(LOAD)?,
            env: self.env(&load.env)?,
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
            seconds: self.duration("seconds", &load.seconds)?,
            body: self.some_number("body", &load.body)?,
            requests: self.some_number("requests", &load.requests)?,
            options: self.all(&load.options)?,
            command: self.all(&load.command)?,
            folder: self.place.dir.join("load"),
        };
        let warmup = self.duration("warmup", &load.warmup)?;
        let patience = self.duration("patience", &load.patience)?;
        Ok(LoadSpec { command, job, warmup, patience, checks: Vec::new() })
    }
}
