//! Differences between the surroundings of two runs, which may also explain a difference of figures.

use crate::report::units;
use crate::result::{Machine, Run};

/// Cells and variants of `one` that `other` lacks.
pub fn only(one: &Run, other: &Run) -> Vec<String> {
    let missing = |name: &&str| !other.variants.iter().any(|variant| variant.name == **name);
    let variants = one.variants.iter().map(|variant| variant.name.as_str()).filter(missing);
    let cells = one.cells.iter().filter(|cell| !other.cells.iter().any(|same| same.values == cell.values));
    variants.map(|name| format!("variant {name}")).chain(cells.map(|cell| format!("cell {}", cell.title()))).collect()
}

pub fn differences(a: &Run, b: &Run) -> Vec<String> {
    let mut all = Vec::new();
    let mut note = |what: &str, a: String, b: String| {
        if a != b {
            all.push(format!("{what} differs: {a} in A, {b} in B"));
        }
    };
    note("the scenario's name", a.scenario.name.clone(), b.scenario.name.clone());
    for (what, of) in MACHINE {
        note(what, of(&a.machine), of(&b.machine));
    }
    note("Sidestep", a.version.clone(), b.version.clone());
    for name in a.programs.keys().chain(b.programs.keys().filter(|name| !a.programs.contains_key(*name))) {
        note(name, program(a, name), program(b, name));
    }
    let texts = (a.scenario.text != b.scenario.text).then(|| "the scenarios' texts differ".into());
    let baselines = (baseline(a) != baseline(b)).then(|| "the baselines are other variants".into());
    all.into_iter().chain(texts).chain(baselines).collect()
}

type Property = (&'static str, fn(&Machine) -> String);

const MACHINE: [Property; 8] = [
    ("the kernel", |machine| machine.kernel.clone()),
    ("the CPU", |machine| machine.cpu.clone()),
    ("the number of cores", |machine| machine.cores.to_string()),
    ("the memory", |machine| units::bytes(machine.memory as f64)),
    ("the hypervisor", |machine| or_none(&machine.hypervisor)),
    ("the CPU's governor", |machine| or_none(&machine.governor)),
    ("the clock", |machine| machine.clocksource.clone()),
    ("the distribution", |machine| machine.distribution.clone()),
];

fn or_none(text: &Option<String>) -> String {
    text.clone().unwrap_or("none".into())
}

/// The path is included only if the program does not print its version.
fn program(run: &Run, name: &str) -> String {
    let program = run.programs.get(name);
    program.map_or("none".into(), |program| program.version.clone().unwrap_or_else(|| program.path.clone()))
}

fn baseline(run: &Run) -> Option<&str> {
    run.variants.iter().find(|one| one.baseline).map(|one| one.name.as_str())
}
