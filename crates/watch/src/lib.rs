//! What an API server of Kubernetes tells of objects: a list, then changes; again, with growing pauses, when that fails.

#![forbid(unsafe_code)]

use futures_util::stream::{self, BoxStream, StreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// What a program logs that uses the API client. It reports the client's problems itself, and the client would log each object that it
/// cannot read, whole.
pub const LOGGED: &str = "info,kube_client=off,kube_runtime=off";

/// The server's answer to a version that it has forgotten.
const GONE: u16 = 410;

/// All events, for ever. `pauses`: after errors.
///
/// A watcher whose request for a watch is refused since the server has forgotten the version in it would repeat the request for ever.
/// A new watcher lists again.
pub fn events<K>(
    api: Api<K>,
    config: Config,
    pauses: impl Backoff + 'static,
) -> BoxStream<'static, watcher::Result<Event<K>>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + DeserializeOwned + 'static,
{
    let begin = move || watcher(api.clone(), config.clone()).boxed();
    let all = stream::unfold((begin(), begin), |(mut events, begin)| async move {
        let event = events.next().await?;
        if is_forgotten(&event) {
            events = begin();
        }
        Some((event, (events, begin)))
    });
    all.backoff(pauses).boxed()
}

fn is_forgotten<T>(event: &watcher::Result<T>) -> bool {
    matches!(event, Err(watcher::Error::WatchStartFailed(kube::Error::Api(status))) if status.code == GONE)
}
