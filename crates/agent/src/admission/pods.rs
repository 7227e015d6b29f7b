//! Reads one pod from the API server. The watch of pods may not know a pod yet whose sandbox the runtime makes already, and
//! keeps less of it.

use super::asked::Asked;
use super::error::PodError;
use crate::cluster::Cluster;
use k8s_openapi::api::core::v1::Pod;
use kube::api::GetParams;
use kube::core::Request;
use kube::{Client, Resource};
use sidestep_mesh::object::Name;
use std::io;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;

pub struct PodReader {
    cluster: Cluster,
    /// Driven by the threads that wait for it.
    runtime: Runtime,
    /// None: not connected yet, or not well. Whoever connects lets the others wait: that takes a while.
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
            read.unwrap_or_else(|_| {
                // The connection may be dead. While somebody connects, it is replaced anyway.
                if let Ok(mut known) = self.client.try_lock() {
                    *known = None;
                }
                Err(PodError::Slow(patience))
            })
        })
    }

    async fn get(&self, name: &Name) -> Result<Pod, PodError> {
        let request = Request::new(Pod::url_path(&(), Some(&name.namespace))).get(&name.name, &GetParams::default());
        let request = request.map_err(|error| PodError::Request(kube::Error::BuildRequest(error)))?;
        // As text: the library would log an object that it cannot read, with all variables of its containers.
        let pod = self.client().await?.request_text(request).await;
        // After a failure the next reader connects again, with the settings and credentials of then.
        let is_well = match &pod {
            Ok(_) => true,
            Err(kube::Error::Api(status)) => [403, 404].contains(&status.code),
            Err(_) => false,
        };
        if !is_well {
            *self.client.lock().await = None;
        }
        let text = pod.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 404 => PodError::Unknown(name.clone()),
            kube::Error::Api(status) if status.code == 403 => PodError::Forbidden(error),
            _ => PodError::Request(error),
        })?;
        Asked::read(&text).map_err(PodError::Unreadable)
    }

    async fn client(&self) -> Result<Client, PodError> {
        let mut known = self.client.lock().await;
        if let Some(client) = &*known {
            return Ok(client.clone());
        }
        let client = self.cluster.connect().await?;
        *known = Some(client.clone());
        Ok(client)
    }
}
