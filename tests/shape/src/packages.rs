//! The packages of the workspace and what they depend on, as cargo resolves it for this machine.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

/// What a dependency is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// It is part of what runs.
    Running,
    /// Running and building: everything but tests.
    Shipping,
}

/// All packages, as cargo resolves them.
pub struct Packages {
    names: BTreeMap<String, String>,
    /// By package id: (id, kinds) of each dependency; the kind of an ordinary one is null.
    edges: BTreeMap<String, Vec<(String, Vec<Value>)>>,
    /// Where cargo builds.
    pub target_directory: PathBuf,
}

impl Packages {
    /// Asks cargo.
    pub fn load() -> Packages {
        let out = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version=1", "--locked", "--filter-platform", &host()])
            .current_dir(crate::path("."))
            .output()
            .expect("cargo runs");
        assert!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
        let all: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        let names = list(&all["packages"]).map(|p| (string(&p["id"]), string(&p["name"]))).collect();
        let edges = list(&all["resolve"]["nodes"]).map(|n| (string(&n["id"]), edges_of(n))).collect();
        Packages { names, edges, target_directory: string(&all["target_directory"]).into() }
    }

    /// Names of the workspace's own packages.
    pub fn own(&self) -> BTreeSet<String> {
        self.names.values().filter(|n| n.starts_with("sidestep-")).cloned().collect()
    }

    /// What the package depends on directly.
    pub fn direct(&self, name: &str, wanted: For) -> BTreeSet<String> {
        self.next(self.id(name), wanted).map(|id| self.names[id].clone()).collect()
    }

    /// ... and what those depend on.
    pub fn all(&self, name: &str, wanted: For) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut open = vec![self.id(name)];
        while let Some(id) = open.pop() {
            open.extend(self.next(id, wanted).filter(|next| found.insert((*next).clone())));
        }
        found.iter().map(|id| self.names[id].clone()).collect()
    }

    fn next<'a>(&'a self, id: &str, wanted: For) -> impl Iterator<Item = &'a String> {
        self.edges[id]
            .iter()
            .filter(move |(_, kinds)| kinds.iter().any(|k| k.is_null() || wanted == For::Shipping && k == "build"))
            .map(|(id, _)| id)
    }

    fn id(&self, name: &str) -> &String {
        self.names.iter().find(|(_, n)| *n == name).unwrap_or_else(|| panic!("no package {name}")).0
    }
}

fn edges_of(node: &Value) -> Vec<(String, Vec<Value>)> {
    list(&node["deps"])
        .map(|dep| (string(&dep["pkg"]), list(&dep["dep_kinds"]).map(|k| k["kind"].clone()).collect()))
        .collect()
}

fn host() -> String {
    let out = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let text = String::from_utf8(out.stdout).expect("text");
    text.lines().find_map(|l| l.strip_prefix("host: ")).expect("rustc names its host").to_string()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("a list").iter()
}

fn string(value: &Value) -> String {
    value.as_str().expect("a string").to_string()
}
