//! A pod as the runtime describes it.

use crate::api::{Container, PodSandbox};
use crate::namespaces::Namespaces;
use sidestep_injection::{Enrolment, Pod};

impl Pod for PodSandbox {
    fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }

    fn has_own_network(&self) -> bool {
        let namespaces = self.linux.as_ref().map_or(&[][..], |linux| &linux.namespaces);
        namespaces.iter().any(|namespace| namespace.r#type == "network")
    }
}

/// What is wanted for a container of the pod.
pub fn enrolment(pod: &PodSandbox, container: &Container, namespaces: &mut Namespaces) -> Enrolment {
    sidestep_injection::enrolment(pod, &container.name, || namespaces.contains(&pod.namespace))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{LinuxNamespace, LinuxPodSandbox};

    #[test]
    fn a_network_namespace_makes_a_network_of_its_own() {
        let has = |types: Option<&[&str]>| {
            let namespace = |r#type: &&str| LinuxNamespace { r#type: (*r#type).into(), path: String::new() };
            let linux = types.map(|types| LinuxPodSandbox { namespaces: types.iter().map(namespace).collect() });
            PodSandbox { linux, ..PodSandbox::default() }.has_own_network()
        };
        assert!(has(Some(&["pid", "network"])));
        assert!(!has(Some(&["pid", "ipc"])) && !has(Some(&[])) && !has(None), "what is not known counts as the node's");
    }

    #[test]
    fn a_listed_namespace_enrols() {
        let pod = |namespace: &str| PodSandbox {
            namespace: namespace.into(),
            linux: Some(LinuxPodSandbox {
                namespaces: vec![LinuxNamespace { r#type: "network".into(), path: String::new() }],
            }),
            ..PodSandbox::default()
        };
        let mut namespaces = Namespaces::new(["listed".into()], None);
        let mut wanted = |name| enrolment(&pod(name), &Container::default(), &mut namespaces);
        assert_eq!(wanted("listed"), Enrolment::Yes);
        assert_eq!(wanted("other"), Enrolment::No);
    }
}
