//! Compiles the C shim (variadic functions and thread-local storage, which stable Rust cannot define) and keeps
//! the library in memory for good: its hooks may be on any stack.

fn main() {
    println!("cargo:rerun-if-changed=csrc/shim.c");
    cc::Build::new()
        .file("csrc/shim.c")
        .flag("-fvisibility=hidden")
        .flag("-ftls-model=initial-exec")
        .opt_level(2)
        .compile("shim");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
}
