//! Known faults that are not fixed yet. Behaviour after such a fault proves nothing, so it is not compared.
//!
//! With `--strict` these faults count.

use super::rules::Context;
use crate::program::Act;

pub struct Open {
    pub name: &'static str,
    pub what: &'static str,
    shows: fn(&Context, &str) -> bool,
}

pub const OPEN: &[Open] = &[];

/// The known fault that may have caused this difference.
pub fn fault(context: &Context) -> Option<&'static Open> {
    let step = context.steps.get(context.plain.step.max(context.line.step))?;
    let Act::Call(call) = &step.act else { return None };
    OPEN.iter().find(|open| (open.shows)(context, &call.name))
}
