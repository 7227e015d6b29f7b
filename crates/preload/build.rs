//! Compiles the C shim, and links the library so that it can be loaded into any program, whatever its libc.

fn main() {
    let sources = ["csrc/shim.c", "csrc/freestanding.c"];
    for source in sources {
        println!("cargo:rerun-if-changed={source}");
    }
    cc::Build::new()
        .files(sources)
        .flag("-fvisibility=hidden")
        .flag("-ftls-model=initial-exec")
        // No call that nobody wrote: what compilers make of loops, and distributions add by default.
        .flag("-fno-builtin")
        .flag_if_supported("-fno-tree-loop-distribute-patterns")
        .flag("-fno-stack-protector")
        .flag("-U_FORTIFY_SOURCE")
        .opt_level(2)
        // Rust's own libraries, which come later on the linker's command line, refer to it too.
        .link_lib_modifier("+whole-archive")
        .compile("shim");
    let link = [
        // Its hooks may be on any stack: the library stays in memory for good.
        "-Wl,-z,nodelete",
        "-Wl,-z,now",
        // A call of an export leads to our own function, even if the program has one of the same name in front.
        "-Wl,-Bsymbolic-functions",
        // No undefined symbol but weak ones. What gcc's start files refer to, not every libc has.
        "-Wl,-z,defs",
        "-nostartfiles",
        // Relocations that older loaders do not know, which some distributions' linkers make by default.
        "-Wl,-z,nopack-relative-relocs",
        // Loaders that know only one of the two kinds of hash tables.
        "-Wl,--hash-style=both",
    ];
    for argument in link {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
