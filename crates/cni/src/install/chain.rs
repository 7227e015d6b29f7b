//! Our plugin in the text of a network configuration. Everything else in the text stays as it is, byte for byte: it is not ours.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::ops::Range;
use std::path::Path;

/// The program's name, by which a runtime finds it.
pub const TYPE: &str = "sidestep-cni";

/// Why a text is no network configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    #[error("it is no JSON of a network configuration")]
    Json(#[from] serde_json::Error),
    #[error("it names no plugin")]
    Empty,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    plugins: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Plugin {
    #[serde(rename = "type")]
    kind: String,
}

/// Of a configuration with one plugin.
#[derive(Deserialize)]
struct Single {
    #[serde(default, rename = "cniVersion")]
    version: String,
    #[serde(default)]
    name: String,
    #[serde(rename = "type")]
    kind: String,
}

/// Of a configuration of either form.
#[derive(Deserialize)]
struct Versioned {
    #[serde(default, rename = "cniVersion")]
    version: String,
}

/// The version of the specification that a configuration names; empty if it names none.
pub fn version(text: &str) -> Result<String, ConfigurationError> {
    let Versioned { version } = serde_json::from_str(text)?;
    Ok(version)
}

/// Our plugin's element of a list.
pub fn plugin(socket: &Path, timeout: u64) -> Value {
    json!({ "type": TYPE, "agentSocket": socket, "timeoutSeconds": timeout })
}

/// The list with our plugin at its end. None: it has it, as it should be: behind another one, whose result our plugin needs.
pub fn appended(list: &str, ours: &Value) -> Result<Option<String>, ConfigurationError> {
    let kinds = kinds(list)?;
    if kinds.is_empty() || kinds.iter().all(|(_, kind)| kind == TYPE) {
        return Err(ConfigurationError::Empty);
    }
    let mine: Vec<_> = kinds.iter().filter(|(_, kind)| kind == TYPE).collect();
    if kinds[0].1 != TYPE
        && let [(only, _)] = mine[..]
    {
        let found: Value = serde_json::from_str(&list[only.clone()])?;
        if found == *ours {
            return Ok(None);
        }
    }
    let clean = removed(list)?.unwrap_or_else(|| list.to_string());
    let (last, _) = self::kinds(&clean)?.pop().ok_or(ConfigurationError::Empty)?;
    let (before, after) = clean.split_at(last.end);
    Ok(Some(format!("{before},{}{ours}{after}", indentation(&clean[..last.start]))))
}

/// The list without our plugin. None: it does not have it.
pub fn removed(list: &str) -> Result<Option<String>, ConfigurationError> {
    let mut clean = list.to_string();
    loop {
        let kinds = kinds(&clean)?;
        let Some(at) = kinds.iter().position(|(_, kind)| kind == TYPE) else { break };
        // With the comma and the space that were written for it.
        let gone = match (at.checked_sub(1), kinds.get(at + 1)) {
            (Some(before), _) => kinds[before].0.end..kinds[at].0.end,
            (None, Some((next, _))) => kinds[at].0.start..next.start,
            (None, None) => kinds[at].0.clone(),
        };
        clean.replace_range(gone, "");
    }
    Ok((clean != list).then_some(clean))
}

/// A list of the plugin of this configuration, and of ours.
pub fn list_of(single: &str, ours: &Value) -> Result<String, ConfigurationError> {
    let Single { version, name, kind } = serde_json::from_str(single)?;
    if kind.is_empty() {
        return Err(ConfigurationError::Empty);
    }
    let (version, name) = (json!(version), json!(name));
    let theirs = single.trim();
    Ok(format!(
        "{{\n  \"cniVersion\": {version},\n  \"name\": {name},\n  \"plugins\": [\n{theirs},\n    {ours}\n  ]\n}}\n"
    ))
}

/// Where each plugin of the list is in the text, and its type.
fn kinds(list: &str) -> Result<Vec<(Range<usize>, String)>, ConfigurationError> {
    let List { plugins } = serde_json::from_str(list)?;
    let read = |plugin: &&RawValue| {
        let Plugin { kind } = serde_json::from_str(plugin.get())?;
        // The value is borrowed from the text, so its address says where it is there.
        let start = plugin.get().as_ptr() as usize - list.as_ptr() as usize;
        Ok((start..start + plugin.get().len(), kind))
    };
    plugins.iter().map(read).collect()
}

/// The line break and the space before the last plugin, or a space if it does not begin a line.
fn indentation(before: &str) -> &str {
    let space = &before[before.trim_end().len()..];
    space.rfind('\n').map_or(" ", |line| &space[line..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTS: [&str; 5] = [
        r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp"}]}"#,
        "{\n  \"plugins\": [\n    {\n      \"type\": \"ptp\",  \"x\": [1.10, \"]\"]\n    },\n    {\"type\": \"portmap\"}\n  ],\n  \"name\": \"n\"\n}\n",
        "{\"plugins\" : [ { \"type\" : \"a\" } , { \"type\" : \"b\" } ] , \"plugin\" : [ ] }",
        "{\r\n\t\"plugins\": [\r\n\t\t{ \"type\": \"ü\" }\r\n\t]\r\n}",
        r#"{"plugins":[{"type":"ptp","nested":{"plugins":[{"type":"sidestep-cni"}]}}]}"#,
    ];

    fn ours() -> Value {
        plugin(Path::new("/run/a.sock"), 9)
    }

    fn types(list: &str) -> Vec<String> {
        kinds(list).unwrap().into_iter().map(|(_, kind)| kind).collect()
    }

    #[test]
    fn what_is_removed_leaves_the_text_that_was_there() {
        for list in LISTS {
            let with = appended(list, &ours()).unwrap().unwrap();
            assert_eq!(types(&with).last().unwrap(), TYPE, "{with}");
            assert_eq!(types(&with).len(), types(list).len() + 1);
            assert_eq!(appended(&with, &ours()).unwrap(), None, "once is enough: {with}");
            assert_eq!(removed(&with).unwrap().as_deref(), Some(list));
            assert_eq!(removed(list).unwrap(), None);
        }
    }

    #[test]
    fn other_options_replace_the_present_ones() {
        for list in LISTS {
            let with = appended(list, &ours()).unwrap().unwrap();
            let other = plugin(Path::new("/run/b.sock"), 10);
            let again = appended(&with, &other).unwrap().unwrap();
            assert_eq!(Some(again), appended(list, &other).unwrap());
        }
    }

    #[test]
    fn our_plugin_is_found_wherever_others_have_moved_it() {
        let moved = r#"{"plugins":[{"type":"sidestep-cni"}, {"type":"ptp"}, {"type":"sidestep-cni"}]}"#;
        assert_eq!(removed(moved).unwrap().as_deref(), Some(r#"{"plugins":[{"type":"ptp"}]}"#));
        assert_eq!(types(&appended(moved, &ours()).unwrap().unwrap()), ["ptp", TYPE]);
        let first = format!(r#"{{"plugins":[{}, {{"type":"ptp"}}]}}"#, ours());
        assert_eq!(types(&appended(&first, &ours()).unwrap().unwrap()), ["ptp", TYPE], "nothing is before it");
        assert_eq!(removed(r#"{"plugins":[{"type":"sidestep-cni"}]}"#).unwrap().as_deref(), Some(r#"{"plugins":[]}"#));
    }

    #[test]
    fn a_single_plugin_becomes_a_list() {
        let single = "{\n  \"cniVersion\": \"0.4.0\", \"name\": \"n\\\"\", \"type\": \"ptp\"\n}\n";
        let list = list_of(single, &ours()).unwrap();
        assert_eq!(types(&list), ["ptp", TYPE]);
        let read: Value = serde_json::from_str(&list).unwrap();
        assert_eq!((&read["cniVersion"], &read["name"]), (&json!("0.4.0"), &json!("n\"")));
        assert_eq!(appended(&list, &ours()).unwrap(), None);
    }

    #[test]
    fn what_is_no_configuration_is_an_error() {
        for text in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"plugins":[]}"#,
            r#"{"plugins":[{}]}"#,
            r#"{"plugins":[{"type":1}]}"#,
            r#"{"plugins":{}}"#,
        ] {
            assert!(appended(text, &ours()).is_err(), "{text}");
        }
        for text in ["", "{}", r#"{"type":""}"#, r#"{"plugins":[{"type":"ptp"}]}"#, "null"] {
            assert!(list_of(text, &ours()).is_err(), "{text}");
        }
        let only_ours = r#"{"plugins":[{"type":"sidestep-cni"}]}"#;
        assert!(matches!(appended(only_ours, &ours()), Err(ConfigurationError::Empty)));
    }
}
