//! Templates: text with `${name}` in it, and the values of names.

use super::error::{TemplateError, TextError};
use indexmap::IndexMap;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// A YAML scalar as YAML reads it, including numbers and booleans: 1e3 is 1000. Quoted, it stays as it is. `${name}` is replaced,
/// `$$` is a dollar sign.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Text(String);

impl Text {
    /// The template itself, with nothing replaced.
    pub fn raw(&self) -> &str {
        &self.0
    }

    /// Replaces all names; the error lists the known names if one is unknown.
    pub fn fill(&self, scope: &Scope) -> Result<String, TemplateError> {
        fill(&self.0, scope, 0)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(text.into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(text)
    }
}

/// A value may contain names, whose values may contain names; more levels than this are a cycle.
const DEEPEST: u32 = 10;

fn fill(text: &str, scope: &Scope, depth: u32) -> Result<String, TemplateError> {
    let (mut filled, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('$') {
        filled.push_str(before);
        if let Some(name_on) = after.strip_prefix('{') {
            let end = closing(name_on).ok_or_else(|| TemplateError::NotClosed { rest: short(name_on) })?;
            let name = fill(&name_on[..end], scope, depth)?;
            let value = scope.get(&name).ok_or_else(|| scope.unknown(&name))?;
            if depth == DEEPEST {
                return Err(TemplateError::Circle { name });
            }
            filled.push_str(&fill(value, scope, depth + 1)?);
            rest = &name_on[end + 1..];
        } else {
            // `$$` is a dollar sign; so is a single `$` before anything but a brace, as in nginx's variables.
            filled.push('$');
            rest = after.strip_prefix('$').unwrap_or(after);
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

/// The position of the brace that ends a name; names may contain names.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().find_map(|(place, c)| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        (depth < 0).then_some(place)
    })
}

fn short(text: &str) -> String {
    text.chars().take(20).collect()
}

/// Names and their values; a later layer overrides an earlier one.
#[derive(Clone, Debug, Default)]
pub struct Scope(IndexMap<String, String>);

impl Scope {
    /// The value may be a template. It replaces an earlier value of the name.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// Sets each name to its unfilled template.
    pub fn layer(&mut self, values: &IndexMap<String, Text>) {
        for (name, value) in values {
            self.set(name, value.raw());
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn unknown(&self, name: &str) -> TemplateError {
        TemplateError::Unknown { name: name.into(), known: self.0.keys().cloned().collect() }
    }
}

struct Scalar;

impl Visitor<'_> for Scalar {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a number, true or false")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(text.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Text, E> {
        Ok(number.to_string().into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Text, E> {
        Ok(number.to_string().into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Text, E> {
        Ok(number.to_string().into())
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Text, E> {
        Ok(truth.to_string().into())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        deserializer.deserialize_any(Scalar)
    }
}

impl TryFrom<Text> for super::User {
    type Error = TextError;

    fn try_from(text: Text) -> Result<super::User, TextError> {
        let (uid, gid) = text.0.split_once(':').unwrap_or((&text.0, &text.0));
        match (uid.parse(), gid.parse()) {
            (Ok(uid), Ok(gid)) => Ok(super::User { uid, gid }),
            _ => Err(TextError::User(text.0)),
        }
    }
}

impl From<super::User> for String {
    fn from(user: super::User) -> String {
        format!("{}:{}", user.uid, user.gid)
    }
}

impl TryFrom<Text> for super::Restart {
    type Error = TextError;

    fn try_from(text: Text) -> Result<super::Restart, TextError> {
        match (text.raw(), text.raw().parse()) {
            ("trial", _) => Ok(super::Restart::Trial),
            ("round", _) => Ok(super::Restart::Rounds(1)),
            ("never", _) => Ok(super::Restart::Never),
            (_, Ok(rounds @ 1..)) => Ok(super::Restart::Rounds(rounds)),
            (other, _) => Err(TextError::Restart(other.into())),
        }
    }
}

impl From<super::Restart> for String {
    fn from(restart: super::Restart) -> String {
        match restart {
            super::Restart::Trial => "trial".into(),
            super::Restart::Rounds(rounds) => rounds.to_string(),
            super::Restart::Never => "never".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        let mut scope = Scope::default();
        for (name, value) in
            [("port", "80"), ("url", "http://a:${port}/"), ("a", "${b}"), ("b", "${a}"), ("which", "port")]
        {
            scope.set(name, value);
        }
        scope
    }

    #[test]
    fn names_are_replaced_by_what_they_stand_for() {
        for (text, filled) in
            [("x", "x"), ("${url}${port}", "http://a:80/80"), ("${${which}}", "80"), ("$$5 $host $", "$5 $host $")]
        {
            assert_eq!(Text::from(text).fill(&scope()).as_deref(), Ok(filled), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_replaced_says_why() {
        for (text, why) in
            [("${prot}", "these are: port, url"), ("${port", "closing brace"), ("${a}", "refers to itself")]
        {
            let said = Text::from(text).fill(&scope()).expect_err(text).to_string();
            assert!(said.contains(why), "{said}");
        }
    }
}
