//! The parameters that a runtime passes in environment variables.

use crate::error::PluginError;
use std::env::VarError;
use std::path::PathBuf;

/// The variable of the command, without which the program is not run by a runtime.
pub const COMMAND: &str = "CNI_COMMAND";
const CONTAINER: &str = "CNI_CONTAINERID";
const NETNS: &str = "CNI_NETNS";
const INTERFACE: &str = "CNI_IFNAME";
const ARGS: &str = "CNI_ARGS";

const COMMANDS: &str = "ADD, DEL, CHECK, GC, STATUS or VERSION";
const A_CONTAINER: &str = "letters, digits, `_`, `.` and `-` after a letter or digit";
const AN_INTERFACE: &str = "the name of a network interface";
const A_PATH: &str = "an absolute path";
const A_POD: &str = "K8S_POD_NAMESPACE and K8S_POD_NAME (pods of Kubernetes are admitted, not other containers)";
const TEXT: &str = "text in UTF-8";

/// Runtimes use 64 digits; the agent makes a file's name of it.
const LONGEST_CONTAINER: usize = 200;
/// IFNAMSIZ without the zero at the end.
const LONGEST_INTERFACE: usize = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

/// Whose interface is concerned.
#[derive(Debug, PartialEq, Eq)]
pub struct Container {
    pub id: String,
    pub interface: String,
}

/// The pod of Kubernetes to which the container belongs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: Option<String>,
}

/// Values of variables by name. Tests have their own.
pub struct Environment<'a>(&'a dyn Fn(&str) -> Result<String, VarError>);

impl Environment<'_> {
    pub fn new(read: &dyn Fn(&str) -> Result<String, VarError>) -> Environment<'_> {
        Environment(read)
    }

    pub fn command(&self) -> Result<Command, PluginError> {
        Ok(match self.text(COMMAND)?.as_str() {
            "ADD" => Command::Add,
            "DEL" => Command::Del,
            "CHECK" => Command::Check,
            "GC" => Command::Gc,
            "STATUS" => Command::Status,
            "VERSION" => Command::Version,
            other => return Err(wrong(COMMAND, other, COMMANDS)),
        })
    }

    pub fn container(&self) -> Result<Container, PluginError> {
        let (id, interface) = (self.text(CONTAINER)?, self.text(INTERFACE)?);
        if !is_container(&id) {
            return Err(wrong(CONTAINER, &id, A_CONTAINER));
        }
        if !is_interface(&interface) {
            return Err(wrong(INTERFACE, &interface, AN_INTERFACE));
        }
        Ok(Container { id, interface })
    }

    pub fn netns(&self) -> Result<PathBuf, PluginError> {
        let text = self.text(NETNS)?;
        let path = PathBuf::from(&text);
        if path.is_absolute() { Ok(path) } else { Err(wrong(NETNS, &text, A_PATH)) }
    }

    pub fn pod(&self) -> Result<Pod, PluginError> {
        let text = self.text(ARGS)?;
        let mut pod = Pod::default();
        for (name, value) in text.split(';').filter_map(|pair| pair.split_once('=')) {
            match name {
                "K8S_POD_NAMESPACE" => pod.namespace = value.to_string(),
                "K8S_POD_NAME" => pod.name = value.to_string(),
                "K8S_POD_UID" if !value.is_empty() => pod.uid = Some(value.to_string()),
                _ => {}
            }
        }
        if pod.namespace.is_empty() || pod.name.is_empty() { Err(wrong(ARGS, &text, A_POD)) } else { Ok(pod) }
    }

    /// A variable that is missing counts as empty.
    fn text(&self, name: &'static str) -> Result<String, PluginError> {
        match (self.0)(name) {
            Ok(text) => Ok(text),
            Err(VarError::NotPresent) => Ok(String::new()),
            Err(VarError::NotUnicode(bytes)) => Err(wrong(name, &bytes.to_string_lossy(), TEXT)),
        }
    }
}

/// Longer values would only fill a log.
const LONGEST_QUOTATION: usize = 200;

fn wrong(name: &'static str, found: &str, expected: &'static str) -> PluginError {
    PluginError::Environment { name, found: found.chars().take(LONGEST_QUOTATION).collect(), expected }
}

/// As the specification has it.
fn is_container(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    text.len() <= LONGEST_CONTAINER
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_part)
}

fn is_interface(text: &str) -> bool {
    let is_foreign = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    !text.is_empty() && text.len() <= LONGEST_INTERFACE && !text.contains(is_foreign) && ![".", ".."].contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(variables: &[(&str, &str)], read: impl FnOnce(&Environment) -> T) -> T {
        let find = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.to_string()).ok_or(VarError::NotPresent)
        };
        read(&Environment::new(&find))
    }

    #[test]
    fn containers_and_interfaces_have_the_names_that_the_specification_permits() {
        let read = |id, interface| with(&[(CONTAINER, id), (INTERFACE, interface)], |it| it.container());
        assert_eq!(read("0a_.-", "eth0").unwrap(), Container { id: "0a_.-".into(), interface: "eth0".into() });
        let long = "a".repeat(201);
        for id in ["", ".a", "-a", "a/b", "a b", "ä", "../a", &long] {
            assert!(read(id, "eth0").is_err(), "{id}");
        }
        for interface in ["", ".", "..", "a/b", "a:b", "a b", "a\n", "0123456789abcdef"] {
            assert!(read("a", interface).is_err(), "{interface}");
        }
    }

    #[test]
    fn the_pod_is_found_among_other_arguments() {
        let read = |text| with(&[(ARGS, text)], |it| it.pod());
        let text =
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=1;K8S_POD_UID=u";
        let expected = Pod { namespace: "shop".into(), name: "web-0".into(), uid: Some("u".into()) };
        assert_eq!(read(text).unwrap(), expected);
        assert_eq!(read("K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;K8S_POD_UID=").unwrap().uid, None);
        let long = "=;".repeat(100_000);
        for text in ["", "K8S_POD_NAME=b", "K8S_POD_NAMESPACE=a;K8S_POD_NAME=", ";;=;a", &long] {
            assert!(read(text).unwrap_err().to_string().len() < 500, "{text}");
        }
    }

    #[test]
    fn a_namespace_is_named_by_an_absolute_path() {
        assert_eq!(with(&[(NETNS, "/run/netns/a")], |it| it.netns()).unwrap(), PathBuf::from("/run/netns/a"));
        assert!(with(&[(NETNS, "a")], |it| it.netns()).is_err() && with(&[], |it| it.netns()).is_err());
    }

    #[test]
    fn text_that_is_not_utf_8_is_an_error() {
        use std::os::unix::ffi::OsStringExt;
        let broken = |_: &str| Err(VarError::NotUnicode(std::ffi::OsString::from_vec(vec![b'A', 0xff])));
        assert!(Environment::new(&broken).command().unwrap_err().to_string().contains(TEXT));
    }
}
