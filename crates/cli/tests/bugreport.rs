//! `sidestep bugreport` and `sidestep completions`.

use crate::common;

use crate::common::Sandbox;
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Files of the report by their names, without the folder.
fn files(report: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(report).expect("a report")));
    let entries = archive.entries().expect("an archive").map(|entry| {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a name").file_name().expect("of a file").display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("text");
        (name, text)
    });
    entries.collect()
}

fn report(sandbox: &Sandbox, more: &[&str]) -> (common::Said, BTreeMap<String, String>) {
    let output = sandbox.path("report.tar.gz");
    let mut command = sandbox.command(&["bugreport", "--socket", "agent.sock", "--output", "report.tar.gz"]);
    command.args(more).env("SECRET_OF_THE_USER", "correct-horse-battery");
    let said = common::Said::from(command.output().expect("spawn"));
    assert_eq!(said.code, Some(0), "{said:?}");
    (said, files(&output))
}

#[test]
fn what_is_there_is_in_it_and_what_is_not_has_its_reason() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["run", "true"]).code, Some(0));
    let (said, files) = report(&sandbox, &[]);
    let status: serde_json::Value = serde_json::from_str(&files["status.json"]).expect("JSON");
    assert_eq!(status["address"], sandbox.address.as_str());
    assert!(files["metrics.txt"].contains("sidestep_processes 0"), "{}", files["metrics.txt"]);
    let doctor: serde_json::Value = serde_json::from_str(&files["doctor.json"]).expect("JSON");
    assert!(doctor["machine"].as_array().is_some_and(|checks| checks.len() > 5), "{doctor}");
    assert!(files["kernel.txt"].starts_with("Linux "));
    assert!(files["versions.txt"].contains("sidestepd: ") && files["versions.txt"].contains("bytes"), "{files:?}");
    let broker = format!("pid {}\nName: sidestepd\n", status["pid"]);
    assert!(files["processes.txt"].contains(&broker), "{broker} is not in {}", files["processes.txt"]);
    let contents = &files["contents.txt"];
    assert!(!files.contains_key("policies.json") && contents.contains("policies.json: 0 bytes"), "{contents}");
    assert!(contents.contains("no agent answers at agent.sock"), "{contents}");
    // What it contains is said first.
    let (announced, written) = said.out.split_once("Written: ").expect("both");
    assert!(written.contains("report.tar.gz"), "{written}");
    for name in files.keys().filter(|name| *name != "contents.txt") {
        assert!(announced.contains(name), "{name} is not announced in {announced}");
    }
}

/// A container may have no place to write to.
#[test]
fn standard_output_gets_the_report_and_nothing_else() {
    let sandbox = Sandbox::new();
    let done = sandbox.command(&["bugreport", "--socket", "agent.sock", "--output", "-"]).output().expect("spawn");
    assert!(done.status.success(), "{done:?}");
    let output = sandbox.path("from-stdout.tar.gz");
    std::fs::write(&output, &done.stdout).expect("written");
    assert!(files(&output)["kernel.txt"].starts_with("Linux "));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("kernel.txt") && said.contains("Written: standard output."), "{said}");
    assert!(!sandbox.path("-").exists());
}

#[test]
fn no_variable_and_no_argument_is_in_it() {
    let sandbox = Sandbox::new();
    let secret = sandbox.write("secret-configuration.toml", "spin = \"off\"\n# password-in-a-comment\n");
    let secret = secret.to_str().expect("UTF-8");
    assert_eq!(sandbox.run(&["run", "--config", secret, "true", "argument-of-a-program"]).code, Some(0));
    let (_, files) = report(&sandbox, &[]);
    let all: String = files.into_values().collect();
    let variables = ["correct-horse-battery", "SECRET_OF_THE_USER", "PATH="];
    for word in ["password-in-a-comment", "argument-of-a-program"].iter().chain(&variables) {
        assert!(!all.contains(word), "{word}");
    }
}

#[test]
fn an_agent_that_does_not_answer_is_not_waited_for() {
    let sandbox = Sandbox::new();
    let _silent = std::os::unix::net::UnixListener::bind(sandbox.path("agent.sock")).expect("bind");
    let began = Instant::now();
    let (_, files) = report(&sandbox, &[]);
    let contents = &files["contents.txt"];
    for name in ["services.json", "policies.json", "agent.json"] {
        assert!(contents.contains(&format!("{name}: 0 bytes; stopped after 15000 ms")), "{contents}");
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn only_said_nothing_is_written() {
    let sandbox = Sandbox::new();
    let said = sandbox.run(&["bugreport", "--list"]);
    assert!(said.out.contains("doctor.json") && said.out.contains("Left out: "), "{}", said.out);
    let there: Vec<_> = std::fs::read_dir(sandbox.dir.path()).expect("a directory").flatten().collect();
    assert!(there.iter().all(|entry| !entry.file_name().display().to_string().contains("bugreport")), "{there:?}");
}

#[test]
fn bash_completes_commands_options_and_nothing_that_is_hidden() {
    let sandbox = Sandbox::new();
    let script = sandbox.run(&["completions", "bash"]);
    assert_eq!(script.code, Some(0), "{script:?}");
    let file = sandbox.write("completions.bash", &script.out);
    let complete = |words: &str| {
        let typed = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _sidestep sidestep \
             \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[@]}}\"",
            file.display()
        );
        let said = Command::new("bash").args(["--norc", "-c", &typed]).output().expect("bash");
        assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
        String::from_utf8(said.stdout).expect("UTF-8")
    };
    assert_eq!(complete("sidestep sta").trim(), "status stack");
    assert_eq!(complete("sidestep status --js").trim(), "--json");
    assert_eq!(complete("sidestep talk").trim(), "");
    for shell in ["zsh", "fish"] {
        assert!(sandbox.run(&["completions", shell]).out.contains("bugreport"), "{shell}");
    }
    assert_eq!(sandbox.run(&["completions", "cmd.exe"]).code, Some(2));
}
