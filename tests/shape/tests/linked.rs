//! A crate with `autotests = false` links its integration tests once, as `tests/main.rs`. A file that is not named there would be
//! no test at all.

use sidestep_shape::path;
use std::path::Path;

fn crates() -> Vec<std::path::PathBuf> {
    let below =
        |folder: &str| std::fs::read_dir(path(folder)).expect("a folder of crates").flatten().map(|entry| entry.path());
    below("crates").chain(below("tests")).filter(|one| one.join("Cargo.toml").is_file()).collect()
}

/// The test files of this crate that are not part of `tests/main.rs`.
fn left_out(tests: &Path) -> Vec<String> {
    let main = std::fs::read_to_string(tests.join("main.rs")).expect("tests/main.rs");
    let files = std::fs::read_dir(tests).expect("tests").flatten().map(|entry| entry.path());
    let names = files.filter(|file| file.extension().is_some_and(|ending| ending == "rs"));
    let names = names.filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned()));
    names.filter(|name| name != "main" && !main.lines().any(|line| line == format!("mod {name};"))).collect()
}

#[test]
fn every_file_of_tests_is_linked() {
    let once = crates().into_iter().filter(|one| {
        let manifest = std::fs::read_to_string(one.join("Cargo.toml")).expect("a manifest");
        manifest.lines().any(|line| line == "autotests = false")
    });
    let once: Vec<_> = once.collect();
    assert!(once.len() > 5, "only {once:?} are looked at");
    for one in once {
        assert_eq!(
            left_out(&one.join("tests")),
            Vec::<String>::new(),
            "{}/tests/main.rs does not name them",
            one.display()
        );
    }
}

#[test]
fn a_file_that_is_not_linked_is_found() {
    let folder = tempfile::TempDir::new().expect("a folder");
    for (name, text) in [("main.rs", "mod one;\n"), ("one.rs", ""), ("two.rs", ""), ("notes.txt", "")] {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    assert_eq!(left_out(folder.path()), ["two"]);
}
