//! Dispatches questions.

use crate::explain::ExplainError;
use crate::message::refused;
use crate::view::View;
use crate::{check, explain, policies, report};
use sidestep_agent_api::{Answer, Check, Question, Reply};
use sidestep_ebpf::error::Error;
use sidestep_mesh::object::{Name, Service};

pub fn answer(view: &View, question: Question) -> Reply {
    try_to_answer(view, question).map_err(|error| refused(&error))
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum AnswerError {
    #[error(transparent)]
    Tables(#[from] Error),
    #[error(transparent)]
    Service(#[from] NoService),
    #[error(transparent)]
    Explain(#[from] ExplainError),
    /// The request has come here, and not to the threads that admit pods.
    #[error("this agent admits no pods: start it with --admissions")]
    NoAdmissions,
}

fn try_to_answer(view: &View, question: Question) -> Result<Answer, AnswerError> {
    Ok(match question {
        Question::Status => Answer::Status(report::status(view)?),
        Question::List => Answer::Services(report::services(view)?),
        Question::Show { namespace, name } => {
            Answer::Services(vec![report::show(view, known(view, &namespace, &name)?)?])
        }
        Question::Check => Answer::Check(check(view)?),
        Question::Explain { from, protocol, to } => Answer::Explanation(explain::explain(view, &from, protocol, to)?),
        Question::ExplainInbound { netns, port, interface, source, protocol } => {
            let call = explain::Call { port, interface: interface.as_deref(), source, protocol };
            Answer::Explanation(explain::inbound(view, &netns, &call)?)
        }
        Question::ExplainPacket { from, protocol, to } => {
            let packet = explain::Packet { from, protocol: explain::ours(protocol), to };
            Answer::Explanation(explain::packet(view, &packet)?)
        }
        Question::Policies => Answer::Policies(policies::all(view)?),
        Question::Captures { .. } => Answer::Captures(report::captures(view)?),
        Question::Metrics => Answer::Metrics(Box::new(report::metrics(view)?)),
        Question::Admission(_) => return Err(AnswerError::NoAdmissions),
        Question::Stop { .. } => Answer::Stopping,
    })
}

#[derive(Debug, thiserror::Error)]
#[error("there is no Service {0}")]
struct NoService(Name);

fn known<'a>(view: &'a View, namespace: &str, name: &str) -> Result<&'a Service, NoService> {
    let name = Name::new(namespace, name);
    view.state.service(&name).ok_or(NoService(name))
}

/// Without the part of the controller of captured pods.
pub fn check(view: &View) -> Result<Check, Error> {
    check::check(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tables_say_is_passed_on_whole() {
        let error = Error::new("map reasons: look up", std::io::Error::from_raw_os_error(1));
        let told = refused(&AnswerError::from(error)).0;
        assert_eq!(told, "map reasons: look up: Operation not permitted (os error 1)");
        let unknown = AnswerError::from(NoService(Name::new("default", "nobody")));
        assert_eq!(refused(&unknown).0, "there is no Service default/nobody");
    }
}
