//! `status`, `detach`, `attach`, `reasons`, and the help.

mod common;

use common::Sandbox;

#[test]
fn without_a_broker_they_say_so() {
    let sandbox = Sandbox::new();
    for args in [&["status"][..], &["status", "--json"], &["detach", "--all"], &["attach", "--pid", "1"]] {
        let said = sandbox.run(args);
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{args:?}");
        assert!(said.err.contains(&format!("no broker runs at {}", sandbox.address)), "{}", said.err);
    }
}

#[test]
fn the_status_has_a_table_and_json() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["run", "true"]).code, Some(0));
    let said = sandbox.run(&["status"]);
    assert!(said.out.starts_with(&format!("Broker {}", sandbox.address)), "{}", said.out);
    for section in ["Processes: none", "Links: none", "Connections: none"] {
        assert!(said.out.contains(section), "{section}: {}", said.out);
    }
    let json = sandbox.run(&["status", "--json"]).json();
    assert_eq!(json["address"], sandbox.address.as_str());
    assert_eq!(json["version"], sidestep_abi::VERSION);
    for list in ["processes", "links", "connections"] {
        assert_eq!(json[list], serde_json::json!([]), "{list}");
    }
    // An address as an option goes before the variable.
    let said = sandbox.run(&["status", "--address", "@sidestep-test-nobody"]);
    assert!(said.err.contains("@sidestep-test-nobody"), "{}", said.err);
}

#[test]
fn everything_is_detached_until_attached() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["run", "true"]).code, Some(0));
    assert_eq!(sandbox.run(&["detach", "--all"]).out, "0 connections on the way back to the kernel\n");
    assert_eq!(sandbox.run(&["status", "--json"]).json()["hold"], true);
    assert!(sandbox.run(&["status"]).out.contains("Everything is detached"));
    assert_eq!(sandbox.run(&["attach", "--all"]).out, "0 connections may be upgraded again\n");
    assert_eq!(sandbox.run(&["status", "--json"]).json()["hold"], false);
}

#[test]
fn what_is_not_there_cannot_be_detached() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["run", "true"]).code, Some(0));
    for (what, text) in
        [(vec!["--pid", "1"], "process 1 is not under Sidestep"), (vec!["7.3"], "there is no connection 7.3")]
    {
        let said = sandbox.run(&[&["detach"], &what[..]].concat());
        assert_eq!(said.code, Some(1));
        assert!(said.err.contains(text), "{}", said.err);
    }
    let wrong: [&[&str]; 5] = [&[], &["--all", "--pid", "1"], &["--all", "1.2"], &["seven"], &["--pid", "x"]];
    for what in wrong {
        assert_eq!(sandbox.run(&[&["detach"], what].concat()).code, Some(2), "{what:?}");
    }
}

#[test]
fn every_reason_is_explained() {
    let sandbox = Sandbox::new();
    let json = sandbox.run(&["reasons", "--json"]).json();
    let list = json.as_array().expect("a list");
    assert_eq!(list.len(), sidestep_abi::Reason::ALL.len());
    let table = sandbox.run(&["reasons"]).out;
    for (entry, reason) in list.iter().zip(sidestep_abi::Reason::ALL) {
        assert_eq!((&entry["code"], &entry["name"]), (&(*reason as u8).into(), &reason.name().into()));
        assert!(entry["meaning"].as_str().is_some_and(|m| m.ends_with(['.', ')'])), "{entry}");
        assert!(table.contains(reason.name()), "{}", reason.name());
    }
}

#[test]
fn help_teaches_with_examples() {
    let sandbox = Sandbox::new();
    for command in [&[][..], &["run"], &["status"], &["detach"], &["attach"], &["doctor"]] {
        let said = sandbox.run(&[command, &["--help"]].concat());
        assert_eq!(said.code, Some(0));
        assert!(said.out.contains("Examples:\n  sidestep "), "{command:?}:\n{}", said.out);
        assert!(!said.out.contains("talk-to-yourself"), "hidden");
    }
    assert_eq!(sandbox.run(&[]).code, Some(2), "no command: the help, as an error");
}
