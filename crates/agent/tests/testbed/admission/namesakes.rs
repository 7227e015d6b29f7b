//! A pod that was deleted by force runs on for a while after the API server has another one of its name.

use super::{Cluster, applicant, attachment, object};
use crate::api_server::PODS;
use serde_json::json;
use sidestep_agent_api::{Admission, Answer, Applicant};
use sidestep_testkit::Pod;
use sidestep_testkit::greeter::{Greeter, OUTBOUND, ROOT, greeted};
use std::net::SocketAddr;

impl Cluster {
    /// Replaces the object of the pod `web` by that of its successor.
    fn succeed(&self) {
        let containers = json!([{"name": "app"}, {"name": "istio-proxy"}]);
        let mut next = object("web", json!({"sidecar.istio.io/status": "{}"}), containers);
        next["metadata"]["uid"] = "uid-next".into();
        self.world.put(PODS, next);
    }

    /// Asks for the successor, whose sandbox is called `next`.
    fn admit_next(&self, pod: &Pod) -> Result<Answer, String> {
        let (attachment, uid) = (attachment("next"), Some("uid-next".into()));
        let next = Applicant { attachment, uid, ..applicant("web", pod) };
        self.request(Admission::Admit(next))
    }
}

#[test]
fn a_pods_namesake_starts_when_the_pod_has_ended() {
    let mut cluster = Cluster::new(&[]);
    let [first, second, peer] = [(); 3].map(|()| cluster.node.routed());
    let _program = Greeter::program(&peer, 8080);
    let proxy = Greeter::proxy(&first);
    let to = SocketAddr::new(peer.v4, 8080);
    cluster.meshed("web", json!({}));
    cluster.admit("web", &first).unwrap();
    cluster.succeed();
    let told = cluster.admit_next(&second).unwrap_err();
    assert!(told.contains("UID uid-web") && told.contains("try again"), "{told}");
    // The runtime removes the sandbox that was refused.
    cluster.request(Admission::Release(attachment("next"))).unwrap();
    cluster.request(Admission::Verify(attachment("web"))).unwrap();
    assert_eq!(cluster.kept(), ["web.json"]);
    assert_eq!(greeted(&first, ROOT, to).unwrap().listener, OUTBOUND);
    drop((proxy, first));
    assert!(matches!(cluster.admit_next(&second), Ok(Answer::Admitted(_))));
    // The first pod's end is said late.
    cluster.request(Admission::Release(attachment("web"))).unwrap();
    cluster.request(Admission::Verify(attachment("next"))).unwrap();
    assert_eq!(cluster.kept(), ["next.json"]);
    let _proxy = Greeter::proxy(&second);
    assert_eq!(greeted(&second, ROOT, to).unwrap().listener, OUTBOUND);
}

#[test]
fn a_pods_namesake_starts_when_the_runtime_has_released_the_pod() {
    let mut cluster = Cluster::new(&[]);
    let [first, second] = [(); 2].map(|()| cluster.node.routed());
    cluster.meshed("web", json!({}));
    cluster.admit("web", &first).unwrap();
    cluster.succeed();
    assert!(cluster.admit_next(&second).is_err());
    cluster.request(Admission::Release(attachment("web"))).unwrap();
    assert!(matches!(cluster.admit_next(&second), Ok(Answer::Admitted(_))));
    assert_eq!(cluster.kept(), ["next.json"]);
    cluster.request(Admission::Verify(attachment("next"))).unwrap();
}
