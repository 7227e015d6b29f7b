//! Which containers are to use rings: labels and annotations of pods, and names of namespaces.

use crate::api::{Container, PodSandbox};
use crate::namespaces::Namespaces;
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

/// What is wanted for a container. The pod's label decides; without one, the namespace does.
pub fn enrolment(pod: &PodSandbox, container: &Container, namespaces: &mut Namespaces) -> Enrolment {
    let enrolled = match pod.labels.get(RINGS) {
        Some(value) => value == RINGS_ENABLED,
        None => namespaces.contains(&pod.namespace),
    };
    if !enrolled {
        return Enrolment::No;
    }
    if opts_out(pod, RINGS) || opts_out(pod, &format!("{RINGS}.{}", container.name)) {
        return Enrolment::Without(Reason::OptedOut);
    }
    if uses_host_network(pod) {
        return Enrolment::Without(Reason::HostNetwork);
    }
    Enrolment::Yes
}

fn opts_out(pod: &PodSandbox, annotation: &str) -> bool {
    pod.annotations.get(annotation).is_some_and(|value| value == DISABLED)
}

/// A pod with a network of its own has a network namespace; what is not known counts as the node's.
fn uses_host_network(pod: &PodSandbox) -> bool {
    let namespaces = pod.linux.as_ref().map_or(&[][..], |linux| &linux.namespaces);
    !namespaces.iter().any(|namespace| namespace.r#type == "network")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{LinuxNamespace, LinuxPodSandbox};

    const OWN_NETWORK: &[&str] = &["pid", "network"];

    fn decided(label: Option<&str>, annotations: &[(&str, &str)], linux: Option<&[&str]>) -> Enrolment {
        let namespace = |r#type: &&str| LinuxNamespace { r#type: (*r#type).into(), path: String::new() };
        let pod = PodSandbox {
            namespace: "listed".into(),
            labels: label.map(|value| (RINGS.into(), value.into())).into_iter().collect(),
            annotations: annotations.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            linux: linux.map(|types| LinuxPodSandbox { namespaces: types.iter().map(namespace).collect() }),
            ..PodSandbox::default()
        };
        let container = Container { name: "app".into(), ..Container::default() };
        enrolment(&pod, &container, &mut Namespaces::new(["listed".into()], None))
    }

    #[test]
    fn the_label_comes_before_the_namespace() {
        assert_eq!(decided(None, &[], Some(OWN_NETWORK)), Enrolment::Yes, "its namespace is enrolled");
        assert_eq!(decided(Some("enabled"), &[], Some(OWN_NETWORK)), Enrolment::Yes);
        for other in ["disabled", "", "Enabled", "true"] {
            assert_eq!(decided(Some(other), &[], Some(OWN_NETWORK)), Enrolment::No, "{other:?}");
        }
    }

    #[test]
    fn annotations_opt_out() {
        let out = Enrolment::Without(Reason::OptedOut);
        assert_eq!(decided(None, &[(RINGS, "disabled")], Some(OWN_NETWORK)), out);
        assert_eq!(decided(None, &[("sidestep.dev/rings.app", "disabled")], Some(OWN_NETWORK)), out);
        assert_eq!(decided(None, &[("sidestep.dev/rings.other", "disabled")], Some(OWN_NETWORK)), Enrolment::Yes);
        assert_eq!(decided(None, &[(RINGS, "no")], Some(OWN_NETWORK)), Enrolment::Yes);
    }

    #[test]
    fn a_pod_without_a_network_of_its_own_is_left_out() {
        let out = Enrolment::Without(Reason::HostNetwork);
        assert_eq!(decided(None, &[], Some(&["pid", "ipc"])), out);
        assert_eq!(decided(None, &[], Some(&[])), out);
        assert_eq!(decided(None, &[], None), out, "nothing is known");
        assert_eq!(decided(Some("other"), &[], None), Enrolment::No, "nobody asks");
    }
}
