//! Variants: the same set-up with Sidestep, with something else, or unchanged.

use super::text::Text;
use super::{Values, cells};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// What a variant does to the set-up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// What it is, in a sentence, for reports.
    pub about: String,
    /// Override the scenario's own.
    #[serde(default)]
    pub values: IndexMap<String, Text>,
    /// Requirements to the machine; if one is not met the variant is left out, and a note says so.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// The cells in which it takes part: axis -> values.
    #[serde(default)]
    pub cells: IndexMap<String, Vec<Text>>,
    /// Words before the command of every program, and of the load.
    #[serde(default)]
    pub prefix: Vec<Text>,
    /// Environment variables of every program, of the load, and of the commands of `setup`.
    #[serde(default)]
    pub env: IndexMap<String, Text>,
    /// None: no program runs under Sidestep.
    #[serde(default)]
    pub rings: Option<Rings>,
    /// Loaded in this order, after `setup` and before the processes are started.
    #[serde(default)]
    pub iptables: Vec<Iptables>,
    /// One for each captured namespace.
    #[serde(default)]
    pub capture: Vec<Capture>,
    /// Each with programs and settings of its own.
    #[serde(default)]
    pub splice: Vec<Splice>,
    /// None: no agent runs.
    #[serde(default)]
    pub agent: Option<Agent>,
    /// In addition to the scenario's own.
    #[serde(default)]
    pub setup: Vec<Setup>,
}

/// A command that succeeds if the variant can take part.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// Program and arguments.
    pub run: Vec<Text>,
    /// The note if it fails: `this kernel has no IPVS`.
    pub otherwise: String,
}

/// Runs programs under `sidestep run`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rings {
    /// Names of processes, or `load`; empty: all.
    #[serde(default)]
    pub only: Vec<String>,
    /// Further options of `sidestep run`.
    #[serde(default)]
    pub options: Vec<Text>,
    /// Lines for the broker's configuration file.
    #[serde(default)]
    pub broker: Text,
    /// A directory with the programs and the library of another release; by default that of this program.
    #[serde(default)]
    pub release: Option<Text>,
}

/// Rules in the format of iptables-save(8).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Iptables {
    /// Where the rules are loaded; `node` by default.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Input of iptables-restore(8).
    #[serde(default)]
    pub rules: Text,
    /// Rules that match nothing, for `${fill}` in `rules`.
    #[serde(default)]
    pub fill: Option<Fill>,
    /// `legacy` or `nft`; by default the machine's own.
    #[serde(default)]
    pub backend: Option<String>,
}

/// Rules that make a chain as long as on a busy node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fill {
    /// The chain to which they are appended.
    pub chain: Text,
    /// How many there are.
    pub count: Text,
}

/// `sidestep capture` for a namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// The pod: one of the scenario's namespaces.
    pub namespace: String,
    /// Options, named as those of istio-iptables.
    #[serde(default)]
    pub options: Vec<Text>,
}

/// `sidestep splice` for the programs of a namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Splice {
    /// Whose connections are spliced; by default those of all namespaces of the set-up.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Values of `--port`: the ports at which servers listen.
    pub ports: Vec<Text>,
    /// Further options of `sidestep splice`.
    #[serde(default)]
    pub options: Vec<Text>,
}

/// `sidestep agent` on the node, with these objects.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Services, EndpointSlices, Policies in YAML. A `setup` may put further files into `${dir}/objects`.
    #[serde(default)]
    pub objects: Text,
    /// Pods that the agent captures.
    #[serde(default)]
    pub capture: Vec<Capture>,
    /// Further options of `sidestep agent`.
    #[serde(default)]
    pub options: Vec<Text>,
}

/// A command that prepares a set-up; if it fails, the trials of the set-up fail.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Program and arguments.
    pub run: Vec<Text>,
    /// Where it runs; `node` by default.
    #[serde(default)]
    pub namespace: Option<String>,
}

impl Variant {
    /// Whether [`Variant::cells`] permits this cell.
    pub fn takes_part_in(&self, cell: &Values) -> bool {
        cells::among(&self.cells, cell)
    }
}
