//! The experiment: each round has every cell, and each cell every contestant once, in random order.

mod leave_out;
mod profile;
mod retire;

use super::blank::blank;
use super::budget::Budget;
use super::contestant::{Contestant, contestants};
use super::error::{PrepareError, RunError, TrialError, WrongError};
use super::order::Order;
use super::progress::Progress;
use super::sound::sound;
use super::stop::Stop;
use super::{needs, notes, trial, versions};
use crate::context::RunContext;
use crate::environment::{Cmd, Environment, EnvironmentError, Place, Spec, SpecError, run};
use crate::error::{AtPath, FileError};
use crate::meter::{Calm, why_no_calls};
use crate::result::{Ended, Run, Trial, Usage};
use crate::scenario::{LOAD, Restart, Scenario, Text, Values};
use crate::stats::{Comparison, Rule, compare, half_width};
use indexmap::IndexMap;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::time::{Duration, Instant};

/// After so many failures in a row in a cell a contestant no longer takes part in the cell.
const GIVEN_UP: u32 = 3;
/// Repeated trials may be at most [`REPEATED_ANYWAY`] plus this part of all trials: on a machine that is always busy repeating
/// disturbed trials would not help.
const REPEATED: f64 = 0.2;
const REPEATED_ANYWAY: f64 = 3.0;

pub struct Experiment<'a> {
    order: &'a Order,
    context: &'a RunContext,
    stop: Stop,
    contestants: Vec<Contestant>,
    cells: Vec<Values>,
    result: Run,
    /// Set-ups that exist, with their contestants.
    standing: Vec<(usize, Environment)>,
    /// (cell, contestant) -> failures in a row.
    failures: IndexMap<(usize, usize), u32>,
    random: ChaCha8Rng,
    progress: Progress,
    begun: Instant,
    budget: Budget,
}

impl<'a> Experiment<'a> {
    pub fn new(order: &'a Order, context: &'a RunContext, stop: Stop) -> Result<Experiment<'a>, WrongError> {
        let scenario = &order.scenario;
        let cells = scenario.cells();
        let absent = needs::unmet(context, scenario)?;
        let mut experiment = Experiment {
            result: blank(order, &cells),
            contestants: contestants(scenario, &absent),
            cells,
            standing: Vec::new(),
            failures: IndexMap::new(),
            random: ChaCha8Rng::seed_from_u64(order.seed),
            progress: Progress::new(limit(scenario)),
            begun: Instant::now(),
            budget: Budget::default(),
            order,
            context,
            stop,
        };
        experiment.result.notes.extend(absent.iter().map(|(name, why)| format!("{name} takes no part: {why}")));
        experiment.check()?;
        experiment.result.variants = experiment.contestants.iter().map(Contestant::as_result).collect();
        for (cell, values) in experiment.result.cells.iter_mut().zip(&experiment.cells) {
            let those = experiment.contestants.iter().filter(|each| each.definition.takes_part_in(values));
            cell.variants = those.map(|each| each.name.clone()).collect();
        }
        Ok(experiment)
    }

    fn scenario(&self) -> &'a Scenario {
        &self.order.scenario
    }

    /// Runs the scenario's `prepare` commands.
    fn prepare(&self) -> Result<(), RunError> {
        for (number, command) in self.scenario().prepare.iter().enumerate() {
            let argv = self.preparing(command)?;
            run(&Cmd { name: format!("prepare {}", number + 1), argv, ..Cmd::default() }, None)?;
        }
        Ok(())
    }

    fn preparing(&self, command: &[Text]) -> Result<Vec<String>, PrepareError> {
        let scope = crate::environment::base_scope(self.context, self.scenario());
        let argv: Result<Vec<String>, _> = command.iter().map(|word| word.fill(&scope)).collect();
        Ok(self.context.resolve(argv?)?)
    }

    /// Checks everything that can be checked before anything is started.
    fn check(&mut self) -> Result<(), WrongError> {
        let mut programs = IndexMap::new();
        for contestant in &self.contestants {
            for cell in self.cells.iter().filter(|cell| contestant.definition.takes_part_in(cell)) {
                let spec = self.spec(contestant, cell)?;
                let job = &spec.load.job;
                job.tool.check(job)?;
                let load = self.context.resolve(vec![job.tool.program(job).into()])?;
                programs.entry(LOAD.to_string()).or_insert_with(|| load[0].clone());
                for (name, path) in spec.programs() {
                    programs.entry(name).or_insert(path);
                }
            }
        }
        if self.order.profile {
            crate::profile::allowed()?;
        }
        let tool = self.scenario().load.tool;
        self.result.notes.extend(tool.limits().notes.iter().map(|note| note.to_string()));
        self.result.notes.extend(why_no_calls().map(|error| error.to_string()));
        self.result.programs = programs.into_iter().map(|(name, path)| (name, versions::detect(&path))).collect();
        Ok(())
    }

    /// The contestant's set-up, for checks only.
    fn spec(&self, contestant: &Contestant, cell: &Values) -> Result<Spec, SpecError> {
        let cgroup = self.context.cgroup().map(|all| all.path().into());
        let nowhere = Place { dir: self.context.shared(), prefix: "w".into(), cgroup };
        Spec::fill(self.context, self.scenario(), (&contestant.variant, &contestant.definition), cell, nowhere)
    }

    /// Runs to the end, or to the limit. The result is written after every round.
    pub fn run(mut self) -> Result<(), RunError> {
        self.prepare()?;
        let mut round = 0;
        self.result.ended = loop {
            if let Some(ended) = self.round(round) {
                break ended;
            }
            round += 1;
            self.save()?;
        };
        if self.order.profile {
            self.profile();
        }
        self.retire_all();
        let more = notes::of(&self.result);
        self.result.notes.extend(more);
        self.save()?;
        self.progress.end();
        if self.is_empty() { Err(RunError::Nothing) } else { Ok(()) }
    }

    fn is_empty(&self) -> bool {
        !self.result.cells.iter().flat_map(|cell| &cell.trials).any(Trial::counts)
    }

    /// Some: this was the last round.
    fn round(&mut self, round: u32) -> Option<Ended> {
        if let Restart::Rounds(rounds) = self.scenario().design.restart
            && round.is_multiple_of(rounds)
        {
            self.retire_all();
        }
        self.leave_out();
        let mut order: Vec<usize> = (0..self.cells.len()).filter(|cell| !self.enough(*cell)).collect();
        self.progress.widest(self.widest(&order));
        if order.is_empty() {
            return Some(Ended::Done);
        }
        order.shuffle(&mut self.random);
        for cell in order {
            let mut trials: Vec<usize> =
                (0..self.contestants.len()).filter(|who| self.takes_part(cell, *who)).collect();
            trials.shuffle(&mut self.random);
            for who in trials {
                if self.stop.asked() {
                    return Some(Ended::Interrupted);
                }
                if self.begun.elapsed() > limit(self.scenario()) {
                    return Some(Ended::TimeLimit);
                }
                self.trial(cell, who, round);
            }
        }
        None
    }

    fn takes_part(&self, cell: usize, who: usize) -> bool {
        let given_up = self.failures.get(&(cell, who)).is_some_and(|count| *count >= GIVEN_UP);
        !given_up && self.contestants[who].definition.takes_part_in(&self.cells[cell])
    }

    fn trial(&mut self, cell: usize, who: usize, round: u32) {
        let (name, title) = (self.contestants[who].name.clone(), self.result.cells[cell].title());
        self.progress.trial(round, &name, &title);
        let mut disturbed: Option<usize> = None;
        loop {
            let at = self.begun.elapsed().as_secs_f64();
            let measured = self.measure(cell, who);
            if self.stop.asked() && measured.is_err() {
                return;
            }
            let trial = self.as_trial(name.clone(), round, at, measured);
            self.count_failures((cell, who), &trial);
            let again = trial.disturbed.is_some() && self.may_repeat();
            let trials = &mut self.result.cells[cell].trials;
            if let Some(last) = disturbed.filter(|_| trial.outcome.is_some()) {
                trials[last].repeated = true;
            }
            trials.push(trial);
            disturbed = Some(trials.len() - 1);
            if self.scenario().design.restart == Restart::Trial {
                self.retire_all();
            }
            if !again {
                break;
            }
        }
    }

    fn may_repeat(&self) -> bool {
        let trials = || self.result.cells.iter().flat_map(|cell| &cell.trials);
        let repeated = trials().filter(|trial| trial.repeated).count() as f64;
        repeated < REPEATED_ANYWAY + REPEATED * trials().count() as f64 && !self.stop.asked()
    }

    fn measure(&mut self, cell: usize, who: usize) -> Result<trial::Measured, TrialError> {
        let (number, load) = self.stand(cell, who)?;
        let before = self.beside(number);
        let stood = &mut self.standing[number].1;
        let mut measured = trial::run(self.context, stood, &load, &self.stop);
        if let Ok(trial::Measured { usage: Usage { foreign: Some(foreign), .. }, .. }) = &mut measured {
            *foreign += (self.beside(number) - before).max(0.0);
        }
        if measured.is_err() {
            // The set-up may be broken, so the next trial gets a new one.
            let (_, gone) = self.standing.remove(number);
            let name = &self.contestants[who].name;
            if let Some(why) = gone.failed_check().map(|error| error.to_string()) {
                self.result.wrong.push(format!("{name}: {why}"));
                let line = why.split_whitespace().collect::<Vec<_>>().join(" ");
                self.result.notes.push(format!("{name} does not do what it should: {line}"));
            }
        }
        measured
    }

    /// Seconds of CPU of the other set-ups, which should be idle.
    fn beside(&self, number: usize) -> f64 {
        let others = self.standing.iter().enumerate().filter(|(other, _)| *other != number);
        others.map(|(_, (_, environment))| environment.cpu()).sum()
    }

    /// The contestant's set-up for the cell, an existing or a new one, and the cell's load.
    fn stand(&mut self, cell: usize, who: usize) -> Result<(usize, crate::environment::LoadSpec), EnvironmentError> {
        let (contestant, values) = (&self.contestants[who], &self.cells[cell]);
        let variant = (contestant.variant.as_str(), &contestant.definition);
        for (number, (owner, environment)) in self.standing.iter().enumerate() {
            let spec = Spec::fill(self.context, self.scenario(), variant, values, environment.spec.place.clone())?;
            if *owner == who && environment.spec.same_setup(&spec) {
                return Ok((number, spec.load));
            }
        }
        let environment = Environment::start(self.context, self.scenario(), variant, values)?;
        let load = environment.spec.load.clone();
        self.standing.push((who, environment));
        Ok((self.standing.len() - 1, load))
    }

    fn as_trial(&self, variant: String, round: u32, at: f64, measured: Result<trial::Measured, TrialError>) -> Trial {
        let blank = Trial {
            variant,
            round,
            at,
            outcome: None,
            failure: None,
            usage: Usage::default(),
            moved: IndexMap::new(),
            noted: Vec::new(),
            disturbed: None,
            repeated: false,
        };
        let design = &self.scenario().design;
        match measured {
            Err(failure) => Trial { failure: Some(failure.to_string()), ..blank },
            Ok(trial::Measured { outcome, usage, moved, noted }) => {
                let outcome = outcome.and_then(|outcome| sound(outcome, design.errors, usage.seconds));
                let calm = Calm { steal: design.steal, foreign: design.foreign };
                Trial {
                    disturbed: calm.disturbance(&usage, self.result.machine.cores),
                    failure: outcome.as_ref().err().map(TrialError::to_string),
                    outcome: outcome.ok(),
                    usage,
                    moved,
                    noted,
                    ..blank
                }
            }
        }
    }

    fn count_failures(&mut self, place: (usize, usize), trial: &Trial) {
        let count = self.failures.entry(place).or_default();
        *count = if trial.outcome.is_some() { 0 } else { *count + 1 };
        let Some(why) = &trial.failure else { return };
        let who = notes::with_cell(&trial.variant, &self.result.cells[place.0]);
        self.progress.say(&format!("{who}: {why}"));
        if *count == GIVEN_UP {
            let note = format!("{who} was given up after {GIVEN_UP} failures in a row: {why}");
            self.result.notes.push(note);
        }
    }

    /// Whether a cell needs no further round.
    fn enough(&self, cell: usize) -> bool {
        let design = &self.scenario().design;
        let rounds = self.result.cells[cell].trials.iter().map(|trial| trial.round + 1).max().unwrap_or(0);
        let rule = Rule {
            precision: design.precision,
            confidence: design.confidence,
            least_rounds: design.least_rounds as usize,
            most_rounds: design.most_rounds as usize,
        };
        let comparisons = self.comparisons(cell);
        // The baseline or all others were given up, or no judged figure is available: more rounds would not help.
        let nothing = rounds >= design.least_rounds && comparisons.is_empty();
        rounds >= design.most_rounds || nothing || !self.has_pair(cell) || rule.enough(&comparisons)
    }

    fn has_pair(&self, cell: usize) -> bool {
        let left: Vec<usize> = (0..self.contestants.len()).filter(|who| self.takes_part(cell, *who)).collect();
        left.len() > 1 && left.iter().any(|who| self.contestants[*who].baseline)
    }

    /// Comparisons of all contestants with the baseline, for the judged figures.
    fn comparisons(&self, cell: usize) -> Vec<Comparison> {
        let design = &self.scenario().design;
        let cell = &self.result.cells[cell];
        let others = self.contestants.iter().filter(|each| !each.baseline);
        let pairs = others.flat_map(|each| design.judge.iter().map(move |figure| (each, *figure)));
        let one = |(other, figure): (&Contestant, crate::result::Figure)| {
            let (own, base) = (cell.values_of(&other.name, figure), cell.values_of(&self.scenario().baseline, figure));
            compare(&own, &base, figure.better(), design.confidence)
        };
        pairs.filter_map(one).collect()
    }

    /// The largest half-width of an interval in these cells.
    fn widest(&self, open: &[usize]) -> Option<f64> {
        let comparisons = open.iter().flat_map(|cell| self.comparisons(*cell));
        comparisons.filter_map(|each| half_width(&each)).reduce(f64::max)
    }

    fn save(&mut self) -> Result<(), FileError> {
        if self.is_empty() {
            // Keep the older result on an error.
            return Ok(());
        }
        self.result.seconds = self.begun.elapsed().as_secs_f64();
        crate::result::write(&self.order.out, &self.result).at("write", &self.order.out)
    }
}

fn limit(scenario: &Scenario) -> Duration {
    Duration::try_from(scenario.design.limit).unwrap_or_default()
}
