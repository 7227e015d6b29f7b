//! What documents name is there.

use sidestep_shape::path;
use std::path::PathBuf;

/// Where the paths begin that documents name as code.
const ROOTS: &[&str] = &["crates/", "tests/", "tools/", "docs/", "examples/", "dist/", "fuzz/"];

/// Where documents are.
const DIRECTORIES: &[&str] = &[".", "docs", "docs/man", "docs/results"];

fn documents() -> Vec<PathBuf> {
    let directory = |name: &&str| std::fs::read_dir(path(name)).unwrap_or_else(|why| panic!("{name}: {why}"));
    let all = DIRECTORIES.iter().flat_map(directory).map(|entry| entry.expect("an entry").path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The parts of a text between two marks.
fn between<'a>(text: &'a str, open: &'static str, close: char) -> impl Iterator<Item = &'a str> {
    text.split(open).skip(1).filter_map(move |rest| rest.split(close).next())
}

/// The file that a piece of code such as `tests/posix` or `crates/sys/src/fd.rs::name` names, if it names one for certain.
fn named(code: &str) -> Option<&str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let end = code.find(|c| !is_path(c)).unwrap_or(code.len());
    let (name, rest) = code.split_at(end);
    let goes_on = rest.starts_with(['*', '{', '<', '[', '$', '…']);
    let is_one = ROOTS.iter().any(|root| name.starts_with(root)) && !goes_on && !name.contains("..");
    is_one.then(|| name.trim_end_matches(['.', '/']))
}

#[test]
fn paths_in_documents_exist() {
    let mut missing = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("a document");
        let codes: Vec<_> =
            text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter_map(named).collect();
        let gone = codes.into_iter().filter(|name| !path(name).exists());
        missing.extend(gone.map(|name| format!("{}: {name}", document.display())));
    }
    assert!(missing.is_empty(), "named, and not there:\n{}", missing.join("\n"));
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut missing = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("a document");
        let directory = document.parent().expect("a directory");
        for link in between(&text, "](", ')').filter(|link| !link.contains(':') && !link.starts_with('#')) {
            let file = link.split(['#', ' ']).next().unwrap_or_default();
            if !directory.join(file).exists() {
                missing.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "links that lead nowhere:\n{}", missing.join("\n"));
}
