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
//! [[allow]]                # users that may share memory with each other, by number or by name
//! uids = [1000, "envoy"]
//! ```

use crate::settings::{IoUring, RingSize, SettingError, Spin, UpgradeAfter};
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
    /// Groups of users that may share memory.
    pub allow: Vec<Vec<u32>>,
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
    #[error("allow.{0}: unknown key; the only one is uids")]
    UnknownKeyOfAllow(String),
    #[error("{key}: expected {expected}, found {found}")]
    OtherType { key: String, expected: &'static str, found: &'static str },
    #[error("{key}")]
    Setting { key: String, source: SettingError },
    #[error("report: expected an absolute path, found '{0}'")]
    RelativePath(String),
    #[error("allow: expected a table with uids = [...]")]
    NoTable,
    #[error("allow: uids = [...] is missing")]
    NoUids,
    #[error("allow.uids: expected at least two user ids")]
    TooFewUids,
    #[error("allow.uids: expected a user id (a number from 0 up) or a user name")]
    NoUid,
    #[error("allow.uids: there is no user '{0}' on this machine")]
    NoUser(String),
    #[error("allow.uids: cannot look up the user '{name}'")]
    LookUp { name: String, source: Box<dyn Error + Send + Sync> },
}

impl Config {
    /// Reads and checks the file.
    pub fn load(file: &Path) -> Result<Config, ConfigError> {
        let read = std::fs::read_to_string(file);
        let text = read.map_err(|source| ConfigError::Read { file: file.into(), source })?;
        Config::parse(&text, &file.display().to_string(), &|name| Ok(users::by_name(name)?))
    }

    /// `file`: name of the file, for errors. `user`: finds the number of a user by name.
    pub fn parse(text: &str, file: &str, user: &FindUser<'_>) -> Result<Config, ConfigError> {
        let source = Source { text, file, user };
        let table = DeTable::parse(text)
            .map_err(|e| source.error(e.span().unwrap_or(0..0), Mistake::Syntax(e.message().into())))?;
        let mut config = Config::default();
        for (key, value) in table.get_ref() {
            source.entry(&mut config, key, value)?;
        }
        Ok(config)
    }
}

/// The number of the user with this name. None: there is no such user. Err: the system's databases cannot be asked.
pub type FindUser<'a> = dyn Fn(&str) -> Result<Option<u32>, Box<dyn Error + Send + Sync>> + 'a;

/// The text of the file, for the lines in errors.
struct Source<'a> {
    text: &'a str,
    file: &'a str,
    user: &'a FindUser<'a>,
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
            "cross-namespaces" => match value.get_ref() {
                DeValue::Boolean(yes) => config.cross_namespaces = *yes,
                other => return Err(wrong(other_type(name, "true or false", other))),
            },
            "allow" => config.allow = self.allow(value)?,
            _ => return Err(self.error(key.span(), Mistake::UnknownKey(name.into()))),
        }
        Ok(())
    }

    fn allow(&self, value: &Value<'_>) -> Result<Vec<Vec<u32>>, ConfigError> {
        let DeValue::Array(groups) = value.get_ref() else {
            return Err(self.error(value.span(), other_type("allow", "[[allow]] tables", value.get_ref())));
        };
        groups.iter().map(|group| self.group(group)).collect()
    }

    fn group(&self, group: &Value<'_>) -> Result<Vec<u32>, ConfigError> {
        let DeValue::Table(table) = group.get_ref() else {
            return Err(self.error(group.span(), Mistake::NoTable));
        };
        if let Some((key, _)) = table.iter().find(|(key, _)| key.get_ref() != "uids") {
            return Err(self.error(key.span(), Mistake::UnknownKeyOfAllow(key.get_ref().to_string())));
        }
        let Some(uids) = table.get("uids") else {
            return Err(self.error(group.span(), Mistake::NoUids));
        };
        let DeValue::Array(list) = uids.get_ref() else {
            return Err(self.error(uids.span(), other_type("allow.uids", "a list of user ids", uids.get_ref())));
        };
        if list.len() < 2 {
            return Err(self.error(uids.span(), Mistake::TooFewUids));
        }
        list.iter().map(|uid| self.uid(uid)).collect()
    }

    fn uid(&self, value: &Value<'_>) -> Result<u32, ConfigError> {
        let found = match value.get_ref() {
            DeValue::Integer(n) => u32::from_str_radix(n.as_str(), n.radix()).ok().filter(|&uid| uid != NO_USER),
            DeValue::String(name) => Some(self.named(name, value)?),
            _ => None,
        };
        found.ok_or_else(|| self.error(value.span(), Mistake::NoUid))
    }

    fn named(&self, name: &str, value: &Value<'_>) -> Result<u32, ConfigError> {
        match (self.user)(name) {
            Ok(Some(uid)) => Ok(uid),
            Ok(None) => Err(self.error(value.span(), Mistake::NoUser(name.into()))),
            Err(source) => Err(self.error(value.span(), Mistake::LookUp { name: name.into(), source })),
        }
    }
}

/// The uid that means "none" to setuid(2) and chown(2).
const NO_USER: u32 = u32::MAX;

const KEYS: &str = "known keys: spin, upgrade-after, ring-size, io-uring, report, cross-namespaces, [[allow]]";

/// A setting that may be a string or a plain number.
fn setting<T: std::str::FromStr<Err = SettingError>>(key: &str, value: &Value<'_>) -> Result<T, Mistake> {
    let parsed = match value.get_ref() {
        DeValue::String(text) => text.parse(),
        DeValue::Integer(n) if n.radix() == 10 => n.as_str().parse(),
        other => return Err(other_type(key, "a string or a number", other)),
    };
    parsed.map_err(|source| Mistake::Setting { key: key.into(), source })
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
        Config::parse(text, "f", &|name| match name {
            "envoy" => Ok(Some(1337)),
            "remote" => Err("the directory does not answer".into()),
            _ => Ok(None),
        })
    }

    #[test]
    fn every_key_is_read() {
        let text = "spin = 20\nupgrade-after = '0ops'\nring-size = '1M'\nio-uring = 'refuse'\nreport = '/tmp/r'\ncross-namespaces = true\n\
                    [[allow]]\nuids = [1000, 'envoy']\n[[allow]]\nuids = [1, 0x2]\n";
        let config = parse(text).expect("valid");
        assert_eq!(config.spin, Some(Spin::Microseconds(20)));
        assert_eq!(config.upgrade_after, Some(UpgradeAfter::Ops(0)));
        assert_eq!(config.ring_size.map(|s| s.to_string()).as_deref(), Some("1048576"));
        assert_eq!(config.io_uring, Some(IoUring::Refuse));
        assert_eq!(config.report, Some("/tmp/r".into()));
        assert!(config.cross_namespaces);
        assert_eq!(config.allow, [vec![1000, 1337], vec![1, 2]]);
        assert_eq!(parse("").expect("valid"), Config::default());
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
            ("[[allow]]\nuids = [1000]\n", "f:2: allow.uids: expected at least two"),
            ("[[allow]]\nuids = [1000, 'x']\n", "f:2: allow.uids: there is no user 'x' on this machine"),
            (
                "[[allow]]\nuids = [1000, 'remote']\n",
                "f:2: allow.uids: cannot look up the user 'remote': the directory",
            ),
            ("[[allow]]\nuids = [1000, true]\n", "f:2: allow.uids: expected a user id"),
            ("[[allow]]\nuids = [1000, 4294967295]\n", "f:2: allow.uids: expected a user id"),
            ("[[allow]]\nuids = [1000, -1]\n", "f:2: allow.uids: expected a user id"),
            ("[[allow]]\ngids = [1000]\n", "f:2: allow.gids: unknown key"),
            ("[[allow]]\n", "f:1: allow: uids = [...] is missing"),
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
