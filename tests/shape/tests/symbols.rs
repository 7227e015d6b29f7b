//! The library exports what the table says and nothing else, and calls nothing that it exports.

use object::elf;
use sidestep_shape::{library, table, text};
use std::collections::BTreeSet;

/// Symbols of the table that glibc 2.36 does not have; they are for later ones.
const NEWER_THAN_THIS_LIBC: &[&str] = &[];

/// What the library may ask of others: none of it is a call that we intercept, or leads to one.
const MAY_IMPORT: &[&str] = &[
    // What compilers emit.
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "bcmp",
    "strlen",
    // Of libc, by name.
    "dlsym",
    "__errno_location",
    "__register_atfork",
    "__chk_fail",
    "free",
    "vasprintf",
    "sigaction",
    // Start and end of any shared object.
    "__cxa_finalize",
    "__gmon_start__",
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
];

#[test]
fn exports_are_those_of_the_table() {
    let wanted = table::exports(&text(table::SOURCE));
    let once: BTreeSet<_> = wanted.iter().collect();
    assert_eq!(once.len(), wanted.len(), "the table names a symbol twice");
    assert!(wanted.len() > 50 && once.contains(&"vfork".to_string()), "the table is not read as a whole: {wanted:?}");
    let exported = library::sidestep().symbols(true);
    let extra: Vec<_> = exported.iter().filter(|s| !once.contains(s)).collect();
    let missing: Vec<_> = wanted.iter().filter(|s| !exported.contains(s)).collect();
    assert!(extra.is_empty(), "exported without being in {}: {extra:?}", table::SOURCE);
    assert!(missing.is_empty(), "in {} without being exported: {missing:?}", table::SOURCE);
}

#[test]
fn every_call_exists_in_libc() {
    let libc: BTreeSet<String> = library::libc().symbols(true).into_iter().collect();
    let absent: Vec<String> = table::exports(&text(table::SOURCE)).into_iter().filter(|s| !libc.contains(s)).collect();
    assert_eq!(absent, NEWER_THAN_THIS_LIBC, "symbols of the table that this machine's libc does not have");
}

#[test]
fn imports_are_on_the_list() {
    let library = library::sidestep();
    let (imports, exports) = (library.symbols(false), library.symbols(true));
    assert!(imports.contains(&"dlsym".to_string()), "the imports are not read: {imports:?}");
    let unknown: Vec<_> = imports.iter().filter(|s| !MAY_IMPORT.contains(&s.as_str())).collect();
    assert!(unknown.is_empty(), "imports that nobody has looked at: {unknown:?}; they might call back into our hooks");
    let both: Vec<_> = imports.iter().filter(|s| exports.contains(s)).collect();
    assert!(both.is_empty(), "the library would call its own hooks: {both:?}");
}

/// `__tls_get_addr` may allocate, and so may a call of dlclose() take the code away from under a hook.
#[test]
fn it_stays_loaded_and_needs_no_allocation_for_threads() {
    let library = library::sidestep();
    let flags = library.dynamic(elf::DT_FLAGS_1).into_iter().fold(0, |all, f| all | f);
    assert_ne!(flags & u64::from(elf::DF_1_NODELETE), 0, "not linked with -z nodelete");
    let types = library.relocation_types();
    assert!(types.contains(&elf::R_X86_64_RELATIVE), "the relocations are not read: {types:?}");
    let dynamic_tls = [elf::R_X86_64_DTPMOD64, elf::R_X86_64_DTPOFF64, elf::R_X86_64_TLSDESC];
    assert!(!types.iter().any(|t| dynamic_tls.contains(t)), "thread-locals that need __tls_get_addr: {types:?}");
    // glibc keeps 512 bytes for libraries that are loaded late; at start there is no limit.
    assert!((1..=64).contains(&library.tls_size()), "{} bytes of thread-local storage", library.tls_size());
}

/// It is loaded into any program: it brings no library along that the program does not have anyway.
#[test]
fn it_needs_no_other_library() {
    let needed = library::sidestep().needed();
    assert!(needed.iter().all(|n| n == "libc.so.6" || n.starts_with("ld-linux")), "{needed:?}");
}
