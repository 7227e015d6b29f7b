//! Reason codes and kinds of messages: each number once, and each reason explained.

use sidestep_abi::Reason;
use sidestep_abi::msg::Kind;
use sidestep_abi::reason::REASONS;
use sidestep_shape::text;
use std::collections::BTreeSet;

#[test]
fn every_reason_has_a_number_and_a_name_of_its_own() {
    let numbers: BTreeSet<u8> = Reason::ALL.iter().map(|r| *r as u8).collect();
    let names: BTreeSet<&str> = Reason::ALL.iter().map(|r| r.name()).collect();
    assert_eq!((numbers.len(), names.len()), (Reason::ALL.len(), Reason::ALL.len()));
    for reason in Reason::ALL {
        let code = *reason as u8;
        assert!(code > 0 && usize::from(code) < REASONS, "{reason:?}: 0 means none, {REASONS} is the end of the page");
        assert_eq!(Reason::from_code(code), Some(*reason));
        assert!(reason.name().chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", reason.name());
        assert!(reason.meaning().ends_with('.'), "{reason:?}: {}", reason.meaning());
    }
    let known: Vec<u8> = (0..=u8::MAX).filter(|c| Reason::from_code(*c).is_some()).collect();
    assert_eq!(known, Vec::from_iter(numbers), "from_code knows others than ALL");
}

/// A row `| number | `name` | ...` for each.
#[test]
fn every_reason_is_explained_to_users() {
    let limitations = text("LIMITATIONS.md");
    let rows: Vec<Vec<&str>> =
        limitations.lines().map(|l| l.trim_matches('|').split('|').map(str::trim).collect()).collect();
    for reason in Reason::ALL {
        let (code, name) = ((*reason as u8).to_string(), format!("`{}`", reason.name()));
        let mut found = rows.iter().filter(|r| r.len() > 2 && r[0] == code && r[1] == name);
        assert!(found.next().is_some(), "LIMITATIONS.md has no row | {code} | {name} | ...");
        assert!(found.next().is_none(), "LIMITATIONS.md has two rows for {name}");
    }
}

/// The compiler sees to it that numbers are unique; that `from_code` knows every kind it cannot see.
#[test]
fn every_kind_is_understood() {
    let source = text("crates/abi/src/msg.rs");
    let (_, rest) = source.split_once("pub enum Kind {").expect("the kinds");
    let (body, _) = rest.split_once("\n}").expect("their end");
    let written: Vec<(String, u32)> = body
        .lines()
        .filter(|l| !l.trim_start().starts_with("//"))
        .filter_map(|l| l.trim().trim_end_matches(',').split_once(" = "))
        .map(|(name, code)| (name.to_string(), code.parse().expect("a number")))
        .collect();
    assert!(written.len() > 10, "the kinds are not read: {written:?}");
    let known = (0..=1000).filter_map(|c| Some((format!("{:?}", Kind::from_code(c)?), c)));
    assert_eq!(BTreeSet::from_iter(known), BTreeSet::from_iter(written));
}
