//! Selectors of labels, as in Kubernetes.

use crate::field::{Invalid, invalid};
use crate::labels::{Labels, has_all};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Selects sets of labels that have all of `labels` and meet all requirements. Empty: every set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// `matchLabels`
    pub labels: Labels,
    /// `matchExpressions`
    pub expressions: Vec<Requirement>,
}

/// An element of `matchExpressions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label that it is about.
    pub key: Arc<str>,
    /// What the label must be.
    pub wanted: Wanted,
}

/// An operator and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The label is there, with one of these values.
    In(BTreeSet<Arc<str>>),
    /// The label is not there, or has another value.
    NotIn(BTreeSet<Arc<str>>),
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

impl Selector {
    /// Whether it selects a pod, or a namespace, with these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        has_all(labels, &self.labels) && self.expressions.iter().all(|one| one.is_met(labels))
    }

    /// At least as many comparisons as [`Selector::matches`] makes with few labels, and not 0; with more labels, each takes
    /// [`depth`] times as long.
    pub(crate) fn cost(&self) -> usize {
        (self.labels.len() + self.expressions.iter().map(Requirement::cost).sum::<usize>()).max(1)
    }

    /// Whether it selects every set of labels.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.expressions.is_empty()
    }

    /// The labels whose values matter.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.labels.keys().chain(self.expressions.iter().map(|one| &one.key))
    }

    /// The error is the first invalid requirement. `path`: of the selector.
    pub(crate) fn read(path: &str, from: &LabelSelector) -> Result<Selector, Invalid> {
        let labels = from.match_labels.iter().flatten();
        let expressions = from.match_expressions.iter().flatten().enumerate();
        Ok(Selector {
            labels: labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
            expressions: expressions
                .map(|(i, one)| Requirement::read(format!("{path}.matchExpressions[{i}]"), one))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl From<Labels> for Selector {
    fn from(labels: Labels) -> Selector {
        Selector { labels, expressions: Vec::new() }
    }
}

impl Requirement {
    fn is_met(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match &self.wanted {
            Wanted::In(values) => value.is_some_and(|value| values.contains(value)),
            Wanted::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Wanted::Exists => value.is_some(),
            Wanted::DoesNotExist => value.is_none(),
        }
    }

    fn cost(&self) -> usize {
        match &self.wanted {
            Wanted::In(values) | Wanted::NotIn(values) => 1 + depth(values.len()),
            Wanted::Exists | Wanted::DoesNotExist => 1,
        }
    }

    fn read(path: String, from: &LabelSelectorRequirement) -> Result<Requirement, Invalid> {
        let values: BTreeSet<Arc<str>> = from.values.iter().flatten().map(|value| value.as_str().into()).collect();
        let wanted = match (from.operator.as_str(), values.is_empty()) {
            ("In", false) => Wanted::In(values),
            ("NotIn", false) => Wanted::NotIn(values),
            ("Exists", true) => Wanted::Exists,
            ("DoesNotExist", true) => Wanted::DoesNotExist,
            ("In" | "NotIn", true) => return invalid(format!("{path}.values"), (), "at least one value"),
            ("Exists" | "DoesNotExist", false) => return invalid(format!("{path}.values"), values, "no value"),
            (other, _) => return invalid(format!("{path}.operator"), other, "In, NotIn, Exists or DoesNotExist"),
        };
        Ok(Requirement { key: from.key.as_str().into(), wanted })
    }
}

/// How long it takes to find one of so many labels or values: 1 for those that people write, more for thousands.
pub(crate) fn depth(entries: usize) -> usize {
    1 + entries.max(1).ilog2() as usize / 4
}

/// `app=web,tier in (a,b),!old`, as kubectl writes it.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let labels = self.labels.iter().map(|(key, value)| format!("{key}={value}"));
        let all: Vec<String> = labels.chain(self.expressions.iter().map(ToString::to_string)).collect();
        f.write_str(&all.join(","))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let list = |values: &BTreeSet<Arc<str>>| values.iter().map(|value| &**value).collect::<Vec<_>>().join(",");
        match &self.wanted {
            Wanted::In(values) => write!(f, "{} in ({})", self.key, list(values)),
            Wanted::NotIn(values) => write!(f, "{} notin ({})", self.key, list(values)),
            Wanted::Exists => f.write_str(&self.key),
            Wanted::DoesNotExist => write!(f, "!{}", self.key),
        }
    }
}
