//! Names of objects.

use std::fmt;
use std::sync::Arc;

/// Namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// `metadata.namespace`; `default` if the object has none.
    pub namespace: Arc<str>,
    /// `metadata.name`; unique within the namespace for each kind of object.
    pub name: Arc<str>,
}

impl Name {
    /// Copies both texts.
    pub fn new(namespace: &str, name: &str) -> Name {
        Name { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
