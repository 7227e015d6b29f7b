//! What is compared: the same set-up with Sidestep, with something else, or as it is.

use super::text::Text;
use super::{Values, cells};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// What Sidestep, or another, does to the set-up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    pub about: String,
    /// In place of the scenario's own.
    #[serde(default)]
    pub values: IndexMap<String, Text>,
    /// What it needs of the machine; without it the variant is left out, and a note says so.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Cells that it takes part in: axis -> values.
    #[serde(default)]
    pub cells: IndexMap<String, Vec<Text>>,
    /// Before every program's command, and the load's.
    #[serde(default)]
    pub prefix: Vec<Text>,
    #[serde(default)]
    pub env: IndexMap<String, Text>,
    #[serde(default)]
    pub rings: Option<Rings>,
    #[serde(default)]
    pub iptables: Vec<Iptables>,
    #[serde(default)]
    pub capture: Vec<Capture>,
    #[serde(default)]
    pub splice: Vec<Splice>,
    #[serde(default)]
    pub agent: Option<Agent>,
    /// Besides the scenario's own.
    #[serde(default)]
    pub setup: Vec<Setup>,
}

/// A command that succeeds where a variant can take part.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    pub run: Vec<Text>,
    /// What is missing if it does not: `this kernel has no IPVS`.
    pub otherwise: String,
}

/// Programs run under `sidestep run`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rings {
    /// Names of processes, or `load`; empty: all.
    #[serde(default)]
    pub only: Vec<String>,
    /// Further options of `sidestep run`.
    #[serde(default)]
    pub options: Vec<Text>,
    /// A directory with the programs and the library of another release; by default they are those beside this program.
    #[serde(default)]
    pub release: Option<Text>,
}

/// Rules in the format of iptables-save(8).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Iptables {
    #[serde(default)]
    pub namespace: Option<String>,
    #[serde(default)]
    pub rules: Text,
    /// Rules that match nothing, for `${fill}` in `rules`.
    #[serde(default)]
    pub fill: Option<Fill>,
    /// `legacy` or `nft`; the machine's own default if nothing is said.
    #[serde(default)]
    pub backend: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fill {
    pub chain: Text,
    pub count: Text,
}

/// `sidestep capture` for a namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    pub namespace: String,
    /// By istio-iptables' names.
    #[serde(default)]
    pub options: Vec<Text>,
}

/// `sidestep splice` for the programs of a namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Splice {
    #[serde(default)]
    pub namespace: Option<String>,
    pub ports: Vec<Text>,
    #[serde(default)]
    pub options: Vec<Text>,
}

/// `sidestep agent` on the node, with these objects.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Services, EndpointSlices, Policies: YAML. Further files may be put into `${dir}/objects` by a `setup`.
    #[serde(default)]
    pub objects: Text,
    /// It captures, besides.
    #[serde(default)]
    pub capture: Vec<Capture>,
    #[serde(default)]
    pub options: Vec<Text>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    pub run: Vec<Text>,
    #[serde(default)]
    pub namespace: Option<String>,
}

impl Variant {
    pub fn takes_part_in(&self, cell: &Values) -> bool {
        cells::among(&self.cells, cell)
    }
}
