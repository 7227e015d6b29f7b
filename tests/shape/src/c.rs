//! Numbers in the C headers of the kernel's programs: enumerators and simple macros.

use std::collections::BTreeMap;

/// Where the headers lie.
pub const HEADERS: &str = "crates/bpf/src";

/// The enumerators of `enum name`, in their order.
pub fn enumerators(header: &str, name: &str) -> Vec<(String, u64)> {
    let text = without_comments(&crate::text(&format!("{HEADERS}/{header}")));
    let (_, rest) = text.split_once(&format!("enum {name} {{")).unwrap_or_else(|| panic!("{header}: no enum {name}"));
    let (body, _) = rest.split_once('}').expect("its end");
    let mut found = Vec::new();
    for entry in body.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let next = found.last().map_or(0, |(_, number)| number + 1);
        let (name, number) = match entry.split_once('=') {
            Some((name, value)) => (name.trim(), number(value)),
            None => (entry, next),
        };
        found.push((name.to_string(), number));
    }
    found
}

/// `#define NAME number` of a header.
pub fn macros(header: &str) -> BTreeMap<String, u64> {
    let text = without_comments(&crate::text(&format!("{HEADERS}/{header}")));
    let defines = text.lines().filter_map(|line| line.strip_prefix("#define "));
    let simple = defines.filter_map(|define| define.split_once(' ').filter(|(name, _)| !name.contains('(')));
    simple.filter_map(|(name, value)| Some((name.to_string(), parse(value)?))).collect()
}

fn number(text: &str) -> u64 {
    parse(text).unwrap_or_else(|| panic!("no number: {text:?}"))
}

/// A number, or `a << b`, perhaps in parentheses.
fn parse(text: &str) -> Option<u64> {
    let text = text.trim().trim_start_matches('(').trim_end_matches(')');
    match text.split_once("<<") {
        Some((a, b)) => Some(a.trim().parse::<u64>().ok()? << b.trim().parse::<u32>().ok()?),
        None => text.parse().ok(),
    }
}

fn without_comments(text: &str) -> String {
    let mut pieces = text.split("/*");
    let first = pieces.next().unwrap_or_default().to_string();
    pieces.fold(first, |all, piece| all + piece.split_once("*/").map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read() {
        for (text, value) in [("7", Some(7)), (" (1 << 8) ", Some(256)), ("1 << 0", Some(1)), ("(64 + 128)", None)] {
            assert_eq!(parse(text), value, "{text}");
        }
        assert_eq!(without_comments("a /* b, */ c /* d */"), "a  c ");
    }
}
