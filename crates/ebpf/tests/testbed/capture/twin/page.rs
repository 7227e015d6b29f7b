//! The manual page of differences lists exactly those that the tests know.

use super::{differences, special};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/capture-differences.md");

#[test]
fn the_page_names_every_difference() {
    let of_one = differences::ALL.iter().map(|d| [d.name, d.istio, d.sidestep, d.reason]);
    let of_several = special::ALL.iter().map(|d| [d.difference, d.istio, d.sidestep, d.reason]);
    let rows = of_one.chain(of_several).map(|row| format!("| {} |\n", row.join(" | ")));
    let table = format!("| | istio-iptables | Sidestep | because |\n|---|---|---|---|\n{}", rows.collect::<String>());
    let page = std::fs::read_to_string(PAGE).unwrap();
    assert!(page.contains(&table), "{PAGE} is to have this table:\n{table}");
}
