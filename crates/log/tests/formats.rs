//! What a program writes. A process has one format, so each is tried in a process of its own: this test again.

use serde_json::Value;
use sidestep_log::{Format, Line, init};
use std::process::Command;

const ROLE: &str = "SIDESTEP_LOG_TEST_ROLE";

/// What a process with this role writes to standard error.
fn written(role: &str, filter: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "speak", "--nocapture", "--test-threads", "1"]).env(ROLE, role).env("RUST_LOG", filter);
    if filter.is_empty() {
        command.env_remove("RUST_LOG");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Does something only as the child of another test.
#[test]
fn speak() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.as_str() {
        "json" => init(Format::Json, Line::Named("program"), "info"),
        "named" => init(Format::Text, Line::Named("program"), "info"),
        "dated" => init(Format::Text, Line::Dated, "info"),
        "silenced" => init(Format::Json, Line::Dated, "info,formats=off"),
        other => panic!("{other}"),
    }
    tracing::warn!(pod = "shop/web", count = 3, "a \"quoted\"\nmessage");
    tracing::debug!("a detail");
}

#[test]
fn json_is_one_object_a_line() {
    let text = written("json", "");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1, "{text}");
    let event: Value = serde_json::from_str(lines[0]).unwrap();
    let of = |field: &str| event[field].as_str().unwrap_or("nothing").to_string();
    assert_eq!(
        (of("level"), of("message"), of("pod")),
        ("WARN".into(), "a \"quoted\"\nmessage".into(), "shop/web".into())
    );
    assert_eq!(event["count"], 3);
    assert!(of("timestamp").starts_with("20") && of("timestamp").ends_with('Z'), "{event}");
}

#[test]
fn lines_for_people() {
    let text = written("named", "");
    assert!(text.starts_with("program: a \"quoted\"") && text.contains("pod=\"shop/web\" count=3"), "{text}");
    let text = written("dated", "");
    assert!(text.starts_with("20") && text.contains(" WARN a \"quoted\""), "{text}");
}

#[test]
fn the_variable_decides_what_is_logged() {
    assert_eq!(written("json", "debug").lines().count(), 2);
    assert_eq!(written("json", "error"), "");
    assert_eq!(written("json", "formats=off"), "");
    // An invalid one counts as none.
    assert_eq!(written("json", "formats=loud").lines().count(), 1);
}

#[test]
fn what_the_program_silences_is_heard_only_if_it_is_named() {
    for level in ["", "info", "debug", "formats=loud"] {
        assert_eq!(written("silenced", level), "", "{level:?}");
    }
    assert_eq!(written("silenced", "error,formats=debug").lines().count(), 2);
}
