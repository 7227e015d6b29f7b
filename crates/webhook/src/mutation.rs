//! Changes in the JSON of a pod. The rest of it stays as it is, also what this program does not know.

use crate::places::{Places, text};
use serde_json::{Map, Value, json};
use sidestep_injection::{BROKER, LD_PRELOAD};

/// Kinds of containers, as fields of a pod's spec.
pub const INIT: &str = "initContainers";
/// See [`INIT`].
pub const USUAL: &str = "containers";
/// See [`INIT`].
pub const EPHEMERAL: &str = "ephemeralContainers";

/// The pod gets the volumes that it does not have yet.
pub fn add_volumes(pod: &mut Value, places: &Places) -> Option<()> {
    let volumes = list(pod.get_mut("spec")?, "volumes")?;
    for ours in places.volumes() {
        if !volumes.iter().any(|present| present["name"] == ours.name) {
            volumes.push(json!({"name": ours.name, "hostPath": {"path": ours.path(), "type": ours.kind}}));
        }
    }
    Some(())
}

/// A container gets the mounts and the variables; LD_PRELOAD gets this value.
pub fn inject(pod: &mut Value, kind: &str, index: usize, preload: &str, places: &Places) -> Option<()> {
    let container = pod.get_mut("spec")?.get_mut(kind)?.get_mut(index)?;
    let mounts = list(container, "volumeMounts")?;
    for ours in places.volumes() {
        mounts.push(json!({"name": ours.name, "mountPath": ours.path(), "readOnly": true}));
    }
    let variables = list(container, "env")?;
    match variables.iter_mut().find(|variable| variable["name"] == LD_PRELOAD) {
        Some(present) => present["value"] = preload.into(),
        None => variables.push(json!({"name": LD_PRELOAD, "value": preload})),
    }
    variables.push(json!({"name": BROKER, "value": text(&places.broker())}));
    Some(())
}

/// The pod gets an annotation.
pub fn annotate(pod: &mut Value, name: &str, value: &str) -> Option<()> {
    let metadata = pod.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = Map::new().into();
    }
    annotations.as_object_mut()?.insert(name.into(), value.into());
    Some(())
}

/// The list of that name, which is made if there is none.
fn list<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Vec<Value>> {
    let list = object.as_object_mut()?.entry(name).or_insert(Value::Null);
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    list.as_array_mut()
}
