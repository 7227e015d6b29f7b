//! The files of a crate, and which of them takes something from which: what a name leads to is the file that defines it, not
//! one that only passes it on.

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::Visit;
use syn::{Attribute, Item, UseTree, Visibility};

/// A path of modules and names, without `crate`.
type Names = Vec<String>;

struct Module {
    file: String,
    defines: BTreeSet<String>,
    /// What `use` calls by a name of this file's, and whether others may take it from here.
    imports: BTreeMap<String, Names>,
    /// `use ...::*`.
    globs: Vec<Names>,
    /// Every path in the code.
    mentions: BTreeSet<Names>,
}

/// The modules of a crate, and what each of them uses.
pub struct Modules(BTreeMap<Names, Module>);

impl Modules {
    /// Of the crate whose sources lie in this directory of the repository.
    pub fn load(source: &str) -> Modules {
        let root = crate::path(source);
        let files = rust_files(&root);
        Modules(files.iter().map(|file| module(&root, file)).collect())
    }

    /// All of them.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(|module| module.file.as_str())
    }

    /// Files, each with those that it takes something from, but for the module that it is a part of: what a module has for all
    /// its parts, such as an error type, stands in the module's own file.
    pub fn arrows(&self) -> BTreeSet<(&str, &str)> {
        let mut found = BTreeSet::new();
        for (own, module) in &self.0 {
            let named = module.imports.values().chain(&module.globs).cloned();
            let mentioned = module.mentions.iter().filter_map(|path| self.expand(own, path));
            for path in named.chain(mentioned) {
                found.extend(self.file_of(&path, 0).map(|to| (module.file.as_str(), to)));
            }
            let around: Vec<_> = (0..=own.len()).filter_map(|n| Some(self.0.get(&own[..n])?.file.as_str())).collect();
            found.retain(|(from, to)| *from != module.file || !around.contains(to));
        }
        found
    }

    /// Files that take from each other, directly or by way of others.
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let graph: DiGraphMap<&str, ()> = self.arrows().into_iter().collect();
        let mut found: Vec<_> = tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1).collect();
        found.iter_mut().for_each(|circle| circle.sort_unstable());
        found
    }

    /// The path that one in the code of `own` stands for. None: it is another crate's, or a local name.
    fn expand(&self, own: &Names, path: &Names) -> Option<Names> {
        let known = &self.0[own].imports;
        let is_child = self.0.contains_key(&joined(own, &path[..1]));
        match known.get(&path[0]) {
            Some(start) => Some(joined(start, &path[1..])),
            None => absolute(own, path).or_else(|| (is_child && path.len() > 1).then(|| joined(own, path))),
        }
    }

    /// The file that defines what the path leads to. None: nothing of this crate.
    fn file_of(&self, path: &Names, depth: usize) -> Option<&str> {
        let at = (0..=path.len()).rev().find(|&n| self.0.contains_key(&path[..n]))?;
        let module = &self.0[&path[..at]];
        let Some(name) = path.get(at) else { return Some(&module.file) };
        if module.defines.contains(name) || depth > 8 {
            return Some(&module.file);
        }
        let passed_on = module.imports.get(name).map(|to| joined(to, &path[at + 1..]));
        let from_globs = module.globs.iter().map(|glob| joined(glob, &path[at..]));
        let known = |to: &Names| self.0.contains_key(&to[..to.len().min(1)]);
        passed_on.into_iter().chain(from_globs).filter(known).find_map(|to| self.file_of(&to, depth + 1))
    }
}

/// All of them below a directory, in their order.
pub fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
        .into_iter()
        .flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] })
        .filter(|path| is_rust(path))
        .collect()
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

fn module(root: &Path, file: &Path) -> (Names, Module) {
    let relative = file.strip_prefix(root).expect("below the root");
    let mut own: Names = relative.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if matches!(own.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        own.pop();
    }
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut found = Module {
        file: relative.display().to_string(),
        defines: BTreeSet::new(),
        imports: BTreeMap::new(),
        globs: Vec::new(),
        mentions: BTreeSet::new(),
    };
    for item in parsed.items.iter().filter(|item| !is_for_tests(attributes(item))) {
        match item {
            Item::Use(item) => uses(&own, &item.tree, Vec::new(), &mut found),
            other => {
                found.defines.extend(defined(other));
                Mentions(&mut found.mentions).visit_item(other);
            }
        }
    }
    (own, found)
}

/// What a `use` brings: by name, or everything.
fn uses(own: &Names, tree: &UseTree, before: Names, found: &mut Module) {
    let with = |name: &syn::Ident| joined(&before, &[name.to_string()]);
    let resolved = |path: &Names| absolute(own, path);
    match tree {
        UseTree::Path(path) => uses(own, &path.tree, with(&path.ident), found),
        UseTree::Group(group) => group.items.iter().for_each(|tree| uses(own, tree, before.clone(), found)),
        UseTree::Glob(_) => found.globs.extend(resolved(&before)),
        UseTree::Name(name) => {
            let path = if name.ident == "self" { before.clone() } else { with(&name.ident) };
            let called = path.last().cloned().unwrap_or_default();
            found.imports.extend(resolved(&path).map(|path| (called, path)));
        }
        UseTree::Rename(rename) => {
            found.imports.extend(resolved(&with(&rename.ident)).map(|path| (rename.rename.to_string(), path)));
        }
    }
}

/// None: the path does not begin with `crate`, `self` or `super`.
fn absolute(own: &Names, path: &[String]) -> Option<Names> {
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some(joined(own, &path[1..])),
        "super" => {
            let ups = path.iter().take_while(|part| *part == "super").count();
            Some(joined(&own[..own.len().checked_sub(ups)?], &path[ups..]))
        }
        _ => None,
    }
}

fn joined(a: &[String], b: &[String]) -> Names {
    [a, b].concat()
}

/// Whether an item is there for tests alone.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| a.path().is_ident("cfg") && a.parse_args::<syn::Ident>().is_ok_and(|what| what == "test"))
}

/// The attributes of an item; none of what cannot have any.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(it) => &it.ident,
        Item::Enum(it) => &it.ident,
        Item::Fn(it) => &it.sig.ident,
        Item::Mod(it) if it.content.is_some() => &it.ident,
        Item::Static(it) => &it.ident,
        Item::Struct(it) => &it.ident,
        Item::Trait(it) => &it.ident,
        Item::Type(it) => &it.ident,
        Item::Union(it) => &it.ident,
        Item::Macro(it) => it.ident.as_ref()?,
        _ => return None,
    };
    Some(name.to_string())
}

/// Paths of two or more parts.
struct Mentions<'a>(&'a mut BTreeSet<Names>);

impl<'ast> Visit<'ast> for Mentions<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Names = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if parts.len() > 1 {
            self.0.insert(parts);
        }
        syn::visit::visit_path(self, path);
    }

    /// The arguments of a macro are no code yet: what looks like a path in them is taken for one.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        paths_in(call.tokens.clone(), self.0);
        self.visit_path(&call.path);
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

fn paths_in(tokens: proc_macro2::TokenStream, found: &mut BTreeSet<Names>) {
    let (mut path, mut colons) = (Names::new(), 0);
    let mut end = |path: &mut Names| {
        if path.len() > 1 {
            found.insert(std::mem::take(path));
        }
        path.clear();
    };
    let mut inside = Vec::new();
    for token in tokens {
        match token {
            proc_macro2::TokenTree::Ident(name) => {
                if colons != 2 {
                    end(&mut path);
                }
                path.push(name.to_string());
                colons = 0;
            }
            proc_macro2::TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
            other => {
                end(&mut path);
                colons = 0;
                if let proc_macro2::TokenTree::Group(group) = other {
                    inside.push(group.stream());
                }
            }
        }
    }
    end(&mut path);
    inside.into_iter().for_each(|stream| paths_in(stream, found));
}
