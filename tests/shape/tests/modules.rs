//! Within a crate nothing takes from what takes from it: who reads a file need not have read those that come after it.

use sidestep_shape::modules::Modules;

fn crates() -> Vec<String> {
    let entries = std::fs::read_dir(sidestep_shape::path("crates")).expect("crates/");
    let mut found: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name().display().to_string()).collect();
    found.sort();
    found
}

#[test]
fn no_files_take_from_each_other() {
    let mut found = Vec::new();
    for name in crates() {
        let modules = Modules::load(&format!("crates/{name}/src"));
        for circle in modules.circles() {
            let arrows = modules.arrows().into_iter().filter(|(a, b)| circle.contains(a) && circle.contains(b));
            let arrows: Vec<_> = arrows.map(|(from, to)| format!("  {from} -> {to}")).collect();
            found.push(format!("crates/{name}:\n{}", arrows.join("\n")));
        }
    }
    assert!(found.is_empty(), "files that take from each other:\n{}", found.join("\n"));
}
