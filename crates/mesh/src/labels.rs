//! Labels of pods and namespaces.

use std::collections::BTreeMap;
use std::sync::Arc;

/// As in Kubernetes: key and value, both texts.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// Whether each of `wanted` is among `labels` with the same value. True if `wanted` is empty.
pub(crate) fn has_all(labels: &Labels, wanted: &Labels) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}
