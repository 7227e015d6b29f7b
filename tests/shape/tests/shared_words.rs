//! The words of the shared memory are read and written in one place: `crates/ring`, for library, broker and models alike.

use sidestep_shape::path;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::visit::Visit;
use syn::{Expr, ExprMethodCall, Item, Member, Type};

/// Sources that may not touch a word. Tests that play a hostile peer, or a whole one, are not among them.
const HELD: [&str; 5] =
    ["crates/conn/src", "crates/broker/src", "crates/preload/src", "crates/ring/tests/loom", "crates/conn/tests/loom"];
/// Methods of an atomic.
const OPERATIONS: [&str; 10] = [
    "load",
    "store",
    "swap",
    "fetch_add",
    "fetch_sub",
    "fetch_or",
    "fetch_and",
    "fetch_max",
    "compare_exchange",
    "compare_exchange_weak",
];
/// Some structures of a process's own have fields with the names of shared words: those of `self`, and of these variables.
const OWN: [&str; 5] = ["self", "c", "l", "link", "rests"];

/// The fields of the structures in shared memory that are atomics.
fn words() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for layout in ["crates/abi/src/link.rs", "crates/abi/src/page.rs"] {
        let file = syn::parse_file(&sidestep_shape::text(layout)).expect("Rust");
        for item in file.items {
            let Item::Struct(layout) = item else { continue };
            let atomics = layout.fields.into_iter().filter(|field| is_atomic(&field.ty));
            found.extend(atomics.filter_map(|field| field.ident).map(|ident| ident.to_string()));
        }
    }
    assert!(found.contains("head") && found.contains("armed") && found.contains("pending"), "{found:?}");
    found
}

fn is_atomic(ty: &Type) -> bool {
    match ty {
        Type::Array(array) => is_atomic(&array.elem),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident.to_string().starts_with("Atomic")),
        _ => false,
    }
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Words that a file touches.
struct Touched<'a> {
    words: &'a BTreeSet<String>,
    found: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Touched<'_> {
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if OPERATIONS.contains(&call.method.to_string().as_str())
            && let Some(word) = self.word_of(&call.receiver)
        {
            self.found.insert(word);
        }
        syn::visit::visit_expr_method_call(self, call);
    }

    /// Tests of a file's own may look at what the file has written.
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.ident != "tests" {
            syn::visit::visit_item_mod(self, module);
        }
    }
}

impl Touched<'_> {
    /// The name of the word that an expression is, if it is one.
    fn word_of(&self, receiver: &Expr) -> Option<String> {
        let field = match receiver {
            Expr::Index(index) => return self.word_of(&index.expr),
            Expr::Field(field) => field,
            _ => return None,
        };
        let Member::Named(name) = &field.member else { return None };
        let name = name.to_string();
        let is_own = match &*field.base {
            Expr::Path(base) => OWN.iter().any(|own| base.path.is_ident(own)),
            Expr::Field(base) => matches!(&base.member, Member::Named(of) if of == "rests"),
            _ => false,
        };
        (self.words.contains(&name) && !is_own).then_some(name)
    }
}

#[test]
fn only_the_ring_crate_touches_shared_words() {
    let words = words();
    let mut touched = Vec::new();
    for held in HELD {
        let mut files = Vec::new();
        sources(&path(held), &mut files);
        assert!(!files.is_empty(), "{held}");
        for file in files {
            let text = std::fs::read_to_string(&file).expect("a source");
            let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let mut visit = Touched { words: &words, found: BTreeSet::new() };
            visit.visit_file(&parsed);
            touched.extend(visit.found.into_iter().map(|word| format!("{}: {word}", file.display())));
        }
    }
    assert!(touched.is_empty(), "words that crates/ring has functions for:\n{}", touched.join("\n"));
}
