//! Faults that are known and not mended yet. What a program does after one says nothing: it is not compared.
//!
//! `--strict` lets them count.

use super::rules::Context;
use crate::program::Act;

pub struct Open {
    pub name: &'static str,
    pub what: &'static str,
    shows: fn(&Context, &str) -> bool,
}

pub const OPEN: &[Open] = &[];

/// The open fault that this difference may be.
pub fn fault(context: &Context) -> Option<&'static Open> {
    let step = context.steps.get(context.plain.step.max(context.line.step))?;
    let Act::Call(call) = &step.act else { return None };
    OPEN.iter().find(|open| (open.shows)(context, &call.name))
}
