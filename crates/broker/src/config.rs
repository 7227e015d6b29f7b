//! The configuration file. Reports one error at a time, with file, line and key.
//!
//! ```toml
//! spin = "auto"            # auto, off, or microseconds
//! upgrade-after = "auto"   # or bytes, or operations ("8ops")
//! ring-size = "256K"       # one direction of one connection
//! io-uring = "follow"      # follow, or refuse
//! report = "/var/log/sidestep.jsonl"
//!
//! cross-namespaces = false # addresses mean the same in every network namespace of this host
//!
//! same-pod = false         # processes of one pod of Kubernetes may share memory with each other
//!
//! [[allow]]                # processes that may share memory with each other
//! uids = [1000, "envoy"]   # of these users, by number or by name
//! groups = ["www-data"]    # of these groups
//! services = ["nginx.service"] # of these services of systemd
//! ```

use crate::settings::{IoUring, RingSize, SettingError, Spin, UpgradeAfter};
use crate::trust::{Rule, Rules};
use crate::users;
use std::error::Error;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The settings of a configuration file; None: not set there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// How long a thread spins before it sleeps.
    pub spin: Option<Spin>,
    /// How much traffic makes a connection worth an upgrade.
    pub upgrade_after: Option<UpgradeAfter>,
    /// Bytes of one ring.
    pub ring_size: Option<RingSize>,
    /// How io_uring is treated.
    pub io_uring: Option<IoUring>,
    /// Where processes write their reports.
    pub report: Option<PathBuf>,
    /// Whether ends in different network namespaces are paired.
    pub cross_namespaces: bool,
    /// Who may share memory.
    pub rules: Rules,
}

/// A file that cannot be read, or is no valid configuration.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum ConfigError {
    #[error("{}: cannot read it", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{file}:{line}")]
    Wrong { file: String, line: usize, source: Mistake },
}

/// What is wrong in one line.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum Mistake {
    /// An error of the TOML parser.
    #[error("{0}")]
    Syntax(String),
    #[error("{0}: unknown key; {KEYS}")]
    UnknownKey(String),
    #[error("allow.{0}: unknown key; known keys: uids, groups, services")]
    UnknownKeyOfAllow(String),
    #[error("{key}: expected {expected}, found {found}")]
    OtherType { key: String, expected: &'static str, found: &'static str },
    #[error("{key}")]
    Setting { key: String, source: SettingError },
    #[error("report: expected an absolute path, found '{0}'")]
    RelativePath(String),
    #[error("allow: expected a table with uids, groups or services")]
    NoTable,
    #[error("allow: a single user may share memory with itself anyway; expected two users, or a group, or a service")]
    TooFew,
    #[error("allow.{key}: expected a number from 0 up, or a name")]
    NoNumber { key: &'static str },
    #[error("allow.{key}: there is no '{name}' on this machine")]
    Nobody { key: &'static str, name: String },
    #[error("allow.{key}: cannot look up '{name}'")]
    LookUp { key: &'static str, name: String, source: Box<dyn Error + Send + Sync> },
    #[error("allow.services: expected the name of a unit, as \"nginx.service\"")]
    NoService,
}

impl Config {
    /// Reads and checks the file.
    pub fn load(file: &Path) -> Result<Config, ConfigError> {
        let read = std::fs::read_to_string(file);
        let text = read.map_err(|source| ConfigError::Read { file: file.into(), source })?;
        let find =
            |key: &str, name: &str| Ok(if key == UIDS { users::by_name(name)? } else { users::group_by_name(name)? });
        Config::parse(&text, &file.display().to_string(), &find)
    }

    /// `file`: name of the file, for errors. `find`: finds the number of a user or group by name.
    pub fn parse(text: &str, file: &str, find: &Find<'_>) -> Result<Config, ConfigError> {
        let source = Source { text, file, find };
        let table = DeTable::parse(text)
            .map_err(|e| source.error(e.span().unwrap_or(0..0), Mistake::Syntax(e.message().into())))?;
        let mut config = Config::default();
        for (key, value) in table.get_ref() {
            source.entry(&mut config, key, value)?;
        }
        Ok(config)
    }
}

/// The number of the user (key `uids`) or group (`groups`) with this name. None: there is none. Err: the system's databases cannot be
/// asked.
pub type Find<'a> = dyn Fn(&str, &str) -> Result<Option<u32>, Box<dyn Error + Send + Sync>> + 'a;

const UIDS: &str = "uids";
const GROUPS: &str = "groups";
const SERVICES: &str = "services";

/// The text of the file, for the lines in errors.
struct Source<'a> {
    text: &'a str,
    file: &'a str,
    find: &'a Find<'a>,
}

type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;
type Value<'a> = Spanned<DeValue<'a>>;

impl Source<'_> {
    fn error(&self, at: Range<usize>, source: Mistake) -> ConfigError {
        let before = self.text.get(..at.start).unwrap_or(self.text);
        let line = before.bytes().filter(|&c| c == b'\n').count() + 1;
        ConfigError::Wrong { file: self.file.into(), line, source }
    }

    fn entry(&self, config: &mut Config, key: &Key<'_>, value: &Value<'_>) -> Result<(), ConfigError> {
        let name = key.get_ref().as_ref();
        let wrong = |mistake| self.error(value.span(), mistake);
        match name {
            "spin" => config.spin = Some(setting(name, value).map_err(wrong)?),
            "upgrade-after" => config.upgrade_after = Some(setting(name, value).map_err(wrong)?),
            "ring-size" => config.ring_size = Some(setting(name, value).map_err(wrong)?),
            "io-uring" => config.io_uring = Some(setting(name, value).map_err(wrong)?),
            "report" => match value.get_ref() {
                DeValue::String(path) if path.starts_with('/') => config.report = Some(PathBuf::from(path.as_ref())),
                DeValue::String(path) => return Err(wrong(Mistake::RelativePath(path.to_string()))),
                other => return Err(wrong(other_type(name, "a path in quotes", other))),
            },
            "cross-namespaces" => config.cross_namespaces = boolean(name, value).map_err(wrong)?,
            "same-pod" => config.rules.same_pod = boolean(name, value).map_err(wrong)?,
            "allow" => config.rules.allow = self.allow(value)?,
            _ => return Err(self.error(key.span(), Mistake::UnknownKey(name.into()))),
        }
        Ok(())
    }

    fn allow(&self, value: &Value<'_>) -> Result<Vec<Rule>, ConfigError> {
        let DeValue::Array(groups) = value.get_ref() else {
            return Err(self.error(value.span(), other_type("allow", "[[allow]] tables", value.get_ref())));
        };
        groups.iter().map(|rule| self.rule(rule)).collect()
    }

    fn rule(&self, value: &Value<'_>) -> Result<Rule, ConfigError> {
        let DeValue::Table(table) = value.get_ref() else {
            return Err(self.error(value.span(), Mistake::NoTable));
        };
        let mut rule = Rule::default();
        for (key, list) in table.iter() {
            match key.get_ref().as_ref() {
                UIDS => rule.uids = self.list(UIDS, list, |value| self.number(UIDS, value))?,
                GROUPS => rule.gids = self.list(GROUPS, list, |value| self.number(GROUPS, value))?,
                SERVICES => rule.services = self.list(SERVICES, list, |value| self.service(value))?,
                other => return Err(self.error(key.span(), Mistake::UnknownKeyOfAllow(other.into()))),
            }
        }
        let is_alone = rule.gids.is_empty() && rule.services.is_empty() && rule.uids.len() < 2;
        if is_alone { Err(self.error(value.span(), Mistake::TooFew)) } else { Ok(rule) }
    }

    fn list<T>(
        &self,
        key: &str,
        value: &Value<'_>,
        each: impl Fn(&Value<'_>) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        match value.get_ref() {
            DeValue::Array(list) => list.iter().map(each).collect(),
            other => Err(self.error(value.span(), other_type(&format!("allow.{key}"), "a list", other))),
        }
    }

    fn number(&self, key: &'static str, value: &Value<'_>) -> Result<u32, ConfigError> {
        let found = match value.get_ref() {
            DeValue::Integer(n) => u32::from_str_radix(n.as_str(), n.radix()).ok().filter(|&number| number != NONE),
            DeValue::String(name) => Some(self.named(key, name, value)?),
            _ => None,
        };
        found.ok_or_else(|| self.error(value.span(), Mistake::NoNumber { key }))
    }

    fn named(&self, key: &'static str, name: &str, value: &Value<'_>) -> Result<u32, ConfigError> {
        let name = name.to_owned();
        let mistake = match (self.find)(key, &name) {
            Ok(Some(number)) => return Ok(number),
            Ok(None) => Mistake::Nobody { key, name },
            Err(source) => Mistake::LookUp { key, name, source },
        };
        Err(self.error(value.span(), mistake))
    }

    fn service(&self, value: &Value<'_>) -> Result<String, ConfigError> {
        match value.get_ref() {
            DeValue::String(name) if name.ends_with(".service") && !name.contains('/') => Ok(name.to_string()),
            _ => Err(self.error(value.span(), Mistake::NoService)),
        }
    }
}

/// The number that means "none" to setuid(2) and chown(2).
const NONE: u32 = u32::MAX;

const KEYS: &str =
    "known keys: spin, upgrade-after, ring-size, io-uring, report, cross-namespaces, same-pod, [[allow]]";

/// A setting that may be a string or a plain number.
fn setting<T: std::str::FromStr<Err = SettingError>>(key: &str, value: &Value<'_>) -> Result<T, Mistake> {
    let parsed = match value.get_ref() {
        DeValue::String(text) => text.parse(),
        DeValue::Integer(n) if n.radix() == 10 => n.as_str().parse(),
        other => return Err(other_type(key, "a string or a number", other)),
    };
    parsed.map_err(|source| Mistake::Setting { key: key.into(), source })
}

fn boolean(key: &str, value: &Value<'_>) -> Result<bool, Mistake> {
    match value.get_ref() {
        DeValue::Boolean(yes) => Ok(*yes),
        other => Err(other_type(key, "true or false", other)),
    }
}

fn other_type(key: &str, expected: &'static str, found: &DeValue<'_>) -> Mistake {
    Mistake::OtherType { key: key.into(), expected, found: kind(found) }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_error::chain;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, "f", &|key, name| match (key, name) {
            (UIDS, "envoy") => Ok(Some(1337)),
            (GROUPS, "www-data") => Ok(Some(33)),
            (_, "remote") => Err("the directory does not answer".into()),
            _ => Ok(None),
        })
    }

    #[test]
    fn every_key_is_read() {
        let text = "spin = 20\nupgrade-after = '0ops'\nring-size = '1M'\nio-uring = 'refuse'\nreport = '/tmp/r'\ncross-namespaces = true\n\
                    same-pod = true\n\
                    [[allow]]\nuids = [1000, 'envoy']\n[[allow]]\nuids = [0x2]\ngroups = [7, 'www-data']\nservices = ['nginx.service']\n";
        let config = parse(text).expect("valid");
        assert_eq!(config.spin, Some(Spin::Microseconds(20)));
        assert_eq!(config.upgrade_after, Some(UpgradeAfter::Ops(0)));
        assert_eq!(config.ring_size.map(|s| s.to_string()).as_deref(), Some("1048576"));
        assert_eq!(config.io_uring, Some(IoUring::Refuse));
        assert_eq!(config.report, Some("/tmp/r".into()));
        assert!(config.cross_namespaces);
        let users = Rule { uids: vec![1000, 1337], ..Rule::default() };
        let mixed = Rule { uids: vec![2], gids: vec![7, 33], services: vec!["nginx.service".into()] };
        assert_eq!(config.rules, Rules { allow: vec![users, mixed], same_pod: true });
        assert_eq!(parse("").expect("valid"), Config::default());
    }

    #[test]
    fn one_line_allows_a_pair() {
        let config = parse("allow = [{services = ['nginx.service'], uids = ['envoy']}]\n").expect("valid");
        let rule = Rule { uids: vec![1337], services: vec!["nginx.service".into()], ..Rule::default() };
        assert_eq!(config.rules.allow, [rule]);
    }

    #[test]
    fn every_error_names_file_line_and_key() {
        let cases = [
            ("spin = 'auto'\nspan = 1\n", "f:2: span: unknown key"),
            ("\n\nspin = 'fast'\n", "f:3: spin: expected auto"),
            ("spin = true\n", "f:1: spin: expected a string or a number, found true or false"),
            ("ring-size = 5000\n", "f:1: ring-size: 5000 is not a power of two"),
            ("upgrade-after = [1]\n", "f:1: upgrade-after: expected"),
            ("io-uring = 'off'\n", "f:1: io-uring: expected follow or refuse, found 'off'"),
            ("report = 'r.json'\n", "f:1: report: expected an absolute path"),
            ("cross-namespaces = 1\n", "f:1: cross-namespaces: expected true or false"),
            ("[[allow]]\nuids = [1000]\n", "f:1: allow: a single user may"),
            ("same-pod = 1\n", "f:1: same-pod: expected true or false"),
            ("[[allow]]\nuids = [1000, 'x']\n", "f:2: allow.uids: there is no 'x' on this machine"),
            ("[[allow]]\nuids = [1000, 'remote']\n", "f:2: allow.uids: cannot look up 'remote': the directory"),
            ("[[allow]]\nuids = [1000, true]\n", "f:2: allow.uids: expected a number"),
            ("[[allow]]\nuids = [1000, 4294967295]\n", "f:2: allow.uids: expected a number"),
            ("[[allow]]\nuids = [1000, -1]\n", "f:2: allow.uids: expected a number"),
            ("[[allow]]\ngids = [1000]\n", "f:2: allow.gids: unknown key"),
            ("[[allow]]\ngroups = ['x']\n", "f:2: allow.groups: there is no 'x'"),
            ("[[allow]]\nservices = ['nginx']\n", "f:2: allow.services: expected the name of a unit"),
            ("[[allow]]\nservices = ['a/b.service']\n", "f:2: allow.services: expected the name of a unit"),
            ("[[allow]]\nservices = 1\n", "f:2: allow.services: expected a list, found a number"),
            ("[[allow]]\n", "f:1: allow: a single user may"),
            ("allow = 3\n", "f:1: allow: expected [[allow]] tables"),
            ("spin = \n", "f:1: "),
            ("spin = 1\nspin = 2\n", "f:2: "),
        ];
        for (text, expected) in cases {
            let error = chain(&parse(text).expect_err(text)).to_string();
            assert!(error.starts_with(expected), "{text:?}: {error:?} instead of {expected:?}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Config::load(Path::new("/nonexistent/c.toml")).expect_err("not there");
        let error = chain(&error).to_string();
        assert!(error.starts_with("/nonexistent/c.toml: cannot read it"), "{error}");
    }
}
