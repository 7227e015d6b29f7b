//! Who answers which question.

use crate::view::View;
use crate::{check, explain, policies, report};
use sidestep_agent_api::{Answer, Check, Question, Reply};
use sidestep_mesh::object::Name;

pub fn answer(view: &View, question: Question) -> Reply {
    Ok(match question {
        Question::Status => Answer::Status(report::status(view)?),
        Question::List => Answer::Services(report::services(view)?),
        Question::Show { namespace, name } => Answer::Services(report::show(view, &Name::new(&namespace, &name))?),
        Question::Check => Answer::Check(check(view)?),
        Question::Explain { from, protocol, to } => Answer::Explanation(explain::explain(view, &from, protocol, to)?),
        Question::ExplainInbound { netns, port, interface, source, protocol } => {
            let call = explain::Call { port, interface: interface.as_deref(), source, protocol };
            Answer::Explanation(explain::inbound(view, &netns, &call)?)
        }
        Question::Policies => Answer::Policies(policies::all(view)?),
        Question::Captures { .. } => Answer::Captures(report::captures(view)?),
        Question::Metrics => Answer::Metrics(Box::new(report::metrics(view)?)),
        Question::Stop { .. } => Answer::Stopping,
    })
}

/// What the keeper of captured pods has to add is not in it.
pub fn check(view: &View) -> Result<Check, String> {
    check::check(view)
}
