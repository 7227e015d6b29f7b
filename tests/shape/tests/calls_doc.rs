//! `docs/CALLS.md` is what the table of intercepted calls makes of it.
//!
//! `UPDATE=1 cargo test -p sidestep-shape --test all calls_doc` writes it anew.

use sidestep_shape::table::{self, Call, Lacking};
use sidestep_shape::{path, text};

const FILE: &str = "docs/CALLS.md";

#[test]
fn the_list_of_calls_is_up_to_date() {
    let wanted = page(&text(table::SOURCE));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path(FILE), &wanted).unwrap_or_else(|e| panic!("{FILE}: {e}"));
    }
    let found = std::fs::read_to_string(path(FILE)).unwrap_or_default();
    let differs = wanted.lines().zip(found.lines().chain(std::iter::repeat(""))).find(|(w, f)| w != f);
    assert!(
        found == wanted,
        "{FILE} is not what {} says, first at {differs:?}; \
         UPDATE=1 cargo test -p sidestep-shape --test all calls_doc writes it anew",
        table::SOURCE
    );
}

fn page(source: &str) -> String {
    let calls = table::calls(source);
    let mut modules: Vec<&str> = Vec::new();
    for call in &calls {
        if !modules.contains(&call.module.as_str()) {
            modules.push(&call.module);
        }
    }
    let mut page = format!(
        "# Intercepted calls\n\n\
         What `libsidestep.so` puts in front of libc: {} symbols. This page is made from the table in\n\
         `{}` by `tests/shape`; the library exports exactly these.\n\n\
         A program whose descriptors are not upgraded connections gets libc's own function behind each of them. Where the\n\
         program's libc does not have the function, as musl and older versions of glibc lack some, the system call stands in\n\
         for it; a function that no system call can stand in for fails with ENOSYS.\n",
        table::exports(source).len(),
        table::SOURCE
    );
    for module in modules {
        page += &section(module, calls.iter().filter(|c| c.module == module));
    }
    page + &jumps()
}

/// The calls of one module of hooks, under what that module says of itself.
fn section<'a>(module: &str, calls: impl Iterator<Item = &'a Call>) -> String {
    let source = text(&format!("crates/preload/src/hooks/{module}.rs"));
    let about: Vec<&str> = source.lines().map_while(|l| l.strip_prefix("//! ")).collect();
    assert!(!about.is_empty(), "hooks/{module}.rs does not say what it is");
    let mut section = format!(
        "\n## {module}\n\n{}\n\n| call | also exported as | where libc lacks it |\n|---|---|---|\n",
        about.join("\n")
    );
    for call in calls {
        let lacking = match call.lacking {
            Lacking::StandIn => "system call",
            Lacking::Fails => "ENOSYS",
            Lacking::NoMatter => "another of these calls",
        };
        section += &format!("| `{}` | {} | {lacking} |\n", call.name, quoted(&call.also));
    }
    section
}

fn jumps() -> String {
    let names: Vec<String> = table::jumps(&sidestep_shape::text(table::JUMPS));
    format!(
        "\n## Jumps\n\nVariadic calls, whose arguments a C shim collects, and vfork, which returns twice.\n\n{}\n",
        quoted(&names)
    )
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}
