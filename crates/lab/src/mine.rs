//! The scenario `mine`: the user's own command lines.

use crate::args::Mine;
use indexmap::IndexMap;
use serde_json::{Value, json};
use sidestep_lab::scenario::{self, Scenario, ScenarioError};

pub const NAME: &str = "mine";
pub const ABOUT: &str = "Your own command lines: --server, --port, and --tool or --load; see `sidestep lab run --help`";

/// Why the options cannot become a scenario.
#[derive(Debug, thiserror::Error)]
pub enum MineError {
    #[error("there are more --port than --server: give one --port for each --server")]
    Ports,
    #[error("splice works by port: give --port for each --server")]
    SpliceByPort,
    #[error("--variants: '{0}' is neither rings nor splice")]
    Variant(String),
    #[error("--tool needs --target")]
    Target,
    #[error("mine needs --load COMMAND, or --tool TOOL and --target TARGET")]
    Load,
    #[error("{option} '{line}': empty, or a quote is not closed")]
    Words { option: &'static str, line: String },
    #[error("the scenario of these options cannot be written: {0}")]
    Yaml(#[from] yaml_serde::Error),
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// The scenario is written as a file and then parsed, so that the result contains a file that can be run again.
pub fn scenario(mine: &Mine) -> Result<(Scenario, String), MineError> {
    let text = yaml_serde::to_string(&document(mine)?)?;
    Ok((scenario::parse(&text)?, text))
}

fn document(mine: &Mine) -> Result<Value, MineError> {
    let (mut axes, connections) = (
        IndexMap::new(),
        match mine.connections.as_slice() {
            [] => json!(1),
            [one] => json!(one),
            _ => json!("${connections}"),
        },
    );
    if mine.connections.len() > 1 {
        axes.insert("connections", &mine.connections);
    }
    Ok(json!({
        "name": NAME,
        "about": "Command lines of one's own, with and without Sidestep",
        "axes": axes,
        "processes": servers(mine)?,
        "variants": variants(mine)?,
        "baseline": "plain",
        "load": load(mine, connections)?,
        "design": { "judge": judged(mine) },
    }))
}

fn servers(mine: &Mine) -> Result<IndexMap<String, Value>, MineError> {
    if mine.port.len() > mine.server.len() {
        return Err(MineError::Ports);
    }
    let one = |(number, line): (usize, &String)| {
        let ready = mine.port.get(number).map_or(json!({}), |port| json!({ "port": port }));
        Ok((format!("server-{}", number + 1), json!({ "run": words("--server", line)?, "ready": ready })))
    };
    mine.server.iter().enumerate().map(one).collect()
}

fn variants(mine: &Mine) -> Result<IndexMap<&str, Value>, MineError> {
    let mut variants = IndexMap::from([("plain", json!({ "about": "as it is" }))]);
    for name in &mine.variants {
        let variant = match name.as_str() {
            "plain" => continue,
            "rings" => json!({ "about": "all of them under `sidestep run`", "rings": {} }),
            "splice" if mine.port.is_empty() => {
                return Err(MineError::SpliceByPort);
            }
            "splice" => {
                json!({ "about": "sockets joined in the kernel", "splice": [{ "ports": mine.port, "options": ["--blocking"] }] })
            }
            other => return Err(MineError::Variant(other.into())),
        };
        variants.insert(name, variant);
    }
    Ok(variants)
}

/// The figures to judge, as far as the tool has them.
fn judged(mine: &Mine) -> [&'static str; 2] {
    match mine.tool.as_deref() {
        Some("iperf3") => ["throughput", "cpu"],
        _ => ["p50", "p90"],
    }
}

fn load(mine: &Mine, connections: Value) -> Result<Value, MineError> {
    match (&mine.load, &mine.tool) {
        (Some(line), None) => Ok(json!({ "tool": "command", "command": words("--load", line)? })),
        (None, Some(tool)) => {
            let target = mine.target.as_deref().ok_or(MineError::Target)?;
            // Zero means that it is not given.
            let (rate, requests) = (mine.rate.unwrap_or(0.0), mine.requests.unwrap_or(0));
            Ok(
                json!({ "tool": tool, "target": target, "connections": connections, "rate": rate, "requests": requests }),
            )
        }
        _ => Err(MineError::Load),
    }
}

/// Splits a line as a shell does. A dollar sign does not begin a template.
fn words(option: &'static str, line: &str) -> Result<Vec<String>, MineError> {
    let words = shlex::split(line).filter(|words| !words.is_empty());
    let words = words.ok_or_else(|| MineError::Words { option, line: line.into() })?;
    Ok(words.into_iter().map(|word| word.replace('$', "$$")).collect())
}
