//! The scenario `kube`: what each variant has, and what it has not.

use sidestep_lab::scenario::{Scenario, Variant, find, parse};

fn kube() -> Scenario {
    parse(find("kube").expect("it is shipped")).expect("it can be read")
}

const SIDESTEP: [&str; 4] = ["sidestep", "sidestep+node", "bypass", "bypass+node"];

/// Recorded from Istio's own program by `make test-kube`.
#[test]
fn pods_have_the_rules_that_istio_writes() {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/kube/istio-rules/injected.txt");
    let recorded = std::fs::read_to_string(recorded).expect("a recording");
    let rules = |text: &str| text.lines().filter(|line| line.starts_with("-A ")).map(String::from).collect::<Vec<_>>();
    assert_eq!(rules(kube().values["istio"].raw()), rules(&recorded));
}

#[test]
fn a_variant_of_sidestep_has_everything_of_it_and_no_rule() {
    let scenario = kube();
    let is_whole = |variant: &Variant| {
        let agent = variant.agent.as_ref().map_or(0, |agent| agent.capture.len());
        variant.iptables.is_empty() && agent == 2 && variant.rings.as_ref().is_some_and(|rings| rings.only.is_empty())
    };
    for (name, variant) in &scenario.variants {
        assert_eq!(is_whole(variant), SIDESTEP.contains(&name.as_str()), "{name}");
    }
}

/// The baseline's rules are kube-proxy's on the node and Istio's in both pods; all variants have the same number of Services.
#[test]
fn the_baseline_has_all_rules_and_as_many_services() {
    let scenario = kube();
    let places = |name: &str| -> Vec<Option<String>> {
        scenario.variants[name].iptables.iter().map(|each| each.namespace.clone()).collect()
    };
    assert_eq!(scenario.baseline, "iptables");
    assert_eq!(places("iptables"), [None, Some("client".into()), Some("server".into())]);
    assert_eq!(places("none"), [None]);
    for (name, variant) in &scenario.variants {
        let setup: String = variant.setup.iter().flat_map(|each| &each.run).map(|word| word.raw()).collect();
        assert!(setup.contains("--count ${services}"), "{name}: {setup}");
    }
}

/// Between pods there are rings only where the broker is told that addresses are unique.
#[test]
fn only_variants_of_the_node_join_its_pods() {
    for (name, variant) in kube().variants {
        let settings = variant.rings.map(|rings| rings.broker.raw().to_string()).unwrap_or_default();
        assert_eq!(settings.contains("cross-namespaces = true"), name.ends_with("+node"), "{name}");
    }
}
