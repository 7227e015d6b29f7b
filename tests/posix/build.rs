//! Compiles the functions that only C can express.

fn main() {
    let files = ["c/only_in_c.c", "c/before_main.c", "c/handlers.c", "c/jumps.c"];
    files.iter().for_each(|file| println!("cargo:rerun-if-changed={file}"));
    cc::Build::new().files(files).warnings_into_errors(true).extra_warnings(true).compile("only_in_c");
}
