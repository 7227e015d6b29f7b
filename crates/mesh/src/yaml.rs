//! Reads files of Kubernetes objects, captured pods and policies, strictly: an unknown field is an error.

use crate::capture::pod;
use crate::document::Document;
use crate::field::Invalid;
use crate::kubernetes;
use crate::object::Object;
use crate::policy::{document as policy, network};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;

/// An error in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Index of the document, from 1.
    pub document: usize,
    /// Such as `spec.ports[0].port`; empty for the document as a whole.
    pub path: String,
    /// What is wrong there, without the path.
    pub what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "document {}: ", self.document)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for Wrong {}

/// All objects of a file, or its first error.
pub fn parse(text: &str) -> Result<Vec<Object>, Wrong> {
    let mut objects = Vec::new();
    for (i, document) in yaml_serde::Deserializer::from_str(text).enumerate() {
        let wrong = |(path, what)| Wrong { document: i + 1, path, what };
        let Document(value) =
            Document::deserialize(document).map_err(|error| wrong((String::new(), error.to_string())))?;
        if !value.is_null() {
            parse_document(value, &mut objects).map_err(wrong)?;
        }
    }
    Ok(objects)
}

type Part = (String, String);

const KINDS: &str = "v1 Service, Pod or Namespace, discovery.k8s.io/v1 EndpointSlice, networking.k8s.io/v1 NetworkPolicy, or \
     sidestep.dev/v1 Capture or Policy";

fn parse_document(value: Value, objects: &mut Vec<Object>) -> Result<(), Part> {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or("").to_string();
    match (text("apiVersion").as_str(), text("kind").as_str()) {
        ("v1", "Service") => objects.push(kubernetes::service(&strictly::<Service>(value)?).map_err(part)?),
        ("discovery.k8s.io/v1", "EndpointSlice") => {
            objects.extend(kubernetes::slice(&strictly::<EndpointSlice>(value)?).map_err(part)?);
        }
        (pod::API_VERSION, pod::KIND) => {
            objects.push(Object::Capture(Box::new(pod::capture(strictly(value)?).map_err(part)?)));
        }
        (pod::API_VERSION, policy::KIND) => {
            objects.push(Object::Policy(policy::policy(strictly(value)?).map_err(part)?));
        }
        ("networking.k8s.io/v1", "NetworkPolicy") => {
            objects.push(network::object(&strictly::<NetworkPolicy>(value)?).map_err(part)?);
        }
        ("v1", "Pod") => objects.push(Object::Pod(crate::pod::pod(&strictly::<Pod>(value)?).map_err(part)?)),
        ("v1", "Namespace") => {
            let namespace = crate::pod::namespace(&strictly::<Namespace>(value)?).map_err(part)?;
            objects.push(Object::Namespace(namespace));
        }
        ("v1", "List") => {
            for (i, item) in strictly::<List>(value)?.items.into_iter().enumerate() {
                parse_document(item, objects).map_err(|(path, what)| (inside(i, &path), what))?;
            }
        }
        (version, kind) => {
            let what = format!("{version:?} {kind:?} where {KINDS} is expected");
            return Err(("apiVersion, kind".to_string(), what));
        }
    }
    Ok(())
}

/// The kind that kubectl writes for several objects.
#[derive(Deserialize)]
struct List {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: ListMeta,
    items: Vec<Value>,
}

fn part(invalid: Invalid) -> Part {
    (invalid.path, format!("{} where {} is expected", invalid.found, invalid.expected))
}

/// The value as a T; fields that T does not have are errors.
fn strictly<T: DeserializeOwned>(value: Value) -> Result<T, Part> {
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    let parsed = serde_ignored::deserialize(tracked, |path| unknown.push(written(&path.to_string())));
    let parsed = parsed.map_err(|error: serde_json::Error| (place(&track.path()), error.to_string()))?;
    match unknown.into_iter().next() {
        Some(path) => Err((path, "no such field".to_string())),
        None => Ok(parsed),
    }
}

/// Empty for the document as a whole.
fn place(path: &serde_path_to_error::Path) -> String {
    path.to_string().trim_start_matches('.').to_string()
}

/// The path of a part of a list's item.
fn inside(item: usize, path: &str) -> String {
    format!("items[{item}].{path}").trim_end_matches('.').to_string()
}

/// Converts `spec.?.ports.?.0.name` (a `?` for each optional value) to `spec.ports[0].name`.
fn written(path: &str) -> String {
    let parts = path.split('.').filter(|part| *part != "?");
    let text: String = parts
        .map(|part| if part.parse::<usize>().is_ok() { format!("[{part}]") } else { format!(".{part}") })
        .collect();
    text.trim_start_matches('.').to_string()
}
