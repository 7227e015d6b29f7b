//! The layers that ARCHITECTURE.md draws: a file takes from its own layer and from those below.

use sidestep_shape::modules::Modules;
use std::collections::BTreeMap;

/// The layers of each crate, the highest first: what it is called, and files or directories without `.rs`.
fn drawn() -> BTreeMap<String, Vec<(String, Vec<String>)>> {
    let text = sidestep_shape::text("ARCHITECTURE.md");
    let blocks = text.split("```layers ").skip(1).map(|block| block.split("```").next().unwrap_or_default());
    blocks
        .map(|block| {
            let (name, lines) = block.split_once('\n').expect("a crate's name");
            let layers = lines.lines().map(|line| {
                let mut words = line.split_whitespace().map(str::to_owned);
                (words.next().expect("a layer's name"), words.collect())
            });
            (name.trim().to_owned(), layers.collect())
        })
        .collect()
}

/// The layer of a file: that of the longest entry that names it or a directory that it lies in.
fn layer_of(file: &str, layers: &[(String, Vec<String>)]) -> Option<usize> {
    let name = file.trim_end_matches(".rs");
    let is_in = |entry: &str| name == entry || name.strip_prefix(entry).is_some_and(|rest| rest.starts_with('/'));
    let all = layers.iter().enumerate().flat_map(|(n, (_, entries))| entries.iter().map(move |entry| (entry, n)));
    all.filter(|(entry, _)| is_in(entry)).max_by_key(|(entry, _)| entry.len()).map(|(_, n)| n)
}

#[test]
fn files_take_from_their_own_layer_and_from_those_below() {
    let mut wrong = Vec::new();
    for (name, layers) in drawn() {
        let modules = Modules::load(&format!("crates/{name}/src"));
        let called = |n: usize| &layers[n].0;
        for (from, to) in modules.arrows() {
            if let (Some(a), Some(b)) = (layer_of(from, &layers), layer_of(to, &layers))
                && b < a
            {
                wrong.push(format!("crates/{name}: {from} ({}) takes from {to} ({})", called(a), called(b)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_has_a_layer_and_every_layer_files() {
    let mut wrong = Vec::new();
    for (name, layers) in drawn() {
        let modules = Modules::load(&format!("crates/{name}/src"));
        let without = modules.files().filter(|file| layer_of(file, &layers).is_none());
        wrong.extend(without.map(|file| format!("crates/{name}: {file} has no layer")));
        for entry in layers.iter().flat_map(|(_, entries)| entries) {
            let alone = [("".to_owned(), vec![entry.clone()])];
            if !modules.files().any(|file| layer_of(file, &alone).is_some()) {
                wrong.push(format!("crates/{name}: {entry} is no file and no directory"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A crate of a few files has no layers to be drawn.
const FEW: usize = 9;

#[test]
fn every_crate_is_drawn() {
    let drawn = drawn();
    let crates = std::fs::read_dir(sidestep_shape::path("crates")).expect("crates/");
    let names = crates.map(|entry| entry.expect("an entry").file_name().display().to_string());
    let missing: Vec<_> = names
        .filter(|name| Modules::load(&format!("crates/{name}/src")).files().count() > FEW && !drawn.contains_key(name))
        .collect();
    assert!(missing.is_empty(), "without layers in ARCHITECTURE.md: {missing:?}");
}
