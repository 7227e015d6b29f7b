//! The scenario `mine`: command lines of the user's own.

use crate::args::Mine;
use indexmap::IndexMap;
use serde_json::{Value, json};
use sidestep_lab::scenario::{self, Scenario};

pub const NAME: &str = "mine";
pub const ABOUT: &str = "Your own command lines: --server, --port, and --tool or --load; see `sidestep lab run --help`";

/// Written as a file would be, so that the result carries what can be run again, and read like one.
pub fn scenario(mine: &Mine) -> Result<(Scenario, String), String> {
    let text = yaml_serde::to_string(&document(mine)?).map_err(|why| why.to_string())?;
    Ok((scenario::parse(&text)?, text))
}

fn document(mine: &Mine) -> Result<Value, String> {
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

fn servers(mine: &Mine) -> Result<IndexMap<String, Value>, String> {
    if mine.port.len() > mine.server.len() {
        return Err("there are more --port than --server".into());
    }
    let one = |(number, line): (usize, &String)| {
        let ready = mine.port.get(number).map_or(json!({}), |port| json!({ "port": port }));
        Ok((format!("server-{}", number + 1), json!({ "run": words("--server", line)?, "ready": ready })))
    };
    mine.server.iter().enumerate().map(one).collect()
}

fn variants(mine: &Mine) -> Result<IndexMap<&str, Value>, String> {
    let mut variants = IndexMap::from([("plain", json!({ "about": "as it is" }))]);
    for name in &mine.variants {
        let variant = match name.as_str() {
            "plain" => continue,
            "rings" => json!({ "about": "all of them under `sidestep run`", "rings": {} }),
            "splice" if mine.port.is_empty() => {
                return Err("splice works by port: give --port for each --server".into());
            }
            "splice" => {
                json!({ "about": "sockets joined in the kernel", "splice": [{ "ports": mine.port, "options": ["--blocking"] }] })
            }
            other => return Err(format!("--variants: '{other}' is neither rings nor splice")),
        };
        variants.insert(name, variant);
    }
    Ok(variants)
}

/// What the tool can tell.
fn judged(mine: &Mine) -> [&'static str; 2] {
    match mine.tool.as_deref() {
        Some("iperf3") => ["throughput", "cpu"],
        _ => ["p50", "p90"],
    }
}

fn load(mine: &Mine, connections: Value) -> Result<Value, String> {
    match (&mine.load, &mine.tool) {
        (Some(line), None) => Ok(json!({ "tool": "command", "command": words("--load", line)? })),
        (None, Some(tool)) => {
            let target = mine.target.as_deref().ok_or("--tool needs --target")?;
            // Neither of the two if it is 0.
            let (rate, requests) = (mine.rate.unwrap_or(0.0), mine.requests.unwrap_or(0));
            Ok(
                json!({ "tool": tool, "target": target, "connections": connections, "rate": rate, "requests": requests }),
            )
        }
        _ => Err("mine needs --load COMMAND, or --tool TOOL and --target TARGET".into()),
    }
}

/// As a shell splits it; a dollar sign is no template's.
fn words(option: &str, line: &str) -> Result<Vec<String>, String> {
    let words = shlex::split(line).filter(|words| !words.is_empty());
    let words = words.ok_or_else(|| format!("{option} '{line}': empty, or a quote is not closed"))?;
    Ok(words.into_iter().map(|word| word.replace('$', "$$")).collect())
}
