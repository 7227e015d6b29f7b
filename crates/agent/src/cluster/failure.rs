//! An error of the API server, in one line for an operator.

use kube::Resource;
use kube::core::Status;
use kube::runtime::watcher;
use sidestep_error::chain;

pub struct Failure {
    pub text: String,
    /// The agent's account may not read these objects.
    pub is_refusal: bool,
}

/// Longest quotation of a server's message.
const LONGEST: usize = 400;

impl Failure {
    pub fn new<K: Resource<DynamicType = ()>>(error: &watcher::Error) -> Failure {
        let (verb, status) = match error {
            watcher::Error::InitialListFailed(error) => ("list", answered(error)),
            watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => ("watch", answered(error)),
            watcher::Error::WatchError(status) => ("watch", Some(&**status)),
            watcher::Error::NoResourceVersion => ("watch", None),
        };
        let text = match status {
            Some(status) if status.code == 403 => forbidden::<K>(verb, status),
            Some(status) => format!("the API server answers {} {}: {}", status.code, status.reason, status.message),
            None => chain(error).to_string(),
        };
        Failure { text: one_line(&text), is_refusal: status.is_some_and(|status| status.code == 403) }
    }
}

fn answered(error: &kube::Error) -> Option<&Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

fn forbidden<K: Resource<DynamicType = ()>>(verb: &str, status: &Status) -> String {
    let (group, resource) = (K::group(&()), K::plural(&()));
    let of_group = if group.is_empty() { "the core group".into() } else { format!("the group {group}") };
    format!(
        "the agent's account may not {verb} {resource}: give its ClusterRole the verbs list and watch for {resource} of \
         {of_group} ({})",
        status.message
    )
}

fn one_line(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Service;
    use k8s_openapi::api::discovery::v1::EndpointSlice;

    fn status(code: u16, message: &str) -> kube::Error {
        let status = Status { code, message: message.into(), reason: "Forbidden".into(), ..Status::default() };
        kube::Error::Api(Box::new(status))
    }

    #[test]
    fn a_missing_right_is_one_line_with_verb_and_resource() {
        let said =
            r#"endpointslices.discovery.k8s.io is forbidden: User "agent" cannot list resource "endpointslices""#;
        let error = watcher::Error::InitialListFailed(status(403, said));
        let failure = Failure::new::<EndpointSlice>(&error);
        assert!(failure.is_refusal);
        let expected = "the agent's account may not list endpointslices: give its ClusterRole the verbs list and watch for \
                        endpointslices of the group discovery.k8s.io (endpointslices.discovery.k8s.io is forbidden: User";
        assert!(failure.text.starts_with(expected), "{}", failure.text);
        assert!(!failure.text.contains("Status {") && !failure.text.contains("ApiError"), "{}", failure.text);
        let watch = Failure::new::<Service>(&watcher::Error::WatchStartFailed(status(403, "no")));
        assert!(watch.is_refusal && watch.text.contains("may not watch services") && watch.text.contains("core group"));
    }

    #[test]
    fn what_a_server_says_is_no_more_than_a_line() {
        let long = format!("one\ntwo\x1b[2J{}", "x".repeat(100_000));
        let failure = Failure::new::<Service>(&watcher::Error::InitialListFailed(status(500, &long)));
        assert!(!failure.is_refusal);
        assert!(failure.text.starts_with("the API server answers 500 Forbidden: one two [2Jxxx"), "{}", failure.text);
        assert_eq!(failure.text.chars().count(), LONGEST);
    }

    #[test]
    fn of_other_failures_the_cause_is_told_once() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "Connection refused (os error 111)");
        let error = watcher::Error::InitialListFailed(kube::Error::Service(Box::new(refused)));
        let failure = Failure::new::<Service>(&error);
        assert_eq!(failure.text.matches("Connection refused").count(), 1, "{}", failure.text);
    }
}
