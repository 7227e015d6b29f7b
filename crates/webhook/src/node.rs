//! What is known of a node.

use k8s_openapi::api::core::v1::Taint;
use std::collections::BTreeMap;

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// By them pods choose nodes.
    pub labels: BTreeMap<String, String>,
    /// By them nodes turn pods away.
    pub taints: Vec<Taint>,
}
