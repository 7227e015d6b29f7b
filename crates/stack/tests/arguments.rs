//! Wrong arguments end the program at once, with a message that names them.

use std::process::Command;

fn complaint(words: &[&str]) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_sidestep-stack")).args(words).output().expect("it starts");
    assert!(!done.status.success(), "{words:?}");
    String::from_utf8(done.stderr).expect("text")
}

#[test]
fn a_processor_that_is_not_there() {
    for cpu in ["1023", "1024", "99999999"] {
        let said = complaint(&["--device", "lo", "--cpu", cpu]);
        assert!(said.contains(&format!("--cpu {cpu}: this process may not run there")), "{said}");
    }
}

#[test]
fn peers_and_ports_that_are_none() {
    for words in [["--peers", "10.0.0.0/33"], ["--peers", "host"], ["--ports", "90-80"], ["--ports", "http"]] {
        let said = complaint(&[&["--device", "lo"][..], &words].concat());
        assert!(said.contains(words[0]) && said.contains(words[1]), "{said}");
    }
}
