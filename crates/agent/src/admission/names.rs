//! Names in requests become names of files and parts of URLs.

use super::error::AdmissionError;
use crate::object_name::{LONGEST, is_object_name};
use sidestep_agent_api::{Applicant, Attachment};

/// Runtimes use 64 digits.
const LONGEST_CONTAINER: usize = 200;
/// IFNAMSIZ without the zero at the end.
const LONGEST_INTERFACE: usize = 15;

/// The error is the first name that the specification of CNI, or Kubernetes, does not permit.
pub fn check(applicant: &Applicant) -> Result<(), AdmissionError> {
    let Attachment { network, container, interface } = &applicant.attachment;
    let names = [
        (network, is_cni_name(network) && network.len() <= LONGEST),
        (container, is_cni_name(container) && container.len() <= LONGEST_CONTAINER),
        (interface, is_interface(interface)),
        (&applicant.namespace, is_object_name(&applicant.namespace)),
        (&applicant.name, is_object_name(&applicant.name)),
    ];
    match names.into_iter().find(|(_, is_right)| !is_right) {
        Some((wrong, _)) => Err(AdmissionError::Name(wrong.clone())),
        None => Ok(()),
    }
}

fn is_cni_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_part)
}

fn is_interface(text: &str) -> bool {
    let is_foreign = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    !text.is_empty() && text.len() <= LONGEST_INTERFACE && !text.contains(is_foreign) && ![".", ".."].contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applicant() -> Applicant {
        Applicant {
            attachment: Attachment { network: "kindnet".into(), container: "0aF_.-".into(), interface: "eth0".into() },
            netns: "/run/netns/x".into(),
            namespace: "kube-system".into(),
            name: "web-0.a".into(),
            uid: None,
            addresses: Vec::new(),
            within_ms: 0,
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        assert!(check(&applicant()).is_ok());
        let wrong: [fn(&mut Applicant); 12] = [
            |it| it.attachment.container = "../x".into(),
            |it| it.attachment.container = ".new".into(),
            |it| it.attachment.container = String::new(),
            |it| it.attachment.container = "a".repeat(201),
            |it| it.attachment.network = "a/b".into(),
            |it| it.attachment.interface = "a/b".into(),
            |it| it.attachment.interface = "..".into(),
            |it| it.attachment.interface = "a".repeat(16),
            |it| it.namespace = "a/b".into(),
            |it| it.name = "..".into(),
            |it| it.name = "a?x=1".into(),
            |it| it.name = String::new(),
        ];
        for (number, spoil) in wrong.iter().enumerate() {
            let mut one = applicant();
            spoil(&mut one);
            assert!(matches!(check(&one), Err(AdmissionError::Name(_))), "{number}: {one:?}");
        }
    }
}
