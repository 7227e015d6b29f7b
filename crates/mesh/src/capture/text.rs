//! Reads the values of flags and annotations: texts, most of them comma-separated lists.

use super::outbound::NOBODY;
use super::rules::{InboundPorts, OwnerGroups, Ranges};
use crate::field::Invalid;
use ipnet::IpNet;
use std::collections::HashSet;
use std::hash::Hash;
use std::str::FromStr;

pub type Result<T> = std::result::Result<T, Invalid>;

/// A text, and the name of the flag or annotation that has it.
pub struct Text<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

const PORT: &str = "a port from 1 to 65535";
const RANGE: &str = "a range such as 10.0.0.0/8 or fd00::/8";
const INTERFACE: &str = "the full name of an interface, such as eth0";
const REDIRECT: &str =
    "REDIRECT (marks and routes of TPROXY are for packet filters, and a pod of mode NONE needs no capture)";

impl Text<'_> {
    pub fn wrong<T>(&self, found: &str, expected: &'static str) -> Result<T> {
        Err(Invalid { path: self.name.to_string(), found: format!("{found:?}"), expected })
    }

    fn is_everything(&self) -> bool {
        self.text.trim() == "*"
    }

    /// Each part once, in the order given. Empty parts are ignored, as in Istio.
    fn list<T: Clone + Eq + Hash>(&self, read: impl Fn(&str) -> Option<T>, expected: &'static str) -> Result<Vec<T>> {
        let (mut list, mut seen) = (Vec::new(), HashSet::new());
        for part in self.text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Some(item) = read(part) else { return self.wrong(part, expected) };
            if seen.insert(item.clone()) {
                list.push(item);
            }
        }
        Ok(list)
    }

    pub fn port(&self) -> Result<u16> {
        port(self.text.trim()).map_or_else(|| self.wrong(self.text, PORT), Ok)
    }

    pub fn ports(&self) -> Result<Vec<u16>> {
        self.list(port, PORT)
    }

    pub fn ranges(&self) -> Result<Vec<IpNet>> {
        self.list(range, RANGE)
    }

    pub fn interfaces(&self) -> Result<Vec<String>> {
        self.list(interface, INTERFACE)
    }

    /// Numbers, or names that `number_of` knows.
    pub fn ids(&self, number_of: &dyn Fn(&str) -> Option<u32>, expected: &'static str) -> Result<Vec<u32>> {
        self.list(|part| number(part).or_else(|| number_of(part)).filter(|id| *id != NOBODY), expected)
    }

    /// As `ids`, for the proxy's owners. The list must not be empty, or the proxy's own connections would be captured for ever.
    pub fn owners(&self, number_of: &dyn Fn(&str) -> Option<u32>, expected: &'static str) -> Result<Vec<u32>> {
        let owners = self.ids(number_of, expected)?;
        if owners.is_empty() { self.wrong(self.text, expected) } else { Ok(owners) }
    }

    pub fn all_or_ranges(&self) -> Result<Ranges> {
        if self.is_everything() { Ok(Ranges::All) } else { self.ranges().map(Ranges::These) }
    }

    /// `excluded` counts only where all ports are included.
    pub fn inbound_ports(&self, excluded: Vec<u16>) -> Result<InboundPorts> {
        if self.is_everything() { Ok(InboundPorts::AllBut(excluded)) } else { self.ports().map(InboundPorts::Only) }
    }

    /// As `inbound_ports`.
    pub fn owner_groups(
        &self,
        excluded: Vec<u32>,
        number_of: &dyn Fn(&str) -> Option<u32>,
        expected: &'static str,
    ) -> Result<OwnerGroups> {
        if self.is_everything() {
            Ok(OwnerGroups::AllBut(excluded))
        } else {
            self.ids(number_of, expected).map(OwnerGroups::Only)
        }
    }

    /// Accepts REDIRECT. Empty is istio-iptables' own default and means the same.
    pub fn mode(&self) -> Result<()> {
        match self.text {
            "" | "REDIRECT" => Ok(()),
            other => self.wrong(other, REDIRECT),
        }
    }
}

/// Digits only: FromStr accepts `+1`, too.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
}

fn port(text: &str) -> Option<u16> {
    number(text).filter(|port| *port != 0)
}

/// Refuses a range of IPv4-mapped addresses: `ip6tables` never sees such packets, so Istio captures nothing with it.
fn range(text: &str) -> Option<IpNet> {
    text.parse().ok().filter(|range: &IpNet| range.addr().to_canonical() == range.addr())
}

/// A name that the kernel accepts. A `+` at the end would be a pattern for iptables, which Istio does not document.
fn interface(text: &str) -> Option<String> {
    let is_foreign = |c: char| c == '/' || c == ':' || c.is_whitespace();
    let is_name = text.len() < 16 && !text.contains(is_foreign) && ![".", ".."].contains(&text);
    (is_name && !text.ends_with('+')).then(|| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::time::{Duration, Instant};

    /// Anybody may write annotations of up to 256 KiB.
    #[test]
    fn a_long_list_is_read_at_once() {
        let mut text = String::new();
        (0..50_000).for_each(|n| write!(text, "{n:x},").unwrap());
        text += "0,1";
        let began = Instant::now();
        let list = Text { name: "excludeInterfaces", text: &text }.interfaces().unwrap();
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        assert_eq!((list.len(), list[16].as_str()), (50_000, "10"));
    }
}
