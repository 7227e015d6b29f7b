//! What the API server knows of a pod's namespace. Its selectors look at labels of namespaces; the path that it calls says what they
//! have found. So the webhook reads no namespace.

/// How a pod comes to the webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Whether the namespace is enrolled: counts for pods without a label of their own.
    pub is_namespace_enrolled: bool,
    /// Whether the namespace's Pod Security level permits hostPath volumes.
    pub permits_host_paths: bool,
}

impl Case {
    /// The one of a path.
    pub fn at(path: &str) -> Option<Case> {
        let case = |is_namespace_enrolled, permits_host_paths| Case { is_namespace_enrolled, permits_host_paths };
        match path {
            "/pod" => Some(case(false, true)),
            "/namespace" => Some(case(true, true)),
            "/restricted/pod" => Some(case(false, false)),
            "/restricted/namespace" => Some(case(true, false)),
            _ => None,
        }
    }
}
