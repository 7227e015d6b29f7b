//! Whether a pod may run on a node, as far as the scheduler goes by names, labels and taints.

use crate::node::Node;
use crate::pod::Pod;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};

/// Effects of taints that keep pods away for certain.
const KEEPS_AWAY: [&str; 2] = ["NoSchedule", "NoExecute"];

/// Bytes of a text that count as a part.
const PIECE: usize = 64;

/// How much of the pod is compared with each node: its parts, and long texts by their length.
pub fn cost(pod: &Pod) -> usize {
    let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    let of_text = |text: &String| 1 + text.len() / PIECE;
    let of_part = |part: &NodeSelectorRequirement| 1 + part.values.iter().flatten().map(of_text).sum::<usize>();
    let of_term = |term: &NodeSelectorTerm| {
        let parts = [&term.match_expressions, &term.match_fields].into_iter().flatten().flatten();
        1 + parts.map(of_part).sum::<usize>()
    };
    let terms: usize = required.into_iter().flat_map(|selector| &selector.node_selector_terms).map(of_term).sum();
    pod.spec.node_selector.len() + pod.spec.tolerations.len() + terms
}

pub fn may_run_on(pod: &Pod, name: &str, node: &Node) -> bool {
    let spec = &pod.spec;
    // Who names the node goes around the scheduler.
    if let Some(named) = spec.node_name.as_deref().filter(|named| !named.is_empty()) {
        return named == name;
    }
    let is_selected = spec.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let required = spec.affinity.as_ref().and_then(|affinity| {
        affinity.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()
    });
    let fits = |term: &NodeSelectorTerm| matches_term(term, name, node);
    let is_required = required.is_none_or(|selector| selector.node_selector_terms.iter().any(fits));
    let is_kept_away = node.taints.iter().any(|taint| keeps_away(taint, &spec.tolerations));
    is_selected && is_required && !is_kept_away
}

fn keeps_away(taint: &Taint, tolerations: &[Toleration]) -> bool {
    KEEPS_AWAY.contains(&taint.effect.as_str()) && !tolerations.iter().any(|one| tolerates(one, taint))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let (key, effect) = (given(&toleration.key), given(&toleration.effect));
    let is_any = toleration.operator.as_deref() == Some("Exists");
    (effect.is_empty() || effect == taint.effect)
        && (key == taint.key || (key.is_empty() && is_any))
        && (is_any || given(&toleration.value) == given(&taint.value))
}

fn given(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

/// A term without any requirement matches no node.
fn matches_term(term: &NodeSelectorTerm, name: &str, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let has_any = !expressions.is_empty() || !fields.is_empty();
    has_any
        && expressions.iter().all(|one| matches(one, node.labels.get(&one.key).map(String::as_str)))
        && fields.iter().all(|one| one.key == "metadata.name" && matches(one, Some(name)))
}

fn matches(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_listed = value.is_some_and(|value| values.iter().any(|one| one == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = || Some((number(value?)?, number(values.first()?)?));
    match requirement.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(|(value, than)| value > than),
        "Lt" => compared().is_some_and(|(value, than)| value < than),
        // What is not known may match.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node() -> Node {
        let taint = json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"});
        let soft = json!({"key": "soft", "effect": "PreferNoSchedule"});
        Node {
            labels: [("kubernetes.io/arch", "amd64"), ("cores", "8")].map(|(a, b)| (a.into(), b.into())).into(),
            taints: [taint, soft].map(|one| serde_json::from_value(one).expect("a taint")).into(),
        }
    }

    fn may(spec: Value) -> bool {
        let mut spec = spec;
        if spec.get("tolerations").is_none() {
            spec["tolerations"] = json!([{"key": "dedicated", "operator": "Exists"}]);
        }
        may_run_on(&serde_json::from_value(json!({"spec": spec})).expect("a pod"), "n1", &node())
    }

    fn requires(key: &str, operator: &str, values: &[&str]) -> Value {
        let term = json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [term]}}}})
    }

    #[test]
    fn names_and_selectors() {
        assert!(may(json!({})));
        assert!(may(json!({"nodeName": "n1", "tolerations": []})) && !may(json!({"nodeName": "n2"})));
        assert!(may(json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}})));
        assert!(!may(json!({"nodeSelector": {"kubernetes.io/arch": "arm64"}})));
        assert!(!may(json!({"nodeSelector": {"zone": "a"}})));
    }

    #[test]
    fn required_affinity() {
        for (operator, values, expected) in [
            ("In", &["4", "8"][..], true),
            ("In", &["4"], false),
            ("NotIn", &["8"], false),
            ("Exists", &[], true),
            ("DoesNotExist", &[], false),
            ("Gt", &["7"], true),
            ("Gt", &["8"], false),
            ("Lt", &["9"], true),
            ("Lt", &["x"], false),
            ("Later", &[], true),
        ] {
            assert_eq!(may(requires("cores", operator, values)), expected, "{operator} {values:?}");
        }
        assert!(may(requires("zone", "NotIn", &["a"])));
        let field = |name| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{}, {"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": [name]}]}]}}}})
        };
        assert!(may(field("n1")) && !may(field("n2")), "as the pods of a DaemonSet have it");
    }

    #[test]
    fn taints_keep_those_away_who_do_not_tolerate_them() {
        let tolerates = |toleration| may(json!({"tolerations": [toleration]}));
        assert!(!may(json!({"tolerations": []})));
        assert!(tolerates(json!({"operator": "Exists"})));
        assert!(tolerates(json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"})));
        assert!(!tolerates(json!({"key": "dedicated", "value": "cpu"})));
        assert!(!tolerates(json!({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"})));
        assert!(!tolerates(json!({"key": "soft", "operator": "Exists"})));
    }
}
