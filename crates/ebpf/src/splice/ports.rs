//! Opted-in ports.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// `80` or `8000-8080`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRange(pub RangeInclusive<u16>);

/// Why a text is no range of ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    #[error("'{0}' is not a port: 1 to 65535")]
    NoPort(String),
    #[error("{0}: the last port is below the first")]
    Empty(String),
}

impl FromStr for PortRange {
    type Err = PortError;

    fn from_str(text: &str) -> Result<PortRange, PortError> {
        let number = |text: &str| match text.parse() {
            Ok(port @ 1..) => Ok(port),
            _ => Err(PortError::NoPort(text.into())),
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = number(first)?..=number(last)?;
        if range.is_empty() { Err(PortError::Empty(text.into())) } else { Ok(PortRange(range)) }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match (self.0.start(), self.0.end()) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

/// A set of ports, as the table has it: bit `port % 64` of word `port / 64`.
#[derive(Clone, PartialEq, Eq)]
pub struct Ports {
    words: Vec<u64>,
}

impl Ports {
    /// From the words of the table.
    pub fn from_words(words: Vec<u64>) -> Ports {
        Ports { words }
    }

    /// The words of the table.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Whether the port is in the set.
    pub fn contains(&self, port: u16) -> bool {
        self.words[usize::from(port) / 64] >> (port % 64) & 1 == 1
    }

    /// The ranges in the set, in ascending order.
    pub fn ranges(&self) -> Vec<PortRange> {
        let mut found: Vec<PortRange> = Vec::new();
        for port in (0..=u16::MAX).filter(|port| self.contains(*port)) {
            match found.last_mut() {
                Some(PortRange(last)) if *last.end() + 1 == port => *last = *last.start()..=port,
                _ => found.push(PortRange(port..=port)),
            }
        }
        found
    }
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_list().entries(self.ranges().iter().map(PortRange::to_string)).finish()
    }
}

impl FromIterator<PortRange> for Ports {
    fn from_iter<T: IntoIterator<Item = PortRange>>(ranges: T) -> Ports {
        let mut words = vec![0; 65536 / 64];
        for port in ranges.into_iter().flat_map(|range| range.0) {
            words[usize::from(port) / 64] |= 1 << (port % 64);
        }
        Ports { words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_come_back_joined() {
        let wanted = ["80", "1024-65535", "81", "443"].map(|text| text.parse().unwrap());
        let ports: Ports = wanted.into_iter().collect();
        let shown: Vec<String> = ports.ranges().iter().map(PortRange::to_string).collect();
        assert_eq!(shown, ["80-81", "443", "1024-65535"]);
        assert!(ports.contains(65535) && !ports.contains(82) && !ports.contains(0));
    }

    #[test]
    fn what_is_no_port_is_refused() {
        for text in ["0", "65536", "80-", "90-80", "http", ""] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
        let told = |text: &str| text.parse::<PortRange>().unwrap_err().to_string();
        assert_eq!(told("http"), "'http' is not a port: 1 to 65535");
        assert_eq!(told("90-80"), "90-80: the last port is below the first");
    }
}
