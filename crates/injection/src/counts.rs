//! Counts of containers by what became of them, as a metric of whoever decides.

use crate::outcome::Outcome;
use crate::reason::Reason;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
    reason: &'static str,
}

/// What the dashboard and an alert look at. Prometheus sees an increase only from a value on that was there before, so each begins with 0.
const WATCHED: [Outcome; 4] = [
    Outcome::Injected,
    Outcome::LeftOut(Reason::NoLibrary),
    Outcome::LeftOut(Reason::NoBroker),
    Outcome::LeftOut(Reason::Undecodable),
];

/// Counts of containers. Clones share them.
#[derive(Clone)]
pub struct Outcomes(Family<Labels, Counter>);

impl Outcomes {
    /// Counts that are a metric of this registry.
    pub fn in_registry(registry: &mut Registry) -> Outcomes {
        let containers = Family::default();
        registry.register("containers", "Containers of enrolled pods, by what became of them", containers.clone());
        let outcomes = Outcomes(containers);
        WATCHED.into_iter().for_each(|outcome| outcomes.add(outcome, 0));
        outcomes
    }

    /// One more container.
    pub fn count(&self, outcome: Outcome) {
        self.add(outcome, 1);
    }

    fn add(&self, outcome: Outcome, containers: u64) {
        let reason = outcome.reason().map_or("", |reason| reason.name());
        self.0.get_or_create(&Labels { outcome: outcome.name(), reason }).inc_by(containers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[test]
    fn what_an_alert_looks_at_is_there_before_the_first_container() {
        let mut registry = Registry::with_prefix("x");
        Outcomes::in_registry(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).expect("writing to a String cannot fail");
        for labels in [r#"outcome="injected",reason="""#, r#"outcome="left-out",reason="no-broker""#] {
            assert!(text.contains(&format!("x_containers_total{{{labels}}} 0\n")), "{text}");
        }
    }

    #[test]
    fn each_outcome_has_a_count_for_each_reason() {
        let mut registry = Registry::with_prefix("x");
        let outcomes = Outcomes::in_registry(&mut registry);
        let (no_effect, opted_out) = (Outcome::NoEffect(Reason::Static), Outcome::LeftOut(Reason::OptedOut));
        for outcome in [Outcome::Injected, no_effect, opted_out, no_effect] {
            outcomes.clone().count(outcome);
        }
        let mut text = String::new();
        encode(&mut text, &registry).expect("writing to a String cannot fail");
        let counted = |labels: &str| {
            let name = format!("x_containers_total{{{labels}}} ");
            text.lines().find_map(|line| line.strip_prefix(name.as_str()))
        };
        assert_eq!(counted(r#"outcome="injected",reason="""#), Some("1"), "{text}");
        assert_eq!(counted(r#"outcome="no-effect",reason="static""#), Some("2"), "{text}");
        assert_eq!(counted(r#"outcome="left-out",reason="opted-out""#), Some("1"), "{text}");
    }
}
