//! The scenario `mesh`: which variants take part in which cells, which rules redirect and which only cost time, and what the
//! sidecars require.

use indexmap::IndexMap;
use sidestep_lab::scenario::{Scenario, Scope, Text, find, parse};
use std::collections::HashSet;

const VIP: &str = "10.96.0.10";

fn mesh() -> Scenario {
    parse(find("mesh").expect("it is shipped")).expect("it can be read")
}

/// A text of the scenario with its templates filled in.
fn filled(text: &Text, changed: &[(&str, &str)]) -> String {
    let mut scope = Scope::default();
    for (name, value) in [("dir", "/dir"), ("shared", "/shared"), ("server.address", "10.77.2.2"), ("fill", "FILL")] {
        scope.set(name, value);
    }
    scope.layer(&mesh().values);
    changed.iter().for_each(|(name, value)| scope.set(*name, *value));
    text.fill(&scope).expect("every name is known")
}

fn value(name: &str, changed: &[(&str, &str)]) -> String {
    filled(&mesh().values[name], changed)
}

/// A sidecar's configuration, which is YAML with aliases.
fn sidecar(role: &str, changed: &[(&str, &str)]) -> serde_json::Value {
    yaml_serde::from_str(&filled(&mesh().files[&format!("{role}.yaml")], changed)).expect("YAML")
}

#[test]
fn everybody_takes_part_at_64_connections_and_the_main_ones_everywhere() {
    let scenario = mesh();
    let part = |connections: &str| -> Vec<&str> {
        let cells = scenario.cells();
        let cell = cells.iter().find(|cell| cell["connections"] == connections).expect("a cell");
        scenario.variants.iter().filter(|(_, each)| each.takes_part_in(cell)).map(|(name, _)| name.as_str()).collect()
    };
    let all = [
        "none",
        "iptables",
        "iptables+rings",
        "iptables+defaults",
        "capture",
        "capture+rings",
        "capture+splice",
        "capture+services",
        "bypass",
    ];
    assert_eq!(part("64"), all);
    assert_eq!(part("1"), ["none", "iptables", "capture", "capture+rings", "bypass"]);
    assert!(scenario.design.control, "iptables once more is the tenth");
}

#[test]
fn each_load_is_put_on_each_number_of_connections_but_that_of_new_ones() {
    let cells: Vec<(String, String)> =
        mesh().cells().into_iter().map(|cell| (cell["load"].clone(), cell["connections"].clone())).collect();
    for (load, count) in [("1000", 4), ("1500", 4), ("max", 4), ("new", 1)] {
        let own: HashSet<_> = cells.iter().filter(|cell| cell.0 == load).collect();
        assert_eq!(own.len(), count, "{load}");
    }
}

/// Recorded from Istio's own program by `make test-kube`.
#[test]
fn pods_have_the_rules_that_istio_writes() {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/kube/istio-rules/injected.txt");
    let recorded = std::fs::read_to_string(recorded).expect("a recording");
    let rules = |text: &str| text.lines().filter(|line| line.starts_with("-A ")).map(String::from).collect::<Vec<_>>();
    let wanted = rules(&recorded);
    assert!(wanted.len() > 10, "{recorded}");
    assert_eq!(rules(&value("istio", &[])), wanted);
}

fn node(walk: &str) -> String {
    let changed = [("walk", walk)];
    value("services-rules", &changed) + &value(&format!("firewall-{walk}"), &changed)
}

#[test]
fn every_chain_that_is_jumped_to_is_declared() {
    let kernels = ["RETURN", "REDIRECT", "ACCEPT", "DROP", "MARK", "MASQUERADE", "DNAT"];
    for text in [value("istio", &[]), node("services"), node("connection"), node("packet")] {
        let declared: HashSet<&str> =
            text.lines().filter_map(|line| line.strip_prefix(':')?.split(' ').next()).chain(kernels).collect();
        let jumps = text.lines().filter_map(|line| line.split("-j ").nth(1)?.split(' ').next());
        let unknown: Vec<&str> = jumps.filter(|target| !declared.contains(target)).collect();
        assert!(unknown.is_empty(), "{unknown:?} in {text}");
    }
}

/// Rules of other Services come before the scenario's own, in the chain into which they are filled.
#[test]
fn the_service_that_is_dialled_is_the_last_of_all() {
    let text = node("services");
    let (others, own) = text.split_once("FILL\n").expect("the others");
    assert!(!others.contains(VIP), "{text}");
    let chain = own.lines().filter(|line| line.starts_with("-A KUBE-SERVICES "));
    assert_eq!(chain.clone().count(), 2, "{text}");
    assert!(
        chain.clone().all(|line| line.contains(&format!("-d {VIP}/32")) && line.contains("-j KUBE-SVC-")),
        "{text}"
    );
    for walk in ["services", "connection", "packet"] {
        let chain = value(&format!("chain-{walk}"), &[]);
        assert!(node(walk).contains(&format!(":{chain} - [0:0]")), "{walk}");
        assert_eq!(node(walk).matches("FILL").count(), 1, "{walk}");
    }
}

/// If Sidestep balances Services there is no kube-proxy, but a firewall stays.
#[test]
fn without_a_kube_proxy_only_a_firewalls_rules_stay() {
    let scenario = mesh();
    for variant in ["capture+services", "bypass"] {
        let rules = |walk| filled(&scenario.variants[variant].iptables[0].rules, &[("walk", walk)]);
        assert_eq!(rules("services"), "");
        assert!(!rules("packet").contains("KUBE") && rules("packet").contains("FILL"));
    }
    let rules = |walk| filled(&scenario.variants["iptables"].iptables[0].rules, &[("walk", walk)]);
    assert!(rules("services").contains("KUBE-SERVICES") && rules("packet").contains("KUBE-SERVICES"));
    assert!(rules("connection").contains("ESTABLISHED") && !rules("packet").contains("ESTABLISHED"));
}

#[test]
fn the_client_believes_the_server_only() {
    let text = sidecar("client", &[]).to_string();
    assert_eq!(text.matches(r#""exact":"spiffe://cluster.local/ns/lab/sa/server""#).count(), 2, "{text}");
    assert!(text.contains(r#""use_original_dst":true"#), "{text}");
}

#[test]
fn the_server_lets_the_client_in_only_with_a_certificate() {
    let made = sidecar("server", &[]);
    let listener = &made["static_resources"]["listeners"][0];
    let chains = listener["filter_chains"].as_array().expect("chains");
    for chain in chains {
        assert_eq!(chain["transport_socket"]["typed_config"]["require_client_certificate"], true);
        assert!(chain["filters"].to_string().contains(r#"{"exact":"spiffe://cluster.local/ns/lab/sa/client"}"#));
    }
    assert!(!chains.is_empty());
}

#[test]
fn both_give_up_after_the_same_time() {
    for role in ["client", "server"] {
        assert_eq!(sidecar(role, &[]).to_string().matches(r#""timeout":"2s""#).count(), 2 * listeners(role), "{role}");
    }
}

/// The client's sidecar has a listener for each of two ports, the server's one for both.
fn listeners(role: &str) -> usize {
    if role == "client" { 2 } else { 1 }
}

#[test]
fn connections_carry_as_many_requests_as_planned_or_one() {
    for role in ["client", "server"] {
        let made = sidecar(role, &[("requests", "77")]);
        let clusters = made["static_resources"]["clusters"].as_array().expect("clusters").iter();
        let most = |cluster: &serde_json::Value| {
            let options =
                &cluster["typed_extension_protocol_options"]["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"];
            options["common_http_protocol_options"]["max_requests_per_connection"].clone()
        };
        let found: IndexMap<String, serde_json::Value> = clusters
            .filter(|each| each["name"] != "passthrough")
            .map(|each| (each["name"].to_string(), most(each)))
            .collect();
        assert_eq!(found.len(), 2, "{role}");
        assert!(found.iter().all(|(name, most)| *most == if name.contains("8081") { 1 } else { 77 }), "{found:?}");
    }
}
