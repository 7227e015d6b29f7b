//! Errors in the form in which a runtime gets them.

use serde::Serialize;
use sidestep_agent_api::AskError;
use sidestep_error::chain;
use std::io;
use std::time::Duration;

/// Why the command fails. The variants are described by their messages.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    #[error("CNI version {0:?} is not supported: use one of 0.3.0, 0.3.1, 0.4.0, 1.0.0 and 1.1.0")]
    Version(String),
    #[error("invalid environment variable {name}: {found:?} where {expected} is expected")]
    Environment { name: &'static str, found: String, expected: &'static str },
    #[error("cannot read the network configuration from standard input")]
    Input(#[source] io::Error),
    #[error("the network configuration did not arrive within {0:?}")]
    Late(Duration),
    #[error("the network configuration has more than {0} bytes")]
    Long(u64),
    #[error("cannot decode the network configuration")]
    Decode(#[source] serde_json::Error),
    #[error("the network configuration's {field} is missing")]
    Missing { field: &'static str },
    #[error("the network configuration's timeoutSeconds is {found}: from {least} to {most} is possible")]
    Timeout { found: u64, least: u64, most: u64 },
    #[error("the network configuration has no prevResult: sidestep-cni must come after another plugin of a chain")]
    NotChained,
    #[error("prevResult cannot be understood")]
    PrevResult(#[source] serde_json::Error),
    #[error("the pod does not start uncaptured")]
    Ask(#[source] AskError),
    #[error("the agent does not confirm it")]
    Unconfirmed(#[source] AskError),
    #[error("the agent gave another answer than was asked for: use programs of one release")]
    Answer,
    #[error("no pod can be admitted")]
    NotReady(#[source] AskError),
}

/// The specification's "try again later".
const AGAIN: u32 = 11;
/// From 100 on codes are the plugin's own.
const REFUSED: u32 = 100;
const ANOTHER_RELEASE: u32 = 101;

fn code_of(error: &AskError) -> u32 {
    match error {
        AskError::Nobody { .. } | AskError::NoAnswer { .. } => AGAIN,
        AskError::Refused(_) => REFUSED,
        AskError::OtherVersion { .. } => ANOTHER_RELEASE,
    }
}

impl PluginError {
    /// The specification's code.
    fn code(&self) -> u32 {
        match self {
            PluginError::Version(_) => 1,
            PluginError::Environment { .. } => 4,
            PluginError::Input(_) | PluginError::Late(_) => 5,
            PluginError::Long(_) | PluginError::Decode(_) => 6,
            PluginError::Missing { .. }
            | PluginError::Timeout { .. }
            | PluginError::NotChained
            | PluginError::PrevResult(_) => 7,
            PluginError::NotReady(_) => 50,
            PluginError::Ask(error) | PluginError::Unconfirmed(error) => code_of(error),
            PluginError::Answer => ANOTHER_RELEASE,
        }
    }

    /// What is printed. `version`: that of the configuration, if it could be read.
    pub fn report(&self, version: &str) -> Report {
        let (msg, whole) = (self.to_string(), chain(self).to_string());
        let details = whole.strip_prefix(&msg).map(|causes| causes.trim_start_matches(": ").to_string());
        Report { cni_version: version.to_string(), code: self.code(), msg, details: details.unwrap_or_default() }
    }
}

/// The specification's error result.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(rename = "cniVersion")]
    cni_version: String,
    code: u32,
    msg: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    details: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_agent_api::Refusal;

    #[test]
    fn causes_are_the_details() {
        let error = PluginError::Ask(AskError::Refused(Refusal("no pod a/b".into())));
        let report = serde_json::to_value(error.report("1.0.0")).unwrap();
        let expected = serde_json::json!({
            "cniVersion": "1.0.0", "code": 100, "msg": "the pod does not start uncaptured",
            "details": "the agent says: no pod a/b",
        });
        assert_eq!(report, expected);
        let report = serde_json::to_value(PluginError::NotChained.report("1.0.0")).unwrap();
        assert_eq!((report["code"].as_u64(), report.get("details")), (Some(7), None));
    }
}
