//! Objects of the API server without what is not needed of them.
//!
//! An API server cannot be asked for parts of an object. Everything else is dropped as the answer is read: a pod has some 10 KiB, and
//! one value that cannot be read would cost the whole list. Whoever may change an object may also write its `managedFields`, and the
//! server accepts times and depths there that this program's types do not. What is skipped is read without recursion.

mod kinds;
mod metadata;

use kube::Resource;
use kube::core::ObjectMeta;
use metadata::Metadata;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use sidestep_mesh::field::Invalid;
use std::borrow::Cow;

/// Pods that have ended have no address: the server leaves them out, and reports the end of a pod as its deletion.
pub const ALIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// An object of this kind.
#[derive(Clone, Debug)]
pub struct Reduced<K> {
    /// If it is invalid, perhaps with nothing but its metadata.
    pub object: K,
    invalid: Option<Invalid>,
}

impl<K> Reduced<K> {
    /// The error is a part that cannot be read.
    pub fn whole(self) -> Result<K, Invalid> {
        self.invalid.map_or(Ok(self.object), Err)
    }
}

/// A kind of objects of which something is read.
pub trait Reducible: Resource<DynamicType = ()> + Default {
    /// Reads what is needed besides the metadata.
    fn fill(&mut self, parts: &Parts) -> Result<(), Invalid>;
}

/// The parts of an object, of whatever kind. Those that its kind lacks are `None`. Their text is read one by one, so that an error in
/// it concerns this object only. That needs an event of a watch with its type before its object, as the server writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Parts {
    metadata: Metadata,
    spec: Option<Box<RawValue>>,
    status: Option<Box<RawValue>>,
    address_type: Option<Box<RawValue>>,
    endpoints: Option<Box<RawValue>>,
    ports: Option<Box<RawValue>>,
}

/// Longest quotation of an error, which may name a value of any length.
const LONGEST: usize = 200;

/// None: the object has no such part.
fn read<T: DeserializeOwned>(path: &str, part: Option<&RawValue>) -> Result<Option<T>, Invalid> {
    let Some(part) = part else { return Ok(None) };
    serde_json::from_str(part.get()).map(Some).map_err(|error| Invalid {
        path: path.into(),
        found: error.to_string().chars().take(LONGEST).collect(),
        expected: "what the API of Kubernetes says",
    })
}

impl<'de, K: Reducible> Deserialize<'de> for Reduced<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Reduced<K>, D::Error> {
        let mut parts = Parts::deserialize(from)?;
        let mut object = K::default();
        *object.meta_mut() = std::mem::take(&mut parts.metadata).into();
        let invalid = object.fill(&parts).err();
        Ok(Reduced { object, invalid })
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Reduced<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind(_: &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.object.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.object.meta_mut()
    }
}

#[cfg(test)]
mod tests;
