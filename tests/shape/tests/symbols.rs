//! The library exports what the table says and nothing else, can be loaded beside any libc, and never calls an export of its
//! own that somebody else has taken the place of.

use object::elf;
use sidestep_shape::library::{self, Profile};
use sidestep_shape::{table, text};
use std::collections::BTreeSet;
use std::process::Command;

/// Symbols of the table that glibc 2.36 does not have; they are for later ones.
const NEWER_THAN_THIS_LIBC: &[&str] = &["pidfd_spawn", "pidfd_spawnp"];

/// All that the library refers to. glibc 2.17 and musl 1.2 have them; where one is missing, the library does without.
const MAY_IMPORT: &[&str] = &["__errno_location", "dl_iterate_phdr", "dlsym", "environ", "free"];

/// Of elf.h: relocations of a compact kind, which the loaders of older libcs do not know.
const DT_RELR: i64 = 36;

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

/// A symbol that must be found and is not keeps a program from starting; so does a version that its libc does not have.
#[test]
fn nothing_keeps_a_program_from_starting() {
    for profile in [Profile::Release, Profile::Dev] {
        let library = library::read(library::build(profile));
        let (strong, weak) = library.undefined();
        assert_eq!((strong, weak), (Vec::new(), MAY_IMPORT.iter().map(|s| s.to_string()).collect()), "{profile:?}");
        assert_eq!(library.needed(), [""; 0], "{profile:?}: libraries that must be there");
        for (tag, what) in [(elf::DT_VERNEED, "versions"), (DT_RELR, "compact relocations")] {
            assert!(library.dynamic(tag).is_empty(), "{profile:?} needs a loader that knows its {what}");
        }
        for (tag, what) in [(elf::DT_HASH, "old"), (elf::DT_GNU_HASH, "new")] {
            assert_eq!(library.dynamic(tag).len(), 1, "{profile:?} has no hash table of the {what} kind");
        }
        assert!(library.dynamic(elf::DT_TEXTREL).is_empty(), "{profile:?}: code that the loader has to change");
    }
}

/// An executable or a library in front may define the same names: an alias that the dynamic linker binds leads there.
#[test]
fn no_export_is_looked_up() {
    for profile in [Profile::Release, Profile::Dev] {
        let library = library::read(library::build(profile));
        let looked_up = library.looked_up();
        assert_eq!(looked_up, MAY_IMPORT, "{profile:?}: the relocations are not read, or refer to something else");
        let exported = library.symbols(true);
        let both: Vec<_> = looked_up.iter().filter(|name| exported.contains(name)).collect();
        assert!(both.is_empty(), "{profile:?} would call whoever defines these first: {both:?}");
    }
}

/// A debug build is the same library.
#[test]
fn a_debug_build_loads() {
    let report = std::env::temp_dir().join(format!("sidestep-shape-{}.jsonl", std::process::id()));
    let out = Command::new("/bin/echo")
        .arg("hello")
        .env("LD_PRELOAD", library::build(Profile::Dev))
        .env("SIDESTEP_REPORT", &report)
        .output()
        .expect("echo runs");
    let told = std::fs::read_to_string(&report).unwrap_or_default();
    let _ = std::fs::remove_file(&report);
    assert_eq!((out.stdout.as_slice(), out.stderr.as_slice()), (&b"hello\n"[..], &b""[..]));
    assert!(out.status.success() && told.contains("\"exe\":"), "the library was not in it: {told:?}");
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
    assert!((1..=384).contains(&library.tls_size()), "{} bytes of thread-local storage", library.tls_size());
}
