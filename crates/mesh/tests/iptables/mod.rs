//! Evaluates an iptables table for the first packet of a connection, with just the matches that istio-iptables uses.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

pub struct Packet<'a> {
    pub protocol: &'a str,
    pub source: IpAddr,
    pub destination: SocketAddr,
    pub input: Option<&'a str>,
    pub output: Option<&'a str>,
    /// User and group.
    pub owner: Option<(u32, u32)>,
}

/// Chains by their names.
pub struct Tables(HashMap<String, Vec<Line>>);

struct Line {
    text: String,
    matches: Vec<Match>,
    target: Target,
}

struct Match {
    is_negated: bool,
    what: String,
    value: String,
}

enum Target {
    Return,
    Redirect(u16),
    Chain(String),
}

/// The result of a walk.
pub struct Found<'a> {
    /// The last line that returned, or that jumped to the redirection. None: no line did.
    pub line: Option<&'a str>,
    /// The chain that redirected, and the port.
    pub redirect: Option<(&'a str, u16)>,
}

enum End<'a> {
    Fell,
    Returned(&'a Line),
    /// The jump, once known; the chain; the port.
    Redirected(Option<&'a Line>, &'a str, u16),
}

impl Tables {
    /// Reads the format of iptables-restore.
    pub fn read(text: &str) -> Tables {
        let lines: Vec<&str> = text.lines().collect();
        let [first, rules @ .., last] = &lines[..] else { panic!("{text}") };
        assert_eq!((*first, *last), ("* nat", "COMMIT"));
        let mut chains = HashMap::from(["OUTPUT", "PREROUTING"].map(|name| (name.to_string(), Vec::new())));
        for rule in rules {
            let words: Vec<&str> = rule.split(' ').collect();
            match words[..] {
                ["-N", name] => assert!(chains.insert(name.to_string(), Vec::new()).is_none(), "{name}"),
                ["-A", name, ref rest @ ..] => chains.get_mut(name).expect(name).push(line(rule, rest)),
                ["-I", name, "1", ref rest @ ..] => chains.get_mut(name).expect(name).insert(0, line(rule, rest)),
                _ => panic!("{rule}"),
            }
        }
        Tables(chains)
    }

    /// Starts in one of the kernel's own chains.
    pub fn walk(&self, chain: &str, packet: &Packet) -> Found<'_> {
        match self.chain(chain, packet) {
            End::Fell => Found { line: None, redirect: None },
            End::Returned(line) => Found { line: Some(&line.text), redirect: None },
            End::Redirected(line, chain, port) => {
                Found { line: line.map(|line| line.text.as_str()), redirect: Some((chain, port)) }
            }
        }
    }

    fn chain(&self, chain: &str, packet: &Packet) -> End<'_> {
        let (name, lines) = self.0.get_key_value(chain).unwrap_or_else(|| panic!("no chain {chain}"));
        let mut last_return = None;
        for line in lines.iter().filter(|line| line.is_matched(packet)) {
            match &line.target {
                Target::Return => return End::Returned(line),
                Target::Redirect(port) => return End::Redirected(None, name, *port),
                Target::Chain(next) => match self.chain(next, packet) {
                    End::Fell => {}
                    End::Returned(inner) => last_return = Some(inner),
                    End::Redirected(jump, by, port) => return End::Redirected(jump.or(Some(line)), by, port),
                },
            }
        }
        // After a return from a chain the walk continues behind the jump, and may reach the end of this chain.
        last_return.map_or(End::Fell, End::Returned)
    }
}

fn line(text: &str, words: &[&str]) -> Line {
    let mut words = words.iter().copied();
    let (mut matches, mut is_negated, mut target, mut port) = (Vec::new(), false, None, None);
    while let Some(word) = words.next() {
        if word == "!" {
            is_negated = true;
            continue;
        }
        let value = words.next().unwrap_or_else(|| panic!("{text}: {word} has no value"));
        match word {
            "-m" => assert!(["owner", "multiport"].contains(&value), "{text}"),
            "-j" => target = Some(value),
            "--to-ports" | "--to-port" => port = Some(value.parse().unwrap()),
            _ => matches.push(Match { is_negated, what: word.to_string(), value: value.to_string() }),
        }
        is_negated = false;
    }
    let target = match (target, port) {
        (Some("RETURN"), None) => Target::Return,
        (Some("REDIRECT"), Some(port)) => Target::Redirect(port),
        (Some(chain), None) => Target::Chain(chain.to_string()),
        _ => panic!("{text}"),
    };
    let line = Line { text: text.to_string(), matches, target };
    line.check();
    line
}

impl Line {
    /// Port matches and redirections need a protocol.
    fn check(&self) {
        let has = |what: &str| self.matches.iter().any(|m| m.what == what && !m.is_negated);
        let needs_protocol =
            self.matches.iter().any(|m| m.what.starts_with("--dport")) || matches!(self.target, Target::Redirect(_));
        assert!(!needs_protocol || has("-p"), "{}", self.text);
    }

    fn is_matched(&self, packet: &Packet) -> bool {
        self.matches.iter().all(|m| m.holds(packet) != m.is_negated)
    }
}

impl Match {
    fn holds(&self, packet: &Packet) -> bool {
        let is_number = |number: u32| self.value.parse() == Ok(number);
        match self.what.as_str() {
            "-p" => packet.protocol == self.value,
            "-i" => packet.input == Some(&self.value),
            "-o" => packet.output == Some(&self.value),
            "-s" => is_within(packet.source, &self.value),
            "-d" => is_within(packet.destination.ip(), &self.value),
            "--dport" => is_number(packet.destination.port().into()),
            "--dports" => self.value.split(',').any(|port| port.parse() == Ok(packet.destination.port())),
            "--uid-owner" => is_number(packet.owner.expect("only what is sent has an owner").0),
            "--gid-owner" => is_number(packet.owner.expect("only what is sent has an owner").1),
            other => panic!("{other}"),
        }
    }
}

/// Compares bit by bit, as the kernel does. A table of one family contains no addresses of the other.
fn is_within(ip: IpAddr, range: &str) -> bool {
    let (network, length) = range.split_once('/').unwrap();
    let (ip, width) = bits(ip);
    let (network, same_width) = bits(network.parse().unwrap());
    assert_eq!(width, same_width, "{range}");
    let rest = width - length.parse::<u32>().unwrap();
    rest == 128 || ip >> rest == network >> rest
}

fn bits(ip: IpAddr) -> (u128, u32) {
    match ip {
        IpAddr::V4(v4) => (v4.to_bits().into(), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}
