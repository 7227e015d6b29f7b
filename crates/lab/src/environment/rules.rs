//! Rules in the format of iptables-restore(8).

use super::error::FillError;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// The program that loads them.
pub fn restore(backend: Option<&str>) -> Result<String, FillError> {
    match backend {
        None => Ok("iptables-restore".into()),
        Some(name @ ("legacy" | "nft")) => Ok(format!("iptables-{name}-restore")),
        Some(other) => Err(FillError::Backend(other.into())),
    }
}

/// Addresses that no host has (RFC 2544): the kernel compares these rules, but none matches.
const NOBODY: u32 = 198 << 24 | 18 << 16;
/// The number of addresses in 198.18.0.0/15.
const MOST: u32 = 1 << 17;

/// Rules for a chain that match nothing, one on each line.
pub fn fill(chain: &str, count: u32) -> String {
    let mut text = String::new();
    for number in 0..count {
        let address = Ipv4Addr::from(NOBODY + number % MOST);
        writeln!(text, "-A {chain} -d {address}/32 -p tcp -m tcp --dport 80 -j RETURN").expect("a string takes it");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_rules_as_are_asked_for_none_twice() {
        let text = fill("OUTPUT", 101_806);
        let rules: std::collections::HashSet<&str> =
            text.lines().filter(|line| line.starts_with("-A OUTPUT")).collect();
        assert_eq!(rules.len(), 101_806);
    }
}
