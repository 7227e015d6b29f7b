//! `sidestep-agent rollout`: patches a DaemonSet, and waits until each of its nodes runs the new template. Before the chart's objects
//! are deleted, a Job gives each node a pod that takes everything out, since no object of Helm's can run once on every node.

use clap::Parser;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{Patch, PatchParams};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client, Config};
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// The first argument that selects this command.
pub const COMMAND: &str = "rollout";

/// Interval at which the DaemonSet is read again.
const LOOK: Duration = Duration::from_secs(1);
/// The API server stores objects of at most 1.5 MiB.
const LARGEST_PATCH: u64 = 2 << 20;

/// Patch a DaemonSet, and wait until each of its nodes runs the new template
///
/// The chart's Job runs this before `helm uninstall` deletes anything.
#[derive(Parser)]
#[command(name = "sidestep-agent rollout", bin_name = "sidestep-agent rollout", version)]
struct Args {
    /// The namespace of the DaemonSet
    #[arg(long, value_name = "NAME")]
    namespace: String,
    /// The DaemonSet
    #[arg(long, value_name = "NAME")]
    daemonset: String,
    /// A strategic merge patch, as JSON
    #[arg(long, value_name = "FILE")]
    patch: PathBuf,
    /// Give up after this time
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    /// The API server [default: that of the cluster in which this process is a pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// Why not every node runs the new template.
#[derive(Debug, thiserror::Error)]
pub enum RolloutError {
    #[error("{}: cannot read it", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{}: is no JSON", file.display())]
    Parse { file: PathBuf, source: serde_json::Error },
    #[error("cannot wait for the API server")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    InCluster(#[from] InClusterError),
    #[error("the API server refuses")]
    Api(#[from] kube::Error),
    #[error("after {seconds} s {progress}; look at the pods of the DaemonSet that are not ready")]
    TooLong { seconds: u64, progress: String },
}

pub fn run(arguments: impl Iterator<Item = OsString>) -> Result<(), RolloutError> {
    let args = Args::parse_from(arguments);
    let patch = read(&args.patch)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RolloutError::Runtime)?;
    runtime.block_on(roll_out(&args, &patch))
}

fn read(file: &Path) -> Result<serde_json::Value, RolloutError> {
    let mut text = Vec::new();
    let read = std::fs::File::open(file).and_then(|opened| opened.take(LARGEST_PATCH).read_to_end(&mut text));
    read.map_err(|source| RolloutError::Read { file: file.into(), source })?;
    serde_json::from_slice(&text).map_err(|source| RolloutError::Parse { file: file.into(), source })
}

async fn roll_out(args: &Args, patch: &serde_json::Value) -> Result<(), RolloutError> {
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    let mut progress = "no answer of the API server".to_owned();
    match timeout_at(deadline, attempt(args, patch, &mut progress)).await {
        Ok(done) => done,
        Err(_) => Err(RolloutError::TooLong { seconds: args.timeout, progress }),
    }
}

async fn attempt(args: &Args, patch: &serde_json::Value, progress: &mut String) -> Result<(), RolloutError> {
    let daemonsets: Api<DaemonSet> = Api::namespaced(client(args).await?, &args.namespace);
    let name = &args.daemonset;
    let mut current = match daemonsets.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            println!("there is no DaemonSet {}/{name}: nothing is to be done", args.namespace);
            return Ok(());
        }
        patched => patched?,
    };
    loop {
        let Nodes { all, done } = Nodes::of(&current);
        *progress = format!("{done} of {all} nodes are done");
        println!("{progress}");
        if is_observed(&current) && done >= all {
            return Ok(());
        }
        sleep(LOOK).await;
        current = daemonsets.get(name).await?;
    }
}

async fn client(args: &Args) -> Result<Client, RolloutError> {
    let config = match &args.kubeconfig {
        Some(file) => {
            Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &KubeConfigOptions::default()).await?
        }
        None => Config::incluster()?,
    };
    Ok(Client::try_from(config)?)
}

/// Whether the status is about the patched template.
fn is_observed(daemonset: &DaemonSet) -> bool {
    let observed = daemonset.status.as_ref().and_then(|status| status.observed_generation);
    observed >= daemonset.metadata.generation
}

#[derive(Debug, PartialEq, Eq)]
struct Nodes {
    all: i32,
    /// Those that run the new template, and whose pod is ready.
    done: i32,
}

impl Nodes {
    fn of(daemonset: &DaemonSet) -> Nodes {
        let Some(status) = &daemonset.status else { return Nodes { all: 0, done: 0 } };
        let done = status.updated_number_scheduled.unwrap_or(0).min(status.number_ready);
        Nodes { all: status.desired_number_scheduled, done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn daemonset(generation: i64, status: serde_json::Value) -> DaemonSet {
        serde_json::from_value(json!({"metadata": {"generation": generation}, "status": status})).expect("a DaemonSet")
    }

    fn status(observed: i64, desired: i32, updated: i32, ready: i32) -> serde_json::Value {
        json!({"observedGeneration": observed, "currentNumberScheduled": updated, "numberMisscheduled": 0,
               "desiredNumberScheduled": desired, "updatedNumberScheduled": updated, "numberReady": ready})
    }

    #[test]
    fn a_node_is_done_with_a_new_pod_that_is_ready() {
        for (updated, ready, done) in [(0, 3, 0), (3, 1, 1), (2, 3, 2), (3, 3, 3)] {
            let nodes = Nodes::of(&daemonset(2, status(2, 3, updated, ready)));
            assert_eq!(nodes, Nodes { all: 3, done });
        }
    }

    #[test]
    fn a_status_of_the_old_template_says_nothing() {
        assert!(!is_observed(&daemonset(2, status(1, 3, 3, 3))));
        assert!(is_observed(&daemonset(2, status(2, 3, 3, 3))));
    }
}
