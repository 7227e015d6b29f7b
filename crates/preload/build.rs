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
        // The compiler must not call functions that the source does not call: some compilers turn loops into memcpy(), and some
        // distributions add calls by default.
        .flag("-fno-builtin")
        .flag_if_supported("-fno-tree-loop-distribute-patterns")
        .flag("-fno-stack-protector")
        .flag("-U_FORTIFY_SOURCE")
        .opt_level(2)
        // Rust's own libraries, which come later on the linker's command line, refer to it too.
        .link_lib_modifier("+whole-archive")
        .compile("shim");
    let link = [
        // The program may be inside a hook at any time, so the library is never unloaded.
        "-Wl,-z,nodelete",
        "-Wl,-z,now",
        // A call of an exported function inside the library reaches our own function, even if the program defines one of that
        // name.
        "-Wl,-Bsymbolic-functions",
        // Undefined symbols must be weak: not every libc has the functions that gcc's start files refer to.
        "-Wl,-z,defs",
        "-nostartfiles",
        // Some distributions' linkers pack relative relocations by default. Older loaders do not know the format.
        "-Wl,-z,nopack-relative-relocs",
        // Some loaders know only one of the two kinds of hash tables.
        "-Wl,--hash-style=both",
    ];
    for argument in link {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
