//! Kernel functions that are looked for in stacks.

use std::fs;
use std::ops::Range;

/// Functions that a faster carrier than TCP saves: their names in the report, and in the kernel.
pub const CALLS: [(&str, &str); 3] =
    [("sending", "tcp_sendmsg"), ("receiving", "tcp_recvmsg"), ("connecting", "__sys_connect")];

/// The functions' addresses.
pub struct Symbols(Vec<(&'static str, Range<u64>)>);

impl Symbols {
    /// The running kernel's functions; none if the kernel hides its addresses.
    pub fn of_kernel() -> Symbols {
        Symbols::parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    /// Parses lines of `ADDRESS TYPE NAME`; a function ends where the next one begins.
    fn parse(text: &str) -> Symbols {
        let mut all: Vec<(u64, &str)> = text.lines().filter_map(line).collect();
        all.sort_unstable_by_key(|(address, _)| *address);
        let range = |wanted: &str| {
            let begin = all.iter().find(|(_, name)| *name == wanted)?.0;
            let end = all[all.partition_point(|(address, _)| *address <= begin)..].first()?.0;
            Some(begin..end)
        };
        Symbols(CALLS.iter().filter_map(|(title, function)| Some((*title, range(function)?))).collect())
    }

    /// The functions in the stack.
    pub fn calls(&self, frames: &[u64]) -> impl Iterator<Item = &'static str> {
        self.0.iter().filter(|(_, range)| frames.iter().any(|frame| range.contains(frame))).map(|(title, _)| *title)
    }
}

fn line(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let function = matches!(words.next()?, "t" | "T" | "w" | "W");
    words.next().filter(|_| function && address > 0).map(|name| (address, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ffff100 T tcp_sendmsg\nffff080 t before\nffff120 d data\nffff140 T after\nffff100 T alias\n\
                        ffff200 T tcp_recvmsg\t[module]\n";

    #[test]
    fn a_call_is_from_its_address_to_the_next_functions() {
        let symbols = Symbols::parse(TEXT);
        let calls = |frame| symbols.calls(&[1, frame]).collect::<Vec<_>>();
        assert_eq!(calls(0x0fff_f100), ["sending"]);
        assert_eq!(calls(0x0fff_f13f), ["sending"]);
        assert!(calls(0x0fff_f140).is_empty() && calls(0x0fff_f0ff).is_empty());
        // The last function has no end.
        assert!(calls(0x0fff_f200).is_empty());
    }

    #[test]
    fn a_kernel_that_hides_its_addresses_has_no_calls() {
        let hidden = Symbols::parse("0000000000000000 T tcp_sendmsg\n0000000000000000 T after\n");
        assert_eq!(hidden.calls(&[0]).count(), 0);
    }

    #[test]
    fn this_kernel_has_all_of_them() {
        assert_eq!(Symbols::of_kernel().0.len(), CALLS.len(), "as root");
    }
}
