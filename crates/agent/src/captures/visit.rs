//! A visit to the namespace that a document of kind Capture names: the tables are written by what the visit finds.

use super::CaptureStatus;
use super::controller::{CaptureController, OpenError, PAUSES};
use super::identity::{Identity, Opened};
use sidestep_ebpf::capture::{changes, pod_network};
use sidestep_ebpf::error::Error;
use sidestep_error::chain;
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::capture::tables::PodNetwork;
use sidestep_mesh::object::Name;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause before policies that could not be written are tried again: a full table takes a while to detect.
pub const UNENFORCED: Duration = Duration::from_secs(30);

/// Why a namespace is not as its document wants it. The visit is repeated.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    #[error("{}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("there is no network namespace {}", .0.display())]
    NoNamespace(PathBuf),
    #[error("{} is the node's own namespace, in which nothing is captured", .0.display())]
    OfNode(PathBuf),
    #[error(
        "spec.cgroup: {} is not in {}, to which programs are attached: start the agent with a --cgroup that contains both",
        cgroup.display(),
        attached.display()
    )]
    NotCovered { cgroup: PathBuf, attached: PathBuf },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Tables(#[from] Error),
}

impl CaptureController<'_> {
    pub fn visit(&mut self, name: &Name) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        pod.is_obscure = false;
        let begun = Instant::now();
        let visited = self.try_visit(name);
        tracing::debug!(%name, took = ?begun.elapsed(), well = visited.is_ok(), "visited");
        let (troubles, again) = match visited {
            Ok(troubles) => (troubles, false),
            Err(error) => (vec![chain(&error).to_string()], true),
        };
        let Some(pod) = self.pods.get_mut(name) else { return };
        pod.troubles = troubles;
        let pause = pod.pause;
        pod.pause = if again { (pause * 2).min(PAUSES[1]) } else { PAUSES[0] };
        let unenforced = pod.unenforced.is_some();
        if again {
            self.schedule.visit_at(name, Instant::now() + pause);
        } else if unenforced {
            self.schedule.visit_at(name, Instant::now() + UNENFORCED);
        }
        self.note(name);
    }

    /// Reports the pod's status if it has changed.
    pub fn note(&mut self, name: &Name) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        let netns = pod.seen.map(|(_, cookie)| cookie);
        let namespace = netns.and_then(|cookie| self.namespaces.get(cookie));
        let applied = namespace.and_then(|namespace| namespace.applied.clone()).filter(|by| by.name == *name);
        let is_its = namespace.is_some_and(|namespace| namespace.owner() == Some(name));
        let enforced = is_its && netns.is_some_and(|cookie| self.enforcer.is_policed(cookie));
        let troubles = pod.troubles.iter().chain(&pod.unenforced).cloned().collect();
        let is_in_force = is_its && applied.is_some() && pod.unenforced.is_none();
        let status = CaptureStatus { netns, applied, enforced, is_in_force, troubles };
        if pod.told.as_ref() != Some(&status) {
            pod.told = Some(status.clone());
            self.reporter.note(name, Some(status));
        }
    }

    /// Returns problems that did not prevent the capture. After an error the visit is repeated.
    fn try_visit(&mut self, name: &Name) -> Result<Vec<String>, VisitError> {
        let pod = self.pods.get_mut(name).expect("a visited pod is wanted");
        let (capture, path) = (Arc::clone(&pod.capture), pod.path.clone());
        let of_file = |source| VisitError::File { path: path.clone(), source };
        let opened = Opened::open(&path).map_err(of_file)?;
        let Some(opened) = opened else {
            self.now_at(name, None);
            return Err(VisitError::NoNamespace(path));
        };
        pod.is_obscure = true;
        let held = opened.path();
        let number = changes::number(&held).map(Some).map_err(of_file);
        let number = number.or_else(|error| if self.blind.is_some() { Ok(None) } else { Err(error) })?;
        let (cookie, network) = pod_network::read_named(&held).map_err(|error| error.known_as(&held, &path))?;
        self.pods.get_mut(name).expect("a visited pod is wanted").is_obscure = false;
        if cookie == self.node {
            self.now_at(name, None);
            return Err(VisitError::OfNode(path));
        }
        self.now_at(name, Some((opened.identity, cookie)));
        self.claim(name, cookie, number);
        let namespace = self.namespaces.get(cookie).expect("the visited namespace is claimed");
        if let Some(owner) = namespace.owner().filter(|owner| *owner != name) {
            let what = "is for the same namespace: of several files the first by name counts, and this is another one";
            return Ok(vec![format!("Capture {owner} {what}")]);
        }
        let others: Vec<String> =
            namespace.claims().filter(|other| *other != name).map(|other| other.to_string()).collect();
        self.enforce_here(name, cookie, &held, &network);
        is_covered(&capture, &self.settings.cgroup)?;
        let renew = self.renew.remove(&cookie);
        let captures = self.captures()?;
        let put = captures.put_deferred(&held, cookie, &name.namespace, &capture.rules, &network);
        let put = put.and_then(|()| if renew { captures.renew_listeners(&held, cookie) } else { Ok(()) });
        put.map_err(|error| error.known_as(&held, &path))?;
        let is_policed = self.pods.get(name).is_some_and(|pod| pod.unenforced.is_none());
        if is_policed {
            self.enforcer.admit(cookie)?;
        }
        let complaints = other_addresses(&capture, &network).into_iter().chain(others.first().map(|_| {
            format!("Capture {} names the same namespace: this file counts, the first by name", others.join(", "))
        }));
        let complaints = complaints.chain(self.blind.as_ref().map(|why| chain(why).to_string())).collect();
        self.namespaces.get_mut(cookie).expect("the visited namespace is claimed").applied = Some(capture);
        Ok(complaints)
    }

    /// Notes that this namespace is the document's concern.
    pub fn claim(&mut self, name: &Name, cookie: u64, number: Option<i32>) {
        let claimed = self.namespaces.claim(name, cookie, number);
        // The kernel's report of that end may come late: it then finds this namespace under the number, and ends nothing.
        claimed.displaced.into_iter().for_each(|ended| self.end(ended));
        claimed.others.iter().for_each(|other| self.visit_soon(other, Duration::ZERO));
    }

    /// Notes which namespace the document names now. A namespace that has lost its name stays captured, unless the document
    /// has named another one.
    fn now_at(&mut self, name: &Name, seen: Option<(Identity, u64)>) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        let before = std::mem::replace(&mut pod.seen, seen).map(|(_, cookie)| cookie);
        let has_moved = std::mem::take(&mut pod.has_moved);
        if before == seen.map(|(_, cookie)| cookie) {
            return;
        }
        if has_moved {
            self.release(name);
        } else if let Some(orphaned) = before.and_then(|cookie| self.namespaces.abandon(name, cookie)) {
            self.orphaned(orphaned);
        }
    }
}

/// The pod must be below the cgroup to which programs are attached: elsewhere only inbound connections would be captured.
fn is_covered(capture: &Capture, attached: &Path) -> Result<(), VisitError> {
    let Some(cgroup) = &capture.cgroup else { return Ok(()) };
    let of = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
    let attached = of(attached);
    let cgroup = of(&attached.join(cgroup));
    if cgroup.starts_with(&attached) {
        return Ok(());
    }
    Err(VisitError::NotCovered { cgroup, attached })
}

fn other_addresses(capture: &Capture, network: &PodNetwork) -> Option<String> {
    let missing: Vec<String> =
        capture.addresses.iter().filter(|ip| !network.addresses.contains(ip)).map(ToString::to_string).collect();
    let present: Vec<String> =
        network.addresses.iter().filter(|ip| !ip.is_loopback()).map(ToString::to_string).collect();
    (!missing.is_empty()).then(|| {
        format!("spec.addresses: the namespace has not {}, but {}; it is captured all the same", missing.join(", "), {
            if present.is_empty() { "none".into() } else { present.join(", ") }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_namespace_and_the_cause() {
        let path = || PathBuf::from("/run/netns/web");
        let told = |error: VisitError| chain(&error).to_string();
        let denied = VisitError::File { path: path(), source: io::Error::from_raw_os_error(13) };
        assert_eq!(told(denied), "/run/netns/web: Permission denied (os error 13)");
        assert_eq!(told(VisitError::NoNamespace(path())), "there is no network namespace /run/netns/web");
        let (cgroup, attached) = ("/sys/fs/cgroup/b".into(), "/sys/fs/cgroup/a".into());
        let expected = "spec.cgroup: /sys/fs/cgroup/b is not in /sys/fs/cgroup/a, to which programs are attached: \
                        start the agent with a --cgroup that contains both";
        assert_eq!(told(VisitError::NotCovered { cgroup, attached }), expected);
    }
}
