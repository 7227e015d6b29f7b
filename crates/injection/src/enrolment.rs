//! Which containers are to use rings: labels and annotations of pods, and namespaces.

use crate::reason::Reason;
use sidestep_agent_api::{RINGS, RINGS_ENABLED};

/// The annotation's only value that opts out.
const DISABLED: &str = "disabled";

/// What labels and annotations want.
#[derive(Debug, PartialEq, Eq)]
pub enum Enrolment {
    /// Nobody asks for rings.
    No,
    /// The pod is enrolled, and this container is left out.
    Without(Reason),
    /// The container is to use rings.
    Yes,
}

/// What decides of a pod.
pub trait Pod {
    /// The value of a label.
    fn label(&self, name: &str) -> Option<&str>;
    /// The value of an annotation.
    fn annotation(&self, name: &str) -> Option<&str>;
    /// Whether the pod has a network namespace of its own. What is not known counts as the node's.
    fn has_own_network(&self) -> bool;
}

/// What is wanted for the container of this name. The pod's label decides; without one, the namespace does.
pub fn enrolment(pod: &impl Pod, container: &str, is_namespace_enrolled: impl FnOnce() -> bool) -> Enrolment {
    let enrolled = pod.label(RINGS).map_or_else(is_namespace_enrolled, |value| value == RINGS_ENABLED);
    if !enrolled {
        return Enrolment::No;
    }
    let opts_out = |annotation: &str| pod.annotation(annotation) == Some(DISABLED);
    if opts_out(RINGS) || opts_out(&format!("{RINGS}.{container}")) {
        return Enrolment::Without(Reason::OptedOut);
    }
    if !pod.has_own_network() {
        return Enrolment::Without(Reason::HostNetwork);
    }
    Enrolment::Yes
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Described<'a> {
        label: Option<&'a str>,
        annotation: Option<(&'a str, &'a str)>,
        has_own_network: bool,
    }

    impl Pod for Described<'_> {
        fn label(&self, name: &str) -> Option<&str> {
            self.label.filter(|_| name == RINGS)
        }

        fn annotation(&self, name: &str) -> Option<&str> {
            self.annotation.filter(|(key, _)| *key == name).map(|(_, value)| value)
        }

        fn has_own_network(&self) -> bool {
            self.has_own_network
        }
    }

    fn decided(label: Option<&str>, annotation: Option<(&str, &str)>, has_own_network: bool) -> Enrolment {
        enrolment(&Described { label, annotation, has_own_network }, "app", || true)
    }

    #[test]
    fn the_label_comes_before_the_namespace() {
        assert_eq!(decided(None, None, true), Enrolment::Yes, "its namespace is enrolled");
        assert_eq!(decided(Some("enabled"), None, true), Enrolment::Yes);
        for other in ["disabled", "", "Enabled", "true"] {
            assert_eq!(decided(Some(other), None, true), Enrolment::No, "{other:?}");
        }
        let pod = Described { label: None, annotation: None, has_own_network: true };
        assert_eq!(enrolment(&pod, "app", || false), Enrolment::No);
    }

    #[test]
    fn annotations_opt_out() {
        let out = Enrolment::Without(Reason::OptedOut);
        assert_eq!(decided(None, Some((RINGS, "disabled")), true), out);
        assert_eq!(decided(None, Some(("sidestep.dev/rings.app", "disabled")), true), out);
        assert_eq!(decided(None, Some(("sidestep.dev/rings.other", "disabled")), true), Enrolment::Yes);
        assert_eq!(decided(None, Some((RINGS, "no")), true), Enrolment::Yes);
    }

    #[test]
    fn a_pod_without_a_network_of_its_own_is_left_out() {
        assert_eq!(decided(None, None, false), Enrolment::Without(Reason::HostNetwork));
        assert_eq!(decided(Some("other"), None, false), Enrolment::No, "nobody asks");
    }
}
