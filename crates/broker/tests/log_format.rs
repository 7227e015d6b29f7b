//! `--log-format`: the same error for people and for collectors.

use std::process::Command;

fn said(format: &str) -> String {
    let mut broker = Command::new(env!("CARGO_BIN_EXE_sidestepd"));
    let output = broker.args(["--log-format", format, "--config", "/nonexistent.toml"]).output().expect("spawn");
    assert!(!output.status.success());
    String::from_utf8(output.stderr).expect("UTF-8")
}

#[test]
fn an_error_is_a_line_or_an_object() {
    let text = said("text");
    assert!(text.starts_with("sidestepd: /nonexistent.toml: "), "{text}");
    let event: serde_json::Value = serde_json::from_str(&said("json")).expect("one object");
    assert_eq!(event["level"], "ERROR");
    assert_eq!(format!("sidestepd: {}\n", event["message"].as_str().expect("a text")), text);
}
