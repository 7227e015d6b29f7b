//! The Service scenarios in brief: each contestant's load takes its own way, and a check fails if it does not. Needs root, and
//! `sidestep-bench` and `sidestep-agent` beside the lab, which `cargo test --workspace` builds.

use crate::running::Lab;
use sidestep_lab::scenario::find;

fn shipped(name: &str) -> String {
    let text = find(name).expect("it is shipped");
    // Other load does not matter here.
    text.replace("design:\n", "design:\n  foreign: 0.999\n  steal: 0.999\n")
}

/// Measures one round of some variants: each has figures, and no check fails.
fn measured(name: &str, options: &[&str], variants: &[&str]) {
    let lab = Lab::new(&shipped(name));
    let only = variants.join(",");
    let options = [options, &["--rounds", "1", "--strict", "--only", &only, "--out", "test.json"]].concat();
    let done = lab.run(&options);
    assert!(done.status.success(), "{done:?}");
    let run = lab.result();
    for variant in variants {
        let counts =
            run.cells.iter().all(|cell| cell.trials.iter().any(|trial| trial.variant == *variant && trial.counts()));
        assert!(counts, "{variant}: {:?}", run.notes);
    }
}

#[test]
fn a_service_is_reached_in_everybodys_way() {
    let cells =
        ["--axis", "services=10", "--axis", "place=middle", "--axis", "time=connection,request", "--seconds", "0.5"];
    measured("services", &cells, &["direct", "sidestep", "nftables", "iptables-nft", "iptables-legacy"]);
}

#[test]
fn the_last_of_all_services_is_reached_too() {
    let cells = ["--axis", "services=1000", "--axis", "place=last", "--axis", "time=connect", "--seconds", "0.5"];
    measured("services", &cells, &["direct", "sidestep", "iptables-legacy"]);
}

#[test]
fn services_come_and_go() {
    let cells = ["--axis", "services=100"];
    measured("services-setup", &cells, &["sidestep", "nftables", "iptables-nft", "iptables-legacy"]);
}

#[test]
fn a_changed_endpoint_is_seen() {
    let cells = ["--axis", "services=100"];
    measured("services-change", &cells, &["sidestep", "nftables", "iptables-nft", "iptables-legacy"]);
}

/// If packets were translated on the node, the agent's figures would not be its own.
#[test]
fn a_contestant_that_goes_anothers_way_fails_the_run() {
    let (before, rest) = shipped("services")
        .split_once("    setup:\n      - run: [sh, -c, '${bench} services --as objects")
        .map(|(before, rest)| (before.to_owned(), rest.to_owned()))
        .expect("the agent's set-up");
    let (_, after) = rest.split_once("    agent: {}\n").expect("the agent");
    let rules = "    setup:\n      - run: [sh, -c, '${rules} nftables | nft -f -']\n";
    let lab = Lab::new(&(before + rules + after));
    let said = lab.fails(&["--quick", "--rounds", "1", "--only", "sidestep", "--out", "test.json"]);
    assert!(said.contains("sidestep: check 2 failed"), "{said}");
}

/// A check notices that another server answers at the Service's address.
#[test]
fn a_contestant_that_leads_elsewhere_fails_the_run() {
    let text = shipped("services").replace("to: \"${endpoints}\"", "to: 10.78.0.1:8080");
    let lab = Lab::new(&text);
    let said = lab.fails(&["--quick", "--rounds", "1", "--only", "direct", "--out", "test.json"]);
    assert!(said.contains("check 1 failed") && said.contains("has answered none of the connections"), "{said}");
}
