//! Tests of the programs' pure parts (tests/pure.c), compiled for this machine with the compiler's sanitizers.

use std::path::Path;
use std::process::Command;

fn must(command: &mut Command) {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}\n{said}", done.status);
}

#[test]
fn pure_parts() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pure");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pure.c");
    let warnings = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"];
    let sanitizers = ["-fsanitize=undefined,address", "-fno-sanitize-recover=all"];
    must(Command::new("cc").args(warnings).args(sanitizers).arg("-o").arg(&program).arg(source));
    must(&mut Command::new(&program));
}
