//! Reads one pod from the API server. The watch of pods may not know a pod yet whose sandbox the runtime makes already, and
//! keeps less of it.

use super::error::PodError;
use crate::cluster::Cluster;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use sidestep_mesh::object::Name;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

pub struct PodReader {
    cluster: Cluster,
    /// Driven by the threads that wait for it.
    runtime: Runtime,
    /// None: not connected yet, or not well.
    client: Mutex<Option<Client>>,
}

impl PodReader {
    pub fn new(cluster: Cluster) -> io::Result<PodReader> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(PodReader { cluster, runtime, client: Mutex::default() })
    }

    /// The pod as the API server has it now. Any number of threads may wait at the same time.
    pub fn read(&self, name: &Name, patience: Duration) -> Result<Pod, PodError> {
        self.runtime.block_on(async {
            let read = tokio::time::timeout(patience, self.get(name)).await;
            read.unwrap_or(Err(PodError::Slow(patience)))
        })
    }

    async fn get(&self, name: &Name) -> Result<Pod, PodError> {
        let known = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let client = match known {
            Some(client) => client,
            None => self.cluster.connect().await?,
        };
        let pod = Api::<Pod>::namespaced(client.clone(), &name.namespace).get(&name.name).await;
        // After a failure the next reader connects again, with the settings and credentials of then.
        let is_well = match &pod {
            Ok(_) => true,
            Err(kube::Error::Api(status)) => [403, 404].contains(&status.code),
            Err(_) => false,
        };
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = is_well.then_some(client);
        pod.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 404 => PodError::Unknown(name.clone()),
            kube::Error::Api(status) if status.code == 403 => PodError::Forbidden(error),
            _ => PodError::Request(error),
        })
    }
}
