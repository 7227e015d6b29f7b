//! Compiles the programs with clang and makes their skeletons.

use libbpf_cargo::SkeletonBuilder;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Objects, each with a skeleton of its own, and clang's additional arguments for each.
const OBJECTS: &[(&str, &[&str])] = &[
    ("services", &[]),
    ("reclaim", &[]),
    ("stale", &[]),
    ("watching", &[]),
    ("inbound", &[]),
    ("packets", &[]),
    ("listening", &[]),
    ("splice", &["-mcpu=v3"]), // atomic compare-and-swap
    ("device", &[]),
    ("external", &[]),
];
const SOURCES: &str = "src";

fn main() {
    println!("cargo:rerun-if-changed={SOURCES}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (name, own) in OBJECTS {
        let source = Path::new(SOURCES).join(format!("{name}.bpf.c"));
        SkeletonBuilder::new()
            .source(&source)
            .obj(out.join(format!("{name}.bpf.o")))
            .clang_args(clang_arguments(own))
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .unwrap_or_else(|error| panic!("{}: {error:#}\nis clang installed?", source.display()));
    }
}

/// Debian keeps <asm/types.h> in a directory for each architecture, which clang does not search for `-target bpf`.
fn clang_arguments(own: &[&str]) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["-Wall", "-Werror"].iter().chain(own).map(OsString::from).collect();
    let machine = format!("/usr/include/{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it"));
    if fs::exists(&machine).unwrap_or(false) {
        arguments.push(format!("-I{machine}").into());
    }
    arguments
}
