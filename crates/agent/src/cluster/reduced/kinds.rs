//! What is read of each kind. Of pods, also of other nodes', policies need labels, addresses and named ports; the repair of pods needs
//! to know whether they run.

use super::{Parts, Reducible, read};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde::Deserialize;
use serde::de::IgnoredAny;
use sidestep_mesh::field::Invalid;

impl Reducible for core::Service {
    fn fill(&mut self, parts: &Parts) -> Result<(), Invalid> {
        self.spec = read("spec", parts.spec.as_deref())?;
        let status: Option<ServiceStatus> = read("status", parts.status.as_deref())?;
        let kept = |status: ServiceStatus| core::ServiceStatus {
            load_balancer: status.load_balancer,
            ..core::ServiceStatus::default()
        };
        self.status = status.map(kept);
        Ok(())
    }
}

/// Not the conditions, which have times.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServiceStatus {
    load_balancer: Option<core::LoadBalancerStatus>,
}

impl Reducible for EndpointSlice {
    fn fill(&mut self, parts: &Parts) -> Result<(), Invalid> {
        self.address_type = read("addressType", parts.address_type.as_deref())?.unwrap_or_default();
        self.endpoints = read("endpoints", parts.endpoints.as_deref())?;
        self.ports = read("ports", parts.ports.as_deref())?;
        Ok(())
    }
}

impl Reducible for NetworkPolicy {
    fn fill(&mut self, parts: &Parts) -> Result<(), Invalid> {
        self.spec = read("spec", parts.spec.as_deref())?;
        Ok(())
    }
}

impl Reducible for core::Namespace {
    fn fill(&mut self, _: &Parts) -> Result<(), Invalid> {
        Ok(())
    }
}

impl Reducible for core::Node {
    fn fill(&mut self, _: &Parts) -> Result<(), Invalid> {
        Ok(())
    }
}

impl Reducible for core::Pod {
    fn fill(&mut self, parts: &Parts) -> Result<(), Invalid> {
        let spec: PodSpec = read("spec", parts.spec.as_deref())?.unwrap_or_default();
        self.spec = Some(core::PodSpec {
            node_name: spec.node_name,
            host_network: spec.host_network,
            containers: spec.containers.into_iter().flatten().map(container).collect(),
            init_containers: spec.init_containers.map(|all| all.into_iter().map(container).collect()),
            ..core::PodSpec::default()
        });
        let status: PodStatus = read("status", parts.status.as_deref())?.unwrap_or_default();
        let states = |all: Option<Vec<ContainerStatus>>| all.map(|all| all.into_iter().map(state).collect());
        self.status = Some(core::PodStatus {
            phase: status.phase,
            pod_ips: status.pod_ips,
            container_statuses: states(status.container_statuses),
            init_container_statuses: states(status.init_container_statuses),
            ..core::PodStatus::default()
        });
        Ok(())
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
    host_network: Option<bool>,
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    restart_policy: Option<String>,
    ports: Option<Vec<core::ContainerPort>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    phase: Option<String>,
    #[serde(rename = "podIPs")]
    pod_ips: Option<Vec<core::PodIP>>,
    container_statuses: Option<Vec<ContainerStatus>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Deserialize)]
struct ContainerStatus {
    state: Option<ContainerState>,
}

/// Only whether it runs, not since when.
#[derive(Deserialize)]
struct ContainerState {
    running: Option<IgnoredAny>,
}

fn container(of: Container) -> core::Container {
    core::Container { restart_policy: of.restart_policy, ports: of.ports, ..core::Container::default() }
}

fn state(of: ContainerStatus) -> core::ContainerStatus {
    let running = of.state.and_then(|state| state.running).map(|_| core::ContainerStateRunning::default());
    let state = core::ContainerState { running, ..core::ContainerState::default() };
    core::ContainerStatus { state: Some(state), ..core::ContainerStatus::default() }
}
