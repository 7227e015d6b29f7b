//! Errors are types with a source: no function of a crate fails with a text.

use sidestep_shape::modules::{attributes, is_for_tests, rust_files};
use std::path::PathBuf;
use syn::visit::Visit;
use syn::{GenericArgument, ItemMod, PathArguments, Type};

/// How many types of a file are a `Result<_, String>`.
#[derive(Default)]
struct TextErrors(usize);

impl<'ast> Visit<'ast> for TextErrors {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0 += usize::from(fails_with_text(path));
        syn::visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_for_tests(&module.attrs) {
            syn::visit::visit_item_mod(self, module);
        }
    }
}

fn fails_with_text(path: &syn::Path) -> bool {
    let Some(last) = path.segments.last().filter(|last| last.ident == "Result") else { return false };
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return false };
    matches!(arguments.args.iter().nth(1), Some(GenericArgument::Type(error)) if is_text(error))
}

/// `String`, `str` by reference, `Cow<str>`.
fn is_text(error: &Type) -> bool {
    match error {
        Type::Reference(inner) => is_text(&inner.elem),
        Type::Path(path) => {
            path.path.segments.last().is_some_and(|last| ["String", "str", "Cow"].iter().any(|text| last.ident == text))
        }
        _ => false,
    }
}

fn text_errors(source: &str) -> usize {
    let parsed = syn::parse_file(source).expect("Rust");
    let mut found = TextErrors::default();
    parsed.items.iter().filter(|item| !is_for_tests(attributes(item))).for_each(|item| found.visit_item(item));
    found.0
}

#[test]
fn no_crate_has_errors_that_are_texts() {
    let crates = std::fs::read_dir(sidestep_shape::path("crates")).expect("crates/");
    let sources = crates.map(|entry| entry.expect("an entry").path().join("src"));
    let mut wrong = Vec::new();
    let mut files = 0;
    let is_shipped = |path: &PathBuf| path.file_name().is_none_or(|name| name != "tests.rs");
    for path in sources.flat_map(|source| rust_files(&source)).filter(is_shipped) {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        files += 1;
        match text_errors(&text) {
            0 => {}
            n => wrong.push(format!("{}: {n}", path.display())),
        }
    }
    assert!(files > 300, "only {files} files were read");
    assert!(wrong.is_empty(), "errors that are texts:\n{}", wrong.join("\n"));
}

#[test]
fn errors_that_are_texts_are_found() {
    for (source, count) in [
        ("fn f() -> Result<u8, String> { Ok(1) }", 1),
        ("fn f() -> Result<Vec<(u8, String)>, String> { g::<Result<(), &'static str>>() }", 2),
        ("fn f() -> std::result::Result<(), std::string::String> { Ok(()) }", 1),
        ("fn f() -> Result<String, Error> { Ok(String::new()) }", 0),
        ("fn f() -> io::Result<String> { Ok(String::new()) }", 0),
        ("#[cfg(test)] mod tests { fn f() -> Result<u8, String> { Ok(1) } }", 0),
    ] {
        assert_eq!(text_errors(source), count, "{source}");
    }
}
