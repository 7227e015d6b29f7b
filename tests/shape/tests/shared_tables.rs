//! Numbers that the kernel's programs, in C, share with Rust: each entry has one name and one number on both sides.

use sidestep_shape::c::{enumerators, macros};
use sidestep_shape::rust::Source;

/// C's name as Rust's texts have it: `REASON_NO_ROUTE` is `no-route`.
fn kebab(name: &str, prefix: &str) -> String {
    let name = name.strip_prefix(prefix).unwrap_or_else(|| panic!("{name} does not begin with {prefix}"));
    name.to_lowercase().replace('_', "-")
}

/// Rust's variant as C has it: `ExcludedPort` is `EXCLUDED_PORT`.
fn shouted(variant: &str) -> String {
    let mut name = String::new();
    for (at, c) in variant.char_indices() {
        if at > 0 && c.is_uppercase() {
            name.push('_');
        }
        name.extend(c.to_uppercase());
    }
    name
}

/// The numbers of an array's entries are their places.
fn places(entries: &[(String, u64)]) {
    let expected = (0..).zip(entries).map(|(place, (name, _))| (name.clone(), place));
    assert_eq!(entries, Vec::from_iter(expected));
}

#[test]
fn reasons_have_the_same_names_in_the_same_places() {
    for (header, source) in
        [("services.h", "crates/ebpf/src/plane.rs"), ("splice.h", "crates/ebpf/src/splice/reasons.rs")]
    {
        let mut reasons = enumerators(header, "reason");
        places(&reasons);
        assert_eq!(
            reasons.pop().map(|(name, _)| name).as_deref(),
            Some("REASONS"),
            "{header}: the last one counts them"
        );
        let names: Vec<_> = reasons.iter().map(|(name, _)| kebab(name, "REASON_")).collect();
        assert_eq!(Source::load(source).names("REASONS"), names, "{header} and {source}");
    }
}

#[test]
fn reasons_of_capture_are_reasons() {
    let source = Source::load("crates/ebpf/src/plane.rs");
    let all = source.names("REASONS");
    for name in source.names("OF_CAPTURE") {
        assert!(all.contains(&name), "{name}");
    }
}

#[test]
fn there_is_room_for_all_reasons() {
    let room = macros("services.h")["MOST_REASONS"];
    assert!(enumerators("services.h", "reason").len() as u64 <= room);
}

#[test]
fn twins_have_the_same_variants_in_the_same_places() {
    for (header, name, prefix, suffix, source, twin) in [
        ("capture.h", "set_kind", "KIND_", "", "crates/mesh/src/capture/tables.rs", "SetKind"),
        ("capture.h", "range_kind", "KIND_", "_RANGE", "crates/mesh/src/capture/tables.rs", "RangeKind"),
        ("policy.h", "direction", "", "", "crates/mesh/src/policy/rules.rs", "Direction"),
        ("services.h", "scope", "SCOPE_", "", "crates/mesh/src/plane.rs", "Scope"),
        ("watch.h", "side", "SIDE_", "", "crates/ebpf/src/watch.rs", "Side"),
    ] {
        let entries = enumerators(header, name);
        places(&entries);
        let short = |name: &str| {
            let name = name.strip_prefix(prefix).unwrap_or_else(|| panic!("{name} does not begin with {prefix}"));
            name.strip_suffix(suffix).unwrap_or(name).to_string()
        };
        let variants = Source::load(source).variants(twin);
        let shouted: Vec<_> = variants.iter().map(|variant| shouted(variant)).collect();
        let names: Vec<_> = entries.iter().map(|(name, _)| short(name)).collect();
        assert_eq!(shouted, names, "enum {name} of {header}, and {twin} of {source}");
    }
}

/// Enumerations of which Rust has constants, by C's names without the prefix: all of them, but for those named last.
#[test]
fn constants_have_the_same_numbers() {
    for (header, name, prefix, source, left_out) in [
        ("services.h", "frontend_flags", "", "crates/ebpf/src/layout.rs", &[][..]),
        ("services.h", "node_address", "", "crates/ebpf/src/layout.rs", &[]),
        ("policy.h", "said", "", "crates/mesh/src/policy/tables.rs", &[]),
        ("policy.h", "identity_flags", "", "crates/ebpf/src/policy/layout.rs", &[]),
        ("policy.h", "address_kind", "ADDRESS_", "crates/ebpf/src/policy/addresses.rs", &["ADDRESS_OF_OTHERS"]),
        ("capture.h", "pod_flags", "POD_", "crates/ebpf/src/capture/layout.rs", &[]),
        ("capture.h", "route_flags", "", "crates/ebpf/src/capture/layout.rs", &[]),
        ("capture.h", "role", "", "crates/ebpf/src/capture/layout.rs", &[]),
        ("bypass.h", "bypass_flags", "BYPASS_", "crates/ebpf/src/bypass.rs", &[]),
        ("splice.h", "decision", "", "crates/ebpf/src/splice/tables.rs", &["OFFERED", "ORDINARY"]),
        ("watch.h", "failure", "", "crates/ebpf/src/watch.rs", &["FAILURES"]),
    ] {
        let rust = Source::load(source);
        for (entry, number) in enumerators(header, name).iter().filter(|(entry, _)| !left_out.contains(&entry.as_str()))
        {
            let short = entry.strip_prefix(prefix).unwrap_or_else(|| panic!("{entry} does not begin with {prefix}"));
            assert_eq!(rust.number(short), *number, "{entry} of {header}, and {source}");
        }
    }
}

#[test]
fn macros_have_the_same_numbers() {
    for (header, name, source, twin) in [
        ("capture.h", "LISTENER_PLACES", "crates/ebpf/src/capture/layout.rs", "LISTENER_PLACES"),
        ("capture.h", "ROUTE_ERROR_SHIFT", "crates/ebpf/src/capture/layout.rs", "ROUTE_ERROR_SHIFT"),
        ("capture.h", "RANGE_OF_V4", "crates/ebpf/src/capture/layout.rs", "RANGE_OF_V4"),
        ("services.h", "REFUSED_MARK", "crates/ebpf/src/layout.rs", "REFUSED_MARK"),
        ("watch.h", "LATENCIES", "crates/ebpf/src/watch.rs", "LATENCIES"),
        ("policy.h", "IDENTITY_UNKNOWN", "crates/mesh/src/policy/identity.rs", "UNKNOWN"),
        ("policy.h", "IDENTITY_NODE", "crates/mesh/src/policy/identity.rs", "NODE"),
    ] {
        assert_eq!(Source::load(source).number(twin), macros(header)[name], "{name} of {header}, and {source}");
    }
}

/// What the C shim reserves for a thread, and what `thread` believes that it does.
#[test]
fn the_shim_reserves_what_the_library_uses() {
    let (shim, thread) = ("crates/preload/csrc/shim.c", "crates/preload/src/thread/mod.rs");
    let text = sidestep_shape::text(shim);
    let (_, rest) = text.split_once("unsigned long parts[").expect("the words of a thread");
    let (words, _) = rest.split_once(']').expect("their number");
    let believed = format!("size_of::<Parts>() == {words} * 8");
    assert!(sidestep_shape::text(thread).contains(&believed), "{thread} does not say {believed:?}, which is {shim}'s");
}
