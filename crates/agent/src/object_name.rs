//! Names of objects of Kubernetes that come from elsewhere than the API server: they become parts of URLs and of files' names.

/// Of objects in Kubernetes.
pub const LONGEST: usize = 253;

/// A subdomain of DNS, which the name of a namespace is, too.
pub fn is_object_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= LONGEST && text.starts_with(is_edge) && text.ends_with(is_edge) && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        assert!(["a", "kube-system", "web-0.a"].into_iter().all(is_object_name));
        assert!(!["", ".", "..", "a/b", "a?x=1", "A", "a\n", "-a", &"a".repeat(254)].into_iter().any(is_object_name));
    }
}
