//! `--name value` options.

use std::cell::RefCell;
use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;

pub struct Args {
    given: HashMap<String, String>,
    /// Names that the program asked for; what was given and never asked for is a mistake.
    known: RefCell<Vec<&'static str>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Server,
    Client,
}

impl Args {
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut given = HashMap::new();
        let mut words = words;
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else {
                return Err(format!("expected an option such as --seconds, found '{word}'"));
            };
            let value = words.next().ok_or(format!("--{name} needs a value"))?;
            given.insert(name.to_string(), value);
        }
        Ok(Args { given, known: RefCell::new(Vec::new()) })
    }

    /// The option's value, or `default` when it is not given.
    pub fn get<T: FromStr>(&self, name: &'static str, default: T) -> Result<T, String> {
        self.known.borrow_mut().push(name);
        match self.given.get(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("--{name}: cannot read '{text}'")),
        }
    }

    pub fn required<T: FromStr + Default>(&self, name: &'static str) -> Result<T, String> {
        if !self.given.contains_key(name) {
            return Err(format!("--{name} is missing"));
        }
        self.get(name, T::default())
    }

    pub fn role(&self) -> Result<Role, String> {
        match self.required::<String>("role")?.as_str() {
            "server" => Ok(Role::Server),
            "client" => Ok(Role::Client),
            other => Err(format!("--role: '{other}' is neither server nor client")),
        }
    }

    pub fn seconds(&self) -> Result<Duration, String> {
        let seconds: f64 = self.get("seconds", 1.0)?;
        Duration::try_from_secs_f64(seconds).map_err(|e| format!("--seconds: {e}"))
    }

    /// Call once all options were asked for.
    pub fn finish(&self) -> Result<(), String> {
        let known = self.known.borrow();
        match self.given.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(format!("unknown option --{name}; see --help")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(line.split_whitespace().map(str::to_string))
    }

    #[test]
    fn values_and_defaults() {
        let args = parse("--role client --port 80").unwrap();
        assert_eq!(args.role().unwrap(), Role::Client);
        assert_eq!(args.required::<u16>("port").unwrap(), 80);
        assert_eq!(args.get("size", 64).unwrap(), 64);
        assert!(args.finish().is_ok());
    }

    #[test]
    fn mistakes_are_named() {
        assert!(parse("port 80").err().unwrap().contains("'port'"));
        assert!(parse("--port").err().unwrap().contains("--port"));
        assert!(parse("--role judge").unwrap().role().unwrap_err().contains("judge"));
        assert!(parse("--port x").unwrap().required::<u16>("port").unwrap_err().contains("'x'"));
        assert!(parse("--typo 1").unwrap().finish().unwrap_err().contains("--typo"));
    }
}
