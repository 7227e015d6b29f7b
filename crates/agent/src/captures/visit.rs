//! A visit to the namespace that a file of kind Capture names: what is found there is what is written.

use super::Standing;
use super::identity::{Identity, Opened};
use super::keeper::{Keeper, PAUSES};
use sidestep_ebpf::capture::{changes, place};
use sidestep_ebpf::error::Error;
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::capture::tables::Place;
use sidestep_mesh::object::Name;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Policies that could not be written are tried again after this: a table that is full takes a while to be found so.
pub const UNJUDGED: Duration = Duration::from_secs(30);

impl Keeper<'_> {
    pub fn visit(&mut self, name: &Name) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        (pod.due, pod.is_queued, pod.is_obscure) = (None, false, false);
        let begun = Instant::now();
        let visited = self.try_visit(name);
        tracing::debug!(%name, took = ?begun.elapsed(), well = visited.is_ok(), "visited");
        let (troubles, again) = match visited {
            Ok(troubles) => (troubles, false),
            Err(trouble) => (vec![trouble], true),
        };
        let Some(pod) = self.pods.get_mut(name) else { return };
        pod.troubles = troubles;
        let pause = pod.pause;
        pod.pause = if again { (pause * 2).min(PAUSES[1]) } else { PAUSES[0] };
        let unjudged = pod.unjudged.is_some();
        if again {
            self.set_due(name, Some(Instant::now() + pause));
        } else if unjudged {
            self.set_due(name, Some(Instant::now() + UNJUDGED));
        }
        self.note(name);
    }

    /// What became of a pod, if that is news.
    pub fn note(&mut self, name: &Name) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        let netns = pod.seen.map(|(_, cookie)| cookie);
        let space = netns.and_then(|cookie| self.spaces.get(cookie));
        let applied = space.and_then(|space| space.applied.clone()).filter(|by| by.name == *name);
        let is_its = space.is_some_and(|space| space.owner() == Some(name));
        let judged = is_its && netns.is_some_and(|cookie| self.judging.is_judged(cookie));
        let troubles = pod.troubles.iter().chain(&pod.unjudged).cloned().collect();
        let standing = Standing { netns, applied, judged, troubles };
        if pod.told.as_ref() != Some(&standing) {
            pod.told = Some(standing.clone());
            self.news.insert(name.clone(), Some(standing));
        }
    }

    /// What is not as it should be though everything was done; or why not, in which case it is tried again.
    fn try_visit(&mut self, name: &Name) -> Result<Vec<String>, String> {
        let pod = self.pods.get_mut(name).expect("it is wanted");
        let (capture, path) = (Arc::clone(&pod.capture), pod.path.clone());
        let opened = Opened::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let Some(opened) = opened else {
            self.now_at(name, None);
            return Err(format!("there is no network namespace {}", path.display()));
        };
        pod.is_obscure = true;
        let held = opened.path();
        let number = changes::number(&held).map_err(|error| format!("{}: {error}", path.display()));
        let number = number.or_else(|error| if self.blind.is_some() { Ok(-1) } else { Err(error) })?;
        let (cookie, place) = place::look_and_name(&held).map_err(|error| named(&path, &held, &error))?;
        self.pods.get_mut(name).expect("it is wanted").is_obscure = false;
        if cookie == self.node {
            self.now_at(name, None);
            return Err(format!("{} is the node's own namespace, in which nothing is captured", path.display()));
        }
        self.now_at(name, Some((opened.identity, cookie)));
        for other in self.spaces.claim(name, cookie, number) {
            self.visit_soon(&other, Duration::ZERO);
        }
        let space = self.spaces.get(cookie).expect("it is claimed");
        if let Some(owner) = space.owner().filter(|owner| *owner != name) {
            let what = "is for the same namespace: of several files the first by name counts, and this is another one";
            return Ok(vec![format!("Capture {owner} {what}")]);
        }
        let others: Vec<String> =
            space.claims().filter(|other| *other != name).map(|other| other.to_string()).collect();
        self.judge_here(name, cookie, &held, &place);
        is_covered(&capture, &self.settings.cgroup)?;
        let renew = self.renew.remove(&cookie);
        let captures = self.captures()?;
        let put = captures.put_untidily(&held, cookie, &capture.rules, &place);
        let put = put.and_then(|()| if renew { captures.renew_listeners(&held, cookie) } else { Ok(()) });
        put.map_err(|error| named(&path, &held, &error))?;
        let is_judged = self.pods.get(name).is_some_and(|pod| pod.unjudged.is_none());
        if is_judged {
            self.judging.admit(cookie).map_err(|error| error.to_string())?;
        }
        let complaints = other_addresses(&capture, &place).into_iter().chain(others.first().map(|_| {
            format!("Capture {} names the same namespace: this file counts, the first by name", others.join(", "))
        }));
        let complaints = complaints.chain(self.blind.clone()).collect();
        self.spaces.get_mut(cookie).expect("it is claimed").applied = Some(capture);
        Ok(complaints)
    }

    /// The namespace that the file names now. One that has lost its name is captured on, unless the file has.
    fn now_at(&mut self, name: &Name, seen: Option<(Identity, u64)>) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        let before = std::mem::replace(&mut pod.seen, seen).map(|(_, cookie)| cookie);
        let has_moved = std::mem::take(&mut pod.has_moved);
        if before == seen.map(|(_, cookie)| cookie) {
            return;
        }
        if has_moved {
            self.release(name);
        } else if let Some(left) = before.and_then(|cookie| self.spaces.abandon(name, cookie)) {
            self.left(left);
        }
    }
}

/// By the name that people know.
fn named(path: &Path, held: &Path, error: &Error) -> String {
    error.to_string().replace(&held.display().to_string(), &path.display().to_string())
}

/// Programs for what a pod sends are attached to the agent's cgroup: elsewhere only what comes in would be captured.
fn is_covered(capture: &Capture, attached: &Path) -> Result<(), String> {
    let Some(cgroup) = &capture.cgroup else { return Ok(()) };
    let of = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
    let attached = of(attached);
    let cgroup = of(&attached.join(cgroup));
    if cgroup.starts_with(&attached) {
        return Ok(());
    }
    Err(format!(
        "spec.cgroup: {} is not in {}, to which programs are attached: start the agent with a --cgroup that has both in it",
        cgroup.display(),
        attached.display()
    ))
}

fn other_addresses(capture: &Capture, place: &Place) -> Option<String> {
    let missing: Vec<String> =
        capture.addresses.iter().filter(|ip| !place.addresses.contains(ip)).map(ToString::to_string).collect();
    let present: Vec<String> = place.addresses.iter().filter(|ip| !ip.is_loopback()).map(ToString::to_string).collect();
    (!missing.is_empty()).then(|| {
        format!("spec.addresses: the namespace has not {}, but {}; it is captured all the same", missing.join(", "), {
            if present.is_empty() { "none".into() } else { present.join(", ") }
        })
    })
}
