//! What the plugin does with each request of the runtime.
//!
//! An error that a plugin returns for a container keeps that container from being created. So there is none: what cannot be done is
//! reported, and the container stays as it is.

use crate::api::{
    CREATE_CONTAINER, ConfigureRequest, ConfigureResponse, Container, ContainerAdjustment, ContainerRequest,
    CreateContainerResponse, Empty, PLUGIN_SERVICE, PodSandbox, START_CONTAINER, StateChangeEvent, SynchronizeRequest,
    SynchronizeResponse, bit,
};
use crate::injection::Injection;
use crate::inspector::Inspector;
use crate::namespaces::Namespaces;
use crate::pod::enrolment;
use crate::present::Present;
use crate::report::{Reporter, Subject};
use crate::ttrpc::{INVALID_ARGUMENT, Request, Response, UNIMPLEMENTED};
use prost::Message as _;
use sidestep_injection::{Enrolment, Outcome, Reason};

/// Answers requests.
pub struct Plugin {
    /// Enrolled namespaces.
    pub namespaces: Namespaces,
    /// What containers get.
    pub injection: Injection,
    /// Looks at entrypoints.
    pub inspector: Inspector,
    /// Where it says what it has done.
    pub reporter: Reporter,
    /// What the runtime has named of what it had before.
    pub present: Present,
}

impl Plugin {
    /// The answer to a request. It needs a few calls to the node's own file systems, and none to a container's.
    pub fn answer(&mut self, request: &Request) -> Response {
        if request.service != PLUGIN_SERVICE {
            return Response::failure(UNIMPLEMENTED, "the plugin has no such service");
        }
        let payload = &request.payload[..];
        match request.method.as_str() {
            "Configure" => self.configure(payload),
            "Synchronize" => self.synchronize(payload),
            "CreateContainer" => Response::success(&CreateContainerResponse { adjust: self.create(payload) }),
            "StartContainer" => {
                self.start(ContainerRequest::decode(payload).ok());
                Response::success(&Empty {})
            }
            // The container would not start if this failed.
            "StateChange" => {
                self.state_change(payload);
                Response::success(&Empty {})
            }
            "Shutdown" => {
                self.reporter.note("shutdown", "The runtime shuts down");
                Response::success(&Empty {})
            }
            _ => Response::failure(UNIMPLEMENTED, "the plugin has not subscribed to this"),
        }
    }

    fn configure(&mut self, payload: &[u8]) -> Response {
        let Ok(request) = ConfigureRequest::decode(payload) else {
            return Response::failure(INVALID_ARGUMENT, "Configure: the request cannot be decoded");
        };
        self.present = Present::default();
        let ConfigureRequest { runtime_name, runtime_version } = request;
        self.reporter.note("configured", &format!("The runtime is {runtime_name} {runtime_version}"));
        Response::success(&ConfigureResponse { events: bit(CREATE_CONTAINER) | bit(START_CONTAINER) })
    }

    /// Containers that are there already are never changed, since variables and mounts are given at their creation. Those that
    /// should have the library are told.
    fn synchronize(&mut self, payload: &[u8]) -> Response {
        let Ok(request) = SynchronizeRequest::decode(payload) else {
            return Response::failure(INVALID_ARGUMENT, "Synchronize: the request cannot be decoded");
        };
        let more = request.more;
        self.present.add(request, |container| !self.injection.is_in(container));
        if !more {
            for (pod, container) in std::mem::take(&mut self.present).containers() {
                if enrolment(pod, container, &mut self.namespaces) == Enrolment::Yes {
                    let outcome = Outcome::LeftOut(Reason::CreatedBefore);
                    self.reporter.container(&Subject::new(pod, container), outcome);
                }
            }
        }
        Response::success(&SynchronizeResponse { more })
    }

    fn create(&mut self, payload: &[u8]) -> Option<ContainerAdjustment> {
        let (pod, container) = self.named(ContainerRequest::decode(payload).ok())?;
        let subject = Subject::new(&pod, &container);
        let adjustment = match enrolment(&pod, &container, &mut self.namespaces) {
            Enrolment::No => return None,
            Enrolment::Without(reason) => Err(reason),
            Enrolment::Yes => self.injection.adjustment(&container),
        };
        self.reporter
            .container(&subject, adjustment.as_ref().err().copied().map_or(Outcome::Injected, Outcome::LeftOut));
        adjustment.ok()
    }

    fn state_change(&self, payload: &[u8]) {
        match StateChangeEvent::decode(payload) {
            Ok(StateChangeEvent { event: START_CONTAINER, pod, container }) => {
                self.start(Some(ContainerRequest { pod, container }));
            }
            // Not subscribed to.
            Ok(_) => {}
            Err(_) => self.start(None),
        }
    }

    fn start(&self, request: Option<ContainerRequest>) {
        if let Some((pod, container)) = self.named(request)
            && self.injection.is_in(&container)
        {
            self.inspector.submit(container.pid, &container.args, &container.env, Subject::new(&pod, &container));
        }
    }

    /// What a request is about; None: it could not be decoded.
    fn named(&self, request: Option<ContainerRequest>) -> Option<(PodSandbox, Container)> {
        let found = request.and_then(|request| request.pod.zip(request.container));
        if found.is_none() {
            let unknown = Subject::new(&PodSandbox::default(), &Container::default());
            self.reporter.container(&unknown, Outcome::LeftOut(Reason::Undecodable));
        }
        found
    }
}
