//! Lines of configuration files that name a user.

use std::path::{Path, PathBuf};

/// The user that a file names.
#[derive(Debug)]
pub struct Found {
    pub user: String,
    pub file: PathBuf,
    /// None: no line names the user; it is the default.
    pub line: Option<usize>,
}

impl Found {
    pub fn is_another(&self) -> bool {
        self.user != "root" && self.user != "0"
    }

    pub fn place(&self) -> String {
        match self.line {
            Some(line) => format!("{}:{line}", self.file.display()),
            None => format!("{}, which names no user", self.file.display()),
        }
    }
}

/// The first line of the file that sets the key.
pub fn find(file: &Path, key: &str) -> Option<Found> {
    let text = String::from_utf8_lossy(&std::fs::read(file).ok()?).into_owned();
    let mut lines = text.lines().enumerate();
    lines.find_map(|(line, text)| {
        let user = value(text, key)?.into();
        Some(Found { user, file: file.into(), line: Some(line + 1) })
    })
}

/// `user www-data;`, `user = mysql`, `-u memcache`, `User=redis`: the first word of the value.
pub fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let rest = line.trim().strip_prefix(key)?;
    let rest = rest.strip_prefix([' ', '\t', '=']).map(|rest| rest.trim_start_matches([' ', '\t', '=']))?;
    let word = rest.split([' ', '\t', ';', '#']).next()?.trim_matches('"');
    (!word.is_empty()).then_some(word)
}

/// The matching files, ordered by name. One `*` stands for any entry of a directory.
pub fn expand(root: &Path, pattern: &str) -> Vec<PathBuf> {
    pattern.split('/').fold(vec![root.to_path_buf()], |found, part| match part {
        "*" => found.iter().flat_map(|directory| entries(directory)).collect(),
        part => found.into_iter().map(|directory| directory.join(part)).collect(),
    })
}

/// What is in the directory, ordered by name.
pub fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}
