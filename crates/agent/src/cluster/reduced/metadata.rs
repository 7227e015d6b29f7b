//! The metadata that something is made of here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::Deserialize;
use serde::de::IgnoredAny;
use sidestep_mesh::field::MIRROR;
use std::collections::BTreeMap;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<String>,
    /// Only whether there is one.
    deletion_timestamp: Option<IgnoredAny>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Deserialize)]
struct Owner {
    controller: Option<bool>,
}

/// Other annotations may have 256 KiB.
fn is_looked_at(annotation: &str) -> bool {
    annotation.starts_with("sidestep.dev/") || annotation == MIRROR
}

impl From<Metadata> for ObjectMeta {
    fn from(read: Metadata) -> ObjectMeta {
        let annotations = read.annotations.map(|mut all| {
            all.retain(|name, _| is_looked_at(name));
            all
        });
        let owner = |one: Owner| OwnerReference { controller: one.controller, ..OwnerReference::default() };
        ObjectMeta {
            name: read.name,
            namespace: read.namespace,
            uid: read.uid,
            resource_version: read.resource_version,
            // A time that cannot be read counts as none.
            creation_timestamp: read.creation_timestamp.and_then(|text| text.parse().ok().map(Time)),
            deletion_timestamp: read.deletion_timestamp.map(|_| Time(Default::default())),
            labels: read.labels,
            annotations,
            owner_references: read.owner_references.map(|all| all.into_iter().map(owner).collect()),
            ..ObjectMeta::default()
        }
    }
}
