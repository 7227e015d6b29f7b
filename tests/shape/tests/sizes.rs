//! One idea a file: no file of code has more than 400 lines. None here is generated; one that is would be named here.

use sidestep_shape::path;
use std::path::{Path, PathBuf};

const MOST_LINES: usize = 400;
const ENDINGS: &[&str] = &["rs", "c", "h", "py"];
/// What builds and installations leave in a checkout.
const NOT_OURS: &[&str] = &["target", "node_modules", "__pycache__", "corpus", "artifacts"];

/// All files of code below a directory.
fn code(directory: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    for entry in entries.map(|entry| entry.expect("an entry")) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let kind = entry.file_type().expect("its type");
        if kind.is_dir() && !name.starts_with('.') && !NOT_OURS.contains(&name.as_str()) {
            code(&path, found);
        } else if kind.is_file() && path.extension().is_some_and(|ending| ENDINGS.iter().any(|one| ending == *one)) {
            found.push(path);
        }
    }
}

fn lines(path: &Path) -> usize {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.iter().filter(|byte| **byte == b'\n').count()
}

#[test]
fn no_file_of_code_is_longer_than_400_lines() {
    let mut all = Vec::new();
    code(&path(""), &mut all);
    assert!(all.len() > 1000, "only {} files are looked at", all.len());
    let long = all.iter().map(|path| (lines(path), path)).filter(|(lines, _)| *lines > MOST_LINES);
    let long: Vec<_> = long.map(|(lines, path)| format!("{}: {lines} lines", path.display())).collect();
    assert!(long.is_empty(), "more than {MOST_LINES} lines; split them by concept:\n{}", long.join("\n"));
}
