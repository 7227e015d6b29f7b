//! Who depends on whom: abi <- ring <- conn <- preload, sys beside ring, broker and cli above ring; bpf and mesh
//! below ebpf, and nothing between the two halves.

use sidestep_shape::packages::{For, Packages};
use std::collections::BTreeSet;

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|n| n.to_string()).collect()
}

/// What each of our packages may use of ours; whoever is not named here has no business in the workspace.
const LAYERS: &[(&str, &[&str])] = &[
    ("sidestep-abi", &[]),
    ("sidestep-sys", &["sidestep-abi"]),
    ("sidestep-ring", &["sidestep-abi"]),
    ("sidestep-conn", &["sidestep-abi", "sidestep-ring"]),
    ("sidestep-ready", &[]),
    ("sidestep-repair", &["sidestep-netlink"]),
    ("sidestep-preload", &["sidestep-abi", "sidestep-sys", "sidestep-ring", "sidestep-conn", "sidestep-ready"]),
    ("sidestep-error", &[]),
    ("sidestep-exec", &[]),
    ("sidestep-files", &[]),
    ("sidestep-log", &[]),
    ("sidestep-http", &["sidestep-error"]),
    ("sidestep-watch", &[]),
    ("sidestep-broker", &["sidestep-abi", "sidestep-ring", "sidestep-error", "sidestep-log"]),
    ("sidestep-agent-api", &[]),
    ("sidestep-program", &[]),
    ("sidestep-injection", &["sidestep-abi", "sidestep-agent-api"]),
    ("sidestep-webhook", &["sidestep-error", "sidestep-http", "sidestep-injection", "sidestep-log", "sidestep-watch"]),
    (
        "sidestep-nri",
        &[
            "sidestep-agent-api",
            "sidestep-error",
            "sidestep-files",
            "sidestep-http",
            "sidestep-injection",
            "sidestep-program",
        ],
    ),
    ("sidestep-cni", &["sidestep-agent-api", "sidestep-error", "sidestep-files"]),
    (
        "sidestep-cli",
        &[
            "sidestep-abi",
            "sidestep-agent-api",
            "sidestep-broker",
            "sidestep-error",
            "sidestep-exec",
            "sidestep-http",
            "sidestep-program",
        ],
    ),
    ("sidestep-lab", &[]),
    ("sidestep-mesh", &[]),
    ("sidestep-bpf", &[]),
    ("sidestep-netlink", &[]),
    ("sidestep-ebpf", &["sidestep-bpf", "sidestep-mesh", "sidestep-netlink"]),
    ("sidestep-device", &["sidestep-bpf", "sidestep-netlink"]),
    (
        "sidestep-agent",
        &[
            "sidestep-agent-api",
            "sidestep-ebpf",
            "sidestep-error",
            "sidestep-files",
            "sidestep-http",
            "sidestep-log",
            "sidestep-mesh",
            "sidestep-watch",
        ],
    ),
    ("sidestep-tcp", &[]),
    (
        "sidestep-stack",
        &[
            "sidestep-abi",
            "sidestep-sys",
            "sidestep-ring",
            "sidestep-conn",
            "sidestep-broker",
            "sidestep-error",
            "sidestep-log",
            "sidestep-tcp",
            "sidestep-repair",
            "sidestep-device",
        ],
    ),
    ("sidestep-testkit", &["sidestep-mesh"]),
];

#[test]
fn layers_look_down_only() {
    let packages = Packages::load();
    for (name, allowed) in LAYERS {
        let ours: BTreeSet<String> =
            packages.direct(name, For::Shipping).into_iter().filter(|d| d.starts_with("sidestep-")).collect();
        assert!(ours.is_subset(&set(allowed)), "{name} uses {ours:?}, and may use {allowed:?}");
    }
}

#[test]
fn every_crate_has_its_place() {
    let crates = std::fs::read_dir(sidestep_shape::path("crates")).expect("crates/");
    let found: BTreeSet<String> =
        crates.map(|e| format!("sidestep-{}", e.expect("an entry").file_name().display())).collect();
    assert_eq!(found, LAYERS.iter().map(|(name, _)| name.to_string()).collect());
    let packages = Packages::load();
    assert!(found.is_subset(&packages.own()), "a directory of crates/ is not a package of that name");
}

/// The library runs inside of any program: nothing with std, nothing that allocates.
#[test]
fn the_library_brings_little_along() {
    let used = Packages::load().all("sidestep-preload", For::Running);
    assert_eq!(
        used,
        set(&["sidestep-abi", "sidestep-sys", "sidestep-ring", "sidestep-conn", "sidestep-ready", "libc"])
    );
}

#[test]
fn daemon_and_command_line_know_nothing_of_the_library() {
    let packages = Packages::load();
    for name in ["sidestep-broker", "sidestep-cli", "sidestep-nri", "sidestep-webhook"] {
        let used = packages.all(name, For::Shipping);
        assert!(used.contains("sidestep-abi"), "{name}: {used:?}");
        for not in ["sidestep-preload", "sidestep-conn", "sidestep-sys"] {
            assert!(!used.contains(not), "{name} depends on {not}");
        }
    }
}
